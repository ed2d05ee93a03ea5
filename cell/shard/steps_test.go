package shard_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const grace = 10 * time.Second

var price, _ = reservation.ParseMoney("4999.00", "CNY")

func (b *bench) step(s shard.Step) shard.StepResult {
	b.t.Helper()
	res, err := b.store.StepOrders(b.ctx, grace, []shard.Step{s})
	b.must(err)
	return res[0]
}

// own makes the shard's clock the test's: it stands still until advance.
func (b *bench) ownClock() {
	b.t.Helper()
	b.exec(b.admin, `CREATE TABLE cellquota.test_clock (t timestamptz)`)
	b.exec(b.admin, `INSERT INTO cellquota.test_clock VALUES (clock_timestamp())`)
	b.exec(b.admin, `GRANT SELECT ON cellquota.test_clock TO cellquota_app`)
	b.exec(b.admin, `CREATE OR REPLACE FUNCTION cellquota.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT t FROM cellquota.test_clock $$`)
}

func (b *bench) advance(d time.Duration) {
	b.t.Helper()
	b.exec(b.admin, "UPDATE cellquota.test_clock SET t = t + make_interval(secs => $1)", d.Seconds())
}

func (b *bench) closeDue(waits shard.CloseWaits) ([]shard.StepResult, []shard.OpenAttempt) {
	b.t.Helper()
	closed, open, err := b.store.CloseDue(b.ctx, 500, waits)
	b.must(err)
	return closed, open
}

// settles reads reservation_settle_seconds: how many, and the seconds in all.
func (b *bench) settles() (n uint64, seconds float64) {
	b.t.Helper()
	families, err := b.reg.Gather()
	b.must(err)
	for _, f := range families {
		if f.GetName() == "cellquota_reservation_settle_seconds" {
			n, seconds = f.GetMetric()[0].GetHistogram().GetSampleCount(), f.GetMetric()[0].GetHistogram().GetSampleSum()
		}
	}
	return n, seconds
}

func shortTTL(r *cellquotav1.CampaignRules) { r.Spec.ReservationTtl = durationpb.New(10 * time.Second) }

// TestPayOnce: an attempt, its success, and every repeat of both.
func TestPayOnce(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	o := b.order("u")
	start := shard.Step{Kind: shard.StepStart, Order: o, User: "u", Payment: "p1"}
	for range 2 {
		if r := b.step(start); r.Err != nil || r.Payment != shard.PaymentInitiated || r.Order.Version != 2 || r.Order.Amount != "4999.00" {
			t.Fatalf("start: %+v", r)
		}
	}
	if r := b.step(shard.Step{Kind: shard.StepStart, Order: o, User: "thief", Payment: "p1"}); !errors.Is(r.Err, shard.ErrNotFound) {
		t.Fatalf("another user's start: %v", r.Err)
	}
	if r := b.step(shard.Step{Kind: shard.StepCancel, Order: o, User: "u"}); !errors.Is(r.Err, reservation.ErrPaymentInProgress) {
		t.Fatalf("cancel with an open attempt: %v", r.Err)
	}
	pay := shard.Step{Kind: shard.StepSucceeded, Order: o, Payment: "p1", Amount: price, FromChannel: true}
	for range 3 {
		if r := b.step(pay); r.Err != nil || r.Payment != shard.PaymentSucceeded || r.Order.State != reservation.OrderPaid || r.Refund != "" {
			t.Fatalf("pay: %+v", r)
		}
	}
	pay.Payment = "p2"
	if r := b.step(pay); r.Refund != shard.RefundDuplicate || r.Payment != shard.PaymentPaidAfterClose || r.Order.State != reservation.OrderPaid {
		t.Fatalf("second payment: %+v", r)
	}
	if r := b.step(pay); r.Refund != "" {
		t.Fatalf("refunded twice: %+v", r)
	}
	if r := b.step(shard.Step{Kind: shard.StepCancel, Order: o, User: "u"}); !errors.Is(r.Err, reservation.ErrOrderPaid) {
		t.Fatalf("cancel a paid order: %v", r.Err)
	}
	if n, _ := b.settles(); n != 1 {
		t.Errorf("settled %d times, by repeats too", n)
	}
	if s := b.stock(phone); s.Confirmed != 1 || s.Reserved != 0 {
		t.Errorf("stock %+v", s)
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.outbox WHERE event_type = 'refund-requested'"); n != 1 {
		t.Errorf("%d refunds", n)
	}
	e := b.effects()["paid-"+string(o.Reservation())]
	if e.GetState() != cellquotav1.RequestState_REQUEST_STATE_PAID || e.GetAggregateVersion() != 4 || e.GetStockDelta() != 0 {
		t.Errorf("effect %v", e)
	}
	b.invariants()
}

// TestLatePayment is K25: closed, its unit sold to another, then paid: exactly one refund, nothing
// else changes, however often it is told.
func TestLatePayment(t *testing.T) {
	b := newBench(t)
	b.ownClock()
	b.sell(1, shortTTL, longWindow)
	b.must(b.store.Heartbeat(b.ctx))
	o := b.order("u")
	b.advance(9 * time.Second)
	if closed, _ := b.closeDue(shard.CloseWaits{}); len(closed) != 0 {
		t.Fatal("closed before its time")
	}
	b.advance(time.Second)
	closed, _ := b.closeDue(shard.CloseWaits{})
	if len(closed) != 1 || !closed[0].Closed || closed[0].Order.Reason != reservation.Expired {
		t.Fatalf("%+v", closed)
	}
	if n, took := b.settles(); n != 1 || took != 10 {
		t.Errorf("settled %d times after %v s, want once after 10 s", n, took)
	}
	e := b.effects()["release-"+string(o.Reservation())]
	if e.GetStockDelta() != 1 || e.GetStockVersion() != b.stock(phone).Version || e.GetState() != cellquotav1.RequestState_REQUEST_STATE_CLOSED ||
		e.GetReason() != cellquotav1.Reason_REASON_EXPIRED || e.GetAggregateVersion() != 3 {
		t.Errorf("release %v, stock %+v", e, b.stock(phone))
	}
	b.order("next")
	for i := range 3 {
		r := b.step(shard.Step{Kind: shard.StepSucceeded, Order: o, Payment: "p", Amount: price, FromChannel: true})
		if r.Err != nil || r.Order.State != reservation.OrderClosed || r.Payment != shard.PaymentPaidAfterClose || (r.Refund != "") != (i == 0) {
			t.Fatalf("late payment %d: %+v", i, r)
		}
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.outbox WHERE event_type = 'refund-requested'"); n != 1 {
		t.Errorf("%d refunds", n)
	}
	r := b.step(shard.Step{Kind: shard.StepRefunded, Order: o, Payment: "p", Amount: price, FromChannel: true, RefundID: "theirs"})
	if r.Err != nil || r.Payment != shard.PaymentRefunded || b.stock(phone).Available != 0 {
		t.Errorf("refunded: %+v", r)
	}
	b.invariants()
}

// longWindow keeps the campaign open however far the test's clock goes.
func longWindow(r *cellquotav1.CampaignRules) { r.Spec.CloseAt.Seconds += 1_000_000 }

// TestMismatchesAreRecordedOnce: amount, currency, unknown order.
func TestMismatchesAreRecordedOnce(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	o := b.order("u")
	cheap, _ := reservation.ParseMoney("1.00", "CNY")
	dollars := reservation.Money{Tenthousandths: price.Tenthousandths, Currency: "USD"}
	for range 2 {
		for _, m := range []reservation.Money{cheap, dollars} {
			if r := b.step(shard.Step{Kind: shard.StepSucceeded, Order: o, Payment: "p", Amount: m, FromChannel: true}); !errors.Is(r.Err, shard.ErrPaymentMismatch) {
				t.Fatalf("%v: %+v", m, r)
			}
		}
		unknown := shard.Step{Kind: shard.StepSucceeded, Order: "cell-1.oaaaaaaaaaaaaaaaaaaaaaaaaaa", Payment: "p", Amount: price, FromChannel: true}
		if r := b.step(unknown); !errors.Is(r.Err, shard.ErrOrderUnknown) {
			t.Fatalf("unknown order: %+v", r)
		}
		if r := b.step(shard.Step{Kind: shard.StepRefunded, Order: o, Payment: "never", Amount: price, FromChannel: true}); !errors.Is(r.Err, shard.ErrPaymentMismatch) {
			t.Fatalf("refund of nothing: %+v", r)
		}
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.payment_refusals"); n != 4 {
		t.Errorf("%d refusals recorded", n)
	}
	// The right amount under another attempt still pays.
	if r := b.step(shard.Step{Kind: shard.StepSucceeded, Order: o, Payment: "p2", Amount: price, FromChannel: true}); r.Order.State != reservation.OrderPaid {
		t.Fatalf("%+v", r)
	}
	b.invariants()
}

// TestOpenAttemptsHoldClosingBack: asked at the deadline, doubted, then a person; and every way out.
func TestOpenAttemptsHoldClosingBack(t *testing.T) {
	b := newBench(t)
	b.ownClock()
	b.sell(5, shortTTL, longWindow)
	b.must(b.store.Heartbeat(b.ctx))
	waits := shard.CloseWaits{Attempt: grace}
	silent, failed, paid := b.order("silent"), b.order("failed"), b.order("paid")
	for user, o := range map[string]ids.OrderID{"silent": silent, "failed": failed, "paid": paid} {
		if r := b.step(shard.Step{Kind: shard.StepStart, Order: o, User: ids.UserID(user), Payment: "p"}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	b.advance(10 * time.Second)
	if closed, open := b.closeDue(waits); len(closed)+len(open) != 0 {
		t.Fatalf("looked before the attempts' deadline: %v %v", closed, open)
	}
	if r := b.step(shard.Step{Kind: shard.StepStart, Order: failed, User: "failed", Payment: "late"}); !errors.Is(r.Err, reservation.ErrOrderClosed) {
		t.Fatalf("an attempt after expires_at: %v", r.Err)
	}
	b.advance(grace)
	_, open := b.closeDue(waits)
	if len(open) != 3 || open[0].PastGrace || open[0].Amount != price {
		t.Fatalf("open attempts %+v", open)
	}
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: paid, Payment: "p"})
	b.step(shard.Step{Kind: shard.StepFailed, Order: failed, Payment: "p"})
	b.step(shard.Step{Kind: shard.StepPending, Order: silent, Payment: "p"})
	closed, open := b.closeDue(waits)
	if len(closed) != 1 || closed[0].Order.ID != failed || len(open) != 0 {
		t.Fatalf("after the answers: closed %+v, open %+v", closed, open)
	}
	b.advance(grace)
	if _, open = b.closeDue(waits); len(open) != 1 || !open[0].PastGrace {
		t.Fatalf("silence: %+v", open)
	}
	if r := b.step(shard.Step{Kind: shard.StepSilent, Order: silent, Payment: "p"}); r.Order.ReservationState != reservation.ManualReview {
		t.Fatalf("review: %+v", r)
	}
	b.advance(24 * time.Hour)
	b.must(b.store.Heartbeat(b.ctx))
	if closed, open := b.closeDue(waits); len(closed)+len(open) != 0 {
		t.Fatalf("an order under review was touched: %v %v", closed, open)
	}
	if r := b.step(shard.Step{Kind: shard.StepSucceeded, Order: silent, Payment: "p", Amount: price, FromChannel: true}); r.Order.State != reservation.OrderPaid {
		t.Fatalf("paid out of review: %+v", r)
	}
	b.invariants()
}

// TestClosingWaits: no heartbeat, an outage, a restore: callbacks come first (K32).
func TestClosingWaits(t *testing.T) {
	b := newBench(t)
	b.ownClock()
	b.sell(1, shortTTL, longWindow)
	b.order("u")
	b.advance(time.Minute)
	waits := shard.CloseWaits{Payment: 5 * time.Second}
	if closed, _ := b.closeDue(waits); len(closed) != 0 {
		t.Fatal("closed although nobody knows since when the shard can be written")
	}
	b.must(b.store.Heartbeat(b.ctx))
	b.advance(2 * time.Second)
	b.must(b.store.Heartbeat(b.ctx))
	b.advance(10 * time.Second) // an outage
	b.must(b.store.Heartbeat(b.ctx))
	if closed, _ := b.closeDue(waits); len(closed) != 0 {
		t.Fatal("closed at once after an outage")
	}
	b.exec(b.admin, "INSERT INTO cellquota.fence_history SELECT 1, 'SETTLE_ONLY', cellquota.now() + interval '3 seconds', 'restored'")
	b.advance(5 * time.Second)
	if closed, _ := b.closeDue(shard.CloseWaits{Payment: 5 * time.Second, Restore: 4 * time.Second}); len(closed) != 0 {
		t.Fatal("closed within the restore's grace")
	}
	b.advance(2 * time.Second)
	if closed, _ := b.closeDue(shard.CloseWaits{Payment: 5 * time.Second, Restore: 4 * time.Second}); len(closed) != 1 {
		t.Fatal("not closed after every wait")
	}
	b.invariants()
}

// TestPayAgainstClose is K76: paid and closed at the same instant, many times over: each order is PAID
// or CLOSED, its ledger has one of CONFIRM and RELEASE, and every late payment has its refund.
func TestPayAgainstClose(t *testing.T) {
	b := newBench(t)
	b.ownClock()
	b.sell(200, shortTTL, longWindow)
	b.must(b.store.Heartbeat(b.ctx))
	var orders []ids.OrderID
	for i := range 200 {
		orders = append(orders, b.order(fmt.Sprintf("u%d", i)))
	}
	b.advance(10 * time.Second)
	other, _ := b.open(shard.Config{}, nil)
	other.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	var wg sync.WaitGroup
	for _, s := range []*shard.Store{b.store, other} { // two closers at once (K77)
		wg.Go(func() {
			for {
				closed, _, err := s.CloseDue(b.ctx, 7, shard.CloseWaits{})
				if err != nil {
					t.Error(err)
				}
				if len(closed) == 0 {
					return
				}
			}
		})
	}
	for i, o := range orders {
		if i%2 == 0 {
			wg.Go(func() {
				res, err := other.StepOrders(b.ctx, grace, []shard.Step{{Kind: shard.StepSucceeded, Order: o, Payment: "p", Amount: price, FromChannel: true}})
				if err != nil || res[0].Err != nil {
					t.Error(err, res)
				}
			})
		}
	}
	wg.Wait()
	for { // what a closer skipped because a payment held it
		if closed, _ := b.closeDue(shard.CloseWaits{}); len(closed) == 0 {
			break
		}
	}
	b.invariants()
	paid, late := one[int](b, "SELECT count(*) FROM cellquota.orders WHERE state = 'PAID'"), one[int](b, "SELECT count(*) FROM cellquota.payments WHERE state = 'PAID_AFTER_CLOSE'")
	refunds := one[int](b, "SELECT count(*) FROM cellquota.outbox WHERE event_type = 'refund-requested'")
	if paid+late != 100 || refunds != late || one[int](b, "SELECT count(*) FROM cellquota.orders WHERE state = 'PENDING_PAYMENT'") != 0 {
		t.Errorf("%d paid, %d late, %d refunds", paid, late, refunds)
	}
	t.Logf("%d paid, %d after close", paid, late)
}

// TestRefundRule: a refunded unit returns to sale only where the campaign says so.
func TestRefundRule(t *testing.T) {
	for rule, want := range map[cellquotav1.RefundRule]int32{
		cellquotav1.RefundRule_REFUND_RULE_RESTOCK: 1, cellquotav1.RefundRule_REFUND_RULE_NO_RESTOCK: 0,
	} {
		t.Run(rule.String(), func(t *testing.T) {
			b := newBench(t)
			b.sell(1, func(r *cellquotav1.CampaignRules) { r.Spec.RefundRule = rule })
			o := b.order("u")
			b.step(shard.Step{Kind: shard.StepSucceeded, Order: o, Payment: "p", Amount: price, FromChannel: true})
			for range 2 {
				r := b.step(shard.Step{Kind: shard.StepRefunded, Order: o, Payment: "p", Amount: price, FromChannel: true, RefundID: "r1"})
				if r.Err != nil || r.Payment != shard.PaymentRefunded || r.Order.State != reservation.OrderPaid {
					t.Fatalf("%+v", r)
				}
			}
			if s := b.stock(phone); s.Available != want || s.Confirmed != 1-want {
				t.Errorf("stock %+v", s)
			}
			if e := b.effects()["restock-r1"]; (e != nil) != (want == 1) || e.GetStockDelta() != want {
				t.Errorf("effect %v", e)
			}
			b.invariants()
		})
	}
}

// TestCancel gives the unit back at once, and once.
func TestCancel(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	o := b.order("u")
	if r := b.step(shard.Step{Kind: shard.StepCancel, Order: o, User: "other"}); !errors.Is(r.Err, shard.ErrNotFound) {
		t.Fatal(r.Err)
	}
	for range 2 {
		if r := b.step(shard.Step{Kind: shard.StepCancel, Order: o, User: "u"}); r.Err != nil || r.Order.State != reservation.OrderClosed || r.Order.Reason != reservation.Cancelled {
			t.Fatalf("%+v", r)
		}
	}
	if s := b.stock(phone); s.Available != 1 || s.Released != 1 {
		t.Errorf("stock %+v", s)
	}
	if d := b.apply(b.message("u", func(m *shard.Message) { m.Request = "again" })); d[0].Reason != reservation.OrderWasClosed {
		t.Errorf("one order per user for ever: %+v", d[0])
	}
	b.invariants()
}

// TestTimeZoneOfTheDatabase is K66.
func TestTimeZoneOfTheDatabase(t *testing.T) {
	b := newBench(t)
	b.exec(b.admin, "ALTER DATABASE "+b.db.Name+" SET timezone = 'Asia/Shanghai'")
	store, _ := b.open(shard.Config{}, nil)
	store.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	b.store = store
	b.sell(1, func(r *cellquotav1.CampaignRules) { r.Spec.ReservationTtl = durationpb.New(time.Second) })
	b.must(b.store.Heartbeat(b.ctx))
	b.order("u")
	if closed, _ := b.closeDue(shard.CloseWaits{}); len(closed) != 0 {
		t.Fatal("closed at once")
	}
	testkit.Eventually(t, 5*time.Second, func() error {
		if closed, _ := b.closeDue(shard.CloseWaits{}); len(closed) != 1 {
			return errors.New("not closed")
		}
		return nil
	})
	if n := one[int](b, "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'cellquota' AND data_type = 'timestamp without time zone' AND table_name NOT LIKE 'goose%'"); n != 0 {
		t.Errorf("%d columns without time zone", n)
	}
}

// TestNoTransactionStaysOpen is K81: a thousand refused calls leave no transaction open.
func TestNoTransactionStaysOpen(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	o := b.order("u")
	for i := range 500 {
		b.step(shard.Step{Kind: shard.StepCancel, Order: o, User: "thief"})
		batch := b.batch(b.message(fmt.Sprint("x", i)))
		batch.From.Next += 7
		batch.Messages[0].Offset, batch.To = 1000, 1001
		_, _ = b.store.ApplyOrders(b.ctx, batch)
	}
	if n := one[int](b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"); n != 0 {
		t.Errorf("%d transactions stayed open", n)
	}
}
