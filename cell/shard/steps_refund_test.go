package shard_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func restocks(r *cellquotav1.CampaignRules) {
	r.Spec.RefundRule = cellquotav1.RefundRule_REFUND_RULE_RESTOCK
}

func cancelled(r *cellquotav1.CampaignRules) {
	r.Version, r.State, r.Cancelled = 2, cellquotav1.CampaignState_CAMPAIGN_STATE_CLOSED, true
}

// paid makes a paid order.
func (b *bench) paid(user string) ids.OrderID {
	b.t.Helper()
	o := b.order(user)
	if r := b.step(shard.Step{Kind: shard.StepSucceeded, Order: o, Payment: "p", Amount: price, FromChannel: true}); r.Order.State != reservation.OrderPaid {
		b.t.Fatalf("pay: %+v", r)
	}
	return o
}

func wantRefund(o ids.OrderID, id string) shard.Step {
	return shard.Step{Kind: shard.StepRefund, Order: o, RefundID: id, Ask: shard.Asked{Cause: shard.RefundRequested, Actor: "sre", Reason: "asked"}}
}

func (b *bench) refundRow(id string) (state string, restocked, part bool) {
	b.t.Helper()
	b.must(b.admin.QueryRow(b.ctx, "SELECT state, restocked, part FROM cellquota.refunds WHERE refund_id = $1", id).Scan(&state, &restocked, &part))
	return state, restocked, part
}

func (b *bench) counter(name string) float64 {
	b.t.Helper()
	families, err := b.reg.Gather()
	b.must(err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// TestRefund: wanted, asked for, ended; every repeat is the same; the unit returns only by RESTOCK.
func TestRefund(t *testing.T) {
	for name, restock := range map[string]bool{"RESTOCK": true, "NO_RESTOCK": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if restock {
				b.sell(3, restocks)
			} else {
				b.sell(3)
			}
			o := b.paid("u")
			check := wantRefund(o, "rf-1")
			check.Ask.CheckOnly = true
			if r := b.step(check); r.Err != nil || r.Payment != shard.PaymentSucceeded || r.RefundOf != "p" || b.counter("cellquota_refunds_total") != 0 {
				t.Fatalf("check: %+v", r)
			}
			for i := range 3 {
				r := b.step(wantRefund(o, "rf-1"))
				if r.Err != nil || r.Payment != shard.PaymentRefundPending || r.RefundID != "rf-1" || r.RefundOf != "p" || r.Order.State != reservation.OrderPaid || (r.Refund != "") != (i == 0) {
					t.Fatalf("refund %d: %+v", i, r)
				}
			}
			if r := b.step(wantRefund(o, "rf-2")); !errors.Is(r.Err, shard.ErrRefundUnderWay) {
				t.Fatalf("another id: %v", r.Err)
			}
			if r := b.step(wantRefund(b.paid("other"), "rf-1")); !errors.Is(r.Err, shard.ErrRefundIDUsed) {
				t.Fatalf("another order's id: %v", r.Err)
			}
			if b.counter("cellquota_refunds_total") != 1 {
				t.Errorf("refunds_total %v", b.counter("cellquota_refunds_total"))
			}
			due, err := b.store.ClaimRefunds(b.ctx, 10, shard.RefundPace{First: time.Hour, Longest: time.Hour})
			b.must(err)
			if len(due) != 1 || due[0].ID != "rf-1" || due[0].Amount != price || due[0].Asks != 1 || due[0].Order != o {
				t.Fatalf("due %+v", due)
			}
			if again, err := b.store.ClaimRefunds(b.ctx, 10, shard.RefundPace{First: time.Hour, Longest: time.Hour}); err != nil || len(again) != 0 {
				t.Fatalf("claimed twice: %+v, %v", again, err)
			}
			for range 3 {
				if r := b.step(shard.Step{Kind: shard.StepRefunded, Order: o, Payment: "p", RefundID: "rf-1"}); r.Err != nil || r.Payment != shard.PaymentRefunded {
					t.Fatalf("refunded: %+v", r)
				}
			}
			if state, did, part := b.refundRow("rf-1"); state != "REFUNDED" || did != restock || part {
				t.Errorf("row %s, restocked %v, part %v", state, did, part)
			}
			s, want := b.stock(phone), int32(1)
			if restock {
				want = 2
			}
			if s.Available != want || s.Confirmed != 3-want {
				t.Errorf("stock %+v", s)
			}
			if n := one[int](b, "SELECT count(*) FROM cellquota.ledger WHERE action = 'RESTOCK' AND business_no = 'rf-1'"); (n == 1) != restock {
				t.Errorf("%d RESTOCK entries", n)
			}
			if e := b.effects()["restock-rf-1"]; restock != (e.GetStockDelta() == 1 && e.GetStockVersion() == s.Version) {
				t.Errorf("effect %v, stock %+v", e, s)
			}
			// What was told before is told again (contract 3), however far the refund has come.
			if r := b.step(shard.Step{Kind: shard.StepSucceeded, Order: o, Payment: "p", Amount: price, FromChannel: true}); r.Payment != shard.PaymentSucceeded || r.Refund != "" {
				t.Errorf("late repeat of the success: %+v", r)
			}
			if r := b.step(wantRefund(o, "rf-3")); !errors.Is(r.Err, shard.ErrRefunded) {
				t.Errorf("refund again: %v", r.Err)
			}
			raw := one[[]byte](b, "SELECT payload FROM cellquota.outbox WHERE event_type = 'refund-completed'")
			done := &eventsv1.RefundCompleted{}
			b.must(proto.Unmarshal(raw, done))
			if done.GetRefundId() != "rf-1" || done.GetRestocked() != restock || done.GetAmount().GetAmount() != "4999.00" || done.GetCause() != "REQUESTED" {
				t.Errorf("event %v", done)
			}
			b.invariants()
		})
	}
}

// TestNothingToRefund: unpaid, closed and unknown orders are refused by name and change nothing.
func TestNothingToRefund(t *testing.T) {
	b := newBench(t)
	b.sell(3)
	o := b.order("u")
	if r := b.step(wantRefund(o, "rf-1")); !errors.Is(r.Err, shard.ErrNeverPaid) {
		t.Errorf("unpaid: %v", r.Err)
	}
	b.step(shard.Step{Kind: shard.StepCancel, Order: o, User: "u"})
	if r := b.step(wantRefund(o, "rf-1")); !errors.Is(r.Err, shard.ErrNeverPaid) {
		t.Errorf("closed: %v", r.Err)
	}
	if r := b.step(wantRefund("cell-1.oaaaaaaaaaaaaaaaaaaaaaaaaaa", "rf-1")); !errors.Is(r.Err, shard.ErrNotFound) {
		t.Errorf("unknown: %v", r.Err)
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.refunds"); n != 0 {
		t.Errorf("%d refunds", n)
	}
}

// TestLateMoneyGoesBackOnItsOwn: paid after close (K25) and a second payment have one refund each,
// whose row the loop finds; asking for it answers with it, and its end restocks nothing.
func TestLateMoneyGoesBackOnItsOwn(t *testing.T) {
	b := newBench(t)
	b.sell(2, restocks)
	o := b.order("u")
	b.step(shard.Step{Kind: shard.StepCancel, Order: o, User: "u"})
	late := shard.Step{Kind: shard.StepSucceeded, Order: o, Payment: "late", Amount: price, FromChannel: true}
	b.step(late)
	twice := b.paid("w")
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: twice, Payment: "second", Amount: price, FromChannel: true})
	if b.counter("cellquota_refunds_total") != 2 || b.counter("cellquota_payment_close_conflicts_total") != 1 {
		t.Errorf("refunds_total %v, conflicts %v", b.counter("cellquota_refunds_total"), b.counter("cellquota_payment_close_conflicts_total"))
	}
	due, err := b.store.ClaimRefunds(b.ctx, 10, shard.RefundPace{First: time.Second, Longest: time.Minute})
	b.must(err)
	if len(due) != 2 {
		t.Fatalf("due %+v", due)
	}
	r := b.step(wantRefund(o, "rf-mine"))
	if r.Err != nil || r.Refund != "" || r.Payment != shard.PaymentPaidAfterClose || r.RefundOf != "late" || r.RefundID == "rf-mine" {
		t.Fatalf("asked for: %+v", r)
	}
	before := b.stock(phone)
	for _, f := range due {
		if res := b.step(shard.Step{Kind: shard.StepRefunded, Order: f.Order, Payment: f.Payment, RefundID: f.ID}); res.Payment != shard.PaymentRefunded {
			t.Fatalf("%+v", res)
		}
	}
	if after := b.stock(phone); after.Version != before.Version || after.Available != before.Available {
		t.Errorf("stock moved: %+v, %+v", before, after)
	}
	// K25: 200 each, the same each time.
	if res := b.step(late); res.Payment != shard.PaymentPaidAfterClose || res.Refund != "" || res.Order.State != reservation.OrderClosed {
		t.Errorf("late again: %+v", res)
	}
	// The order that was paid twice is still paid, and can be refunded in its own right.
	if res := b.step(wantRefund(twice, "rf-2")); res.Err != nil || res.RefundOf != "p" {
		t.Errorf("%+v", res)
	}
	b.invariants()
}

// TestARefundLeftOpenByAnOlderProgramEnds: such a program takes the channel's word, makes the payment
// REFUNDED and knows no row. The loop's next answer, or the channel's next word, ends the row, and the
// unit returns once, unless it has returned or the money was late.
func TestARefundLeftOpenByAnOlderProgramEnds(t *testing.T) {
	b := newBench(t)
	b.sell(4, restocks)
	older := func(refund string) {
		b.exec(b.admin, "UPDATE cellquota.payments SET state = 'REFUNDED' WHERE refund_id = $1", refund)
	}
	asked := b.paid("asked")
	b.step(wantRefund(asked, "rf-1"))
	older("rf-1")
	for range 2 {
		if r := b.step(shard.Step{Kind: shard.StepRefunded, Order: asked, Payment: "p", RefundID: "rf-1"}); r.Err != nil || r.Payment != shard.PaymentRefunded {
			t.Fatalf("ended: %+v", r)
		}
		if state, did, _ := b.refundRow("rf-1"); state != "REFUNDED" || !did {
			t.Fatalf("row %s, restocked %v", state, did)
		}
		if s := b.stock(phone); s.Available != 4 || s.Confirmed != 0 {
			t.Fatalf("stock %+v", s)
		}
	}
	// Its unit has returned already: the row ends, the stock stays.
	done := b.paid("done")
	b.step(shard.Step{Kind: shard.StepRefunded, Order: done, Payment: "p", Amount: price, FromChannel: true, RefundID: "rf-2"})
	b.exec(b.admin, "UPDATE cellquota.refunds SET state = 'PENDING', restocked = false, refunded_at = NULL, next_ask_at = cellquota.now(), cause = 'REQUESTED' WHERE refund_id = 'rf-2'")
	if r := b.step(shard.Step{Kind: shard.StepRefunded, Order: done, Payment: "p", Amount: price, FromChannel: true, RefundID: "rf-2"}); r.Err != nil {
		t.Fatalf("ended: %+v", r)
	}
	// Money that came late never returns a unit.
	late := b.paid("late")
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: late, Payment: "second", Amount: price, FromChannel: true})
	second := one[string](b, "SELECT refund_id FROM cellquota.refunds WHERE payment_id = 'second'")
	older(second)
	if r := b.step(shard.Step{Kind: shard.StepRefunded, Order: late, Payment: "second", RefundID: second}); r.Err != nil {
		t.Fatalf("ended: %+v", r)
	}
	if s := b.stock(phone); s.Available != 3 || s.Confirmed != 1 {
		t.Errorf("stock %+v", s)
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.refunds WHERE state = 'PENDING'"); n != 0 {
		t.Errorf("%d refunds are open for ever", n)
	}
	b.invariants()
}

// TestPartsNeverRestock: parts are recorded under the channel's ids, once; the rest is what a refund
// gives back, and neither returns a unit. More than there is, is a mismatch.
func TestPartsNeverRestock(t *testing.T) {
	b := newBench(t)
	b.sell(1, restocks)
	o := b.paid("u")
	part, _ := reservation.ParseMoney("999.00", "CNY")
	rest, _ := reservation.ParseMoney("4000.00", "CNY")
	told := shard.Step{Kind: shard.StepRefunded, Order: o, Payment: "p", Amount: part, FromChannel: true, RefundID: "theirs-1"}
	for range 2 {
		if r := b.step(told); r.Err != nil || r.Payment != shard.PaymentSucceeded {
			t.Fatalf("part: %+v", r)
		}
	}
	more := told
	more.Amount, more.RefundID = price, "theirs-2"
	if r := b.step(more); !errors.Is(r.Err, shard.ErrPaymentMismatch) {
		t.Fatalf("more than is left: %+v", r)
	}
	nameless := told
	nameless.RefundID = ""
	if r := b.step(nameless); !errors.Is(r.Err, shard.ErrPaymentMismatch) {
		t.Fatalf("a part without an id: %+v", r)
	}
	b.step(wantRefund(o, "rf-1"))
	due, err := b.store.ClaimRefunds(b.ctx, 10, shard.RefundPace{First: time.Second, Longest: time.Second})
	b.must(err)
	if len(due) != 1 || due[0].Amount != rest {
		t.Fatalf("due %+v", due)
	}
	if r := b.step(shard.Step{Kind: shard.StepRefunded, Order: o, Payment: "p", Amount: rest, FromChannel: true, RefundID: "rf-1"}); r.Payment != shard.PaymentRefunded {
		t.Fatalf("the rest: %+v", r)
	}
	if _, did, isPart := b.refundRow("rf-1"); did || !isPart {
		t.Error("a part restocked")
	}
	if s := b.stock(phone); s.Confirmed != 1 || s.Available != 0 {
		t.Errorf("stock %+v", s)
	}
	b.invariants()
}

// TestTheChannelRefundsUnasked: a full refund that nobody here asked for follows the rule too.
func TestTheChannelRefundsUnasked(t *testing.T) {
	b := newBench(t)
	b.sell(1, restocks)
	o := b.paid("u")
	told := shard.Step{Kind: shard.StepRefunded, Order: o, Payment: "p", Amount: price, FromChannel: true, RefundID: "theirs"}
	for range 2 {
		if r := b.step(told); r.Err != nil || r.Payment != shard.PaymentRefunded {
			t.Fatalf("%+v", r)
		}
	}
	if s := b.stock(phone); s.Available != 1 || s.Confirmed != 0 {
		t.Errorf("stock %+v", s)
	}
	if state, did, _ := b.refundRow("theirs"); state != "REFUNDED" || !did {
		t.Errorf("%s, restocked %v", state, did)
	}
	b.invariants()
}

// TestCancelledCampaign: nothing gets an order or an attempt any more; unpaid orders close whatever
// their time, those with an open attempt after the channel was asked; refunds return no unit.
func TestCancelledCampaign(t *testing.T) {
	b := newBench(t)
	b.ownClock()
	b.sell(10, restocks, longWindow)
	b.must(b.store.Heartbeat(b.ctx))
	unpaid, trying, bought := b.order("unpaid"), b.order("trying"), b.paid("bought")
	if r := b.step(shard.Step{Kind: shard.StepStart, Order: trying, User: "trying", Payment: "a"}); r.Err != nil {
		t.Fatal(r.Err)
	}
	waits, list := shard.CloseWaits{Attempt: grace}, []ids.CampaignID{campaign}
	r := rules(phone)
	restocks(r)
	longWindow(r)
	cancelled(r)
	b.install(r)
	if d := b.apply(b.message("late")); d[0].Outcome != shard.Rejected || d[0].Reason != reservation.WindowClosed {
		t.Fatalf("admitted before, consumed after: %+v", d[0])
	}
	if res := b.step(shard.Step{Kind: shard.StepStart, Order: unpaid, User: "unpaid", Payment: "a"}); !errors.Is(res.Err, reservation.ErrOrderClosed) {
		t.Fatalf("an attempt on a cancelled campaign: %v", res.Err)
	}
	closed, open, err := b.store.CloseCancelled(b.ctx, list, 10, waits)
	b.must(err)
	if len(closed) != 1 || !closed[0].Closed || closed[0].Order.ID != unpaid || closed[0].Order.Reason != reservation.Cancelled || len(open) != 0 {
		t.Fatalf("closed %+v, open %+v", closed, open)
	}
	// The attempt began just now; a second later the channel is asked, and its doubt gives it another.
	for range 2 {
		b.advance(time.Second)
		if closed, open, err = b.store.CloseCancelled(b.ctx, list, 10, waits); err != nil || len(closed) != 0 || len(open) != 1 || open[0].PastGrace {
			t.Fatalf("closed %+v, open %+v, %v", closed, open, err)
		}
		b.step(shard.Step{Kind: shard.StepPending, Order: trying, Payment: "a"})
		if _, open, err = b.store.CloseCancelled(b.ctx, list, 10, waits); err != nil || len(open) != 0 {
			t.Fatalf("asked again at once: %+v, %v", open, err)
		}
	}
	b.step(shard.Step{Kind: shard.StepFailed, Order: trying, Payment: "a"})
	if closed, _, err = b.store.CloseCancelled(b.ctx, list, 10, waits); err != nil || len(closed) != 1 || closed[0].Order.ID != trying {
		t.Fatalf("closed %+v, %v", closed, err)
	}
	page, err := b.store.PaidOrders(b.ctx, campaign, shard.PaidOrder{}, 10)
	b.must(err)
	if len(page) != 1 || page[0].ID != bought {
		t.Fatalf("paid %+v", page)
	}
	if page, err = b.store.PaidOrders(b.ctx, campaign, page[0], 10); err != nil || len(page) != 0 {
		t.Fatalf("behind the last: %+v, %v", page, err)
	}
	before := b.stock(phone)
	b.step(wantRefund(bought, "cancel-"+string(bought)))
	b.step(shard.Step{Kind: shard.StepRefunded, Order: bought, Payment: "p", RefundID: "cancel-" + string(bought)})
	if s := b.stock(phone); s.Version != before.Version || s.Confirmed != 1 {
		t.Errorf("a cancelled campaign restocked: %+v", s)
	}
	b.invariants()
}

// TestAdopt: money that an older program left to be refunded, without a row, is found once.
func TestAdopt(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	o := b.order("u")
	b.step(shard.Step{Kind: shard.StepCancel, Order: o, User: "u"})
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: o, Payment: "late", Amount: price, FromChannel: true})
	id := one[string](b, "DELETE FROM cellquota.refunds RETURNING refund_id")
	for i, want := range []int64{1, 0} {
		if n, err := b.store.AdoptRefunds(b.ctx, 10); err != nil || n != want {
			t.Fatalf("look %d: %d, %v", i, n, err)
		}
	}
	due, err := b.store.ClaimRefunds(b.ctx, 10, shard.RefundPace{First: time.Second, Longest: time.Second})
	b.must(err)
	if len(due) != 1 || due[0].ID != id || due[0].Payment != "late" {
		t.Errorf("due %+v", due)
	}
	if n, oldest, err := b.store.RefundBacklog(b.ctx); err != nil || n != 1 || oldest < 0 {
		t.Errorf("backlog %d, %s, %v", n, oldest, err)
	}
}

// TestOneRefundIDInOneTransaction: the second order of a batch that brings it hears that it is used, and
// nobody else hears anything; so it is for one that is used by an order of the same batch.
func TestOneRefundIDInOneTransaction(t *testing.T) {
	b := newBench(t)
	b.sell(4)
	first, second, third, fourth := b.paid("u1"), b.paid("u2"), b.paid("u3"), b.order("u4")
	pay := shard.Step{Kind: shard.StepSucceeded, Order: fourth, Payment: "p", Amount: price, FromChannel: true}
	res, err := b.store.StepOrders(b.ctx, grace, []shard.Step{wantRefund(first, "rf-1"), wantRefund(second, "rf-1"), pay})
	b.must(err)
	if res[0].Err != nil || res[0].Payment != shard.PaymentRefundPending || res[2].Err != nil || res[2].Payment != shard.PaymentSucceeded {
		t.Errorf("refund %+v, payment %+v", res[0], res[2])
	}
	if !errors.Is(res[1].Err, shard.ErrRefundIDUsed) {
		t.Errorf("the same id in one batch: %+v", res[1])
	}
	ended := shard.Step{Kind: shard.StepRefunded, Order: third, Payment: "p", Amount: price, RefundID: "rf-1", FromChannel: true}
	res, err = b.store.StepOrders(b.ctx, grace, []shard.Step{ended, wantRefund(second, "rf-1"), wantRefund(first, "rf-1")})
	b.must(err)
	if !errors.Is(res[0].Err, shard.ErrPaymentMismatch) || !errors.Is(res[1].Err, shard.ErrRefundIDUsed) || res[2].Err != nil {
		t.Errorf("the id of an order of the batch: %+v", res)
	}
	b.invariants()
}

// TestAPartUnderAnOpenRefund: what the channel sends back in parts is no longer asked for; once nothing is
// left the payment is REFUNDED. A part under the refund's own id ends it as that part, and the rest is
// wanted under another one. Neither returns the unit.
func TestAPartUnderAnOpenRefund(t *testing.T) {
	part, _ := reservation.ParseMoney("999.00", "CNY")
	rest, _ := reservation.ParseMoney("4000.00", "CNY")
	due := func(b *bench) []shard.DueRefund {
		b.t.Helper()
		out, err := b.store.ClaimRefunds(b.ctx, 10, shard.RefundPace{First: time.Millisecond, Longest: time.Millisecond})
		b.must(err)
		return out
	}
	for name, ids := range map[string][2]string{
		"the channel's ids": {"theirs-1", "theirs-2"}, "its id, then ours": {"theirs-1", "rf-1"}, "our id, then its": {"rf-1", "theirs-2"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.sell(1, restocks)
			o := b.paid("u")
			b.step(wantRefund(o, "rf-1"))
			told := shard.Step{Kind: shard.StepRefunded, Order: o, Payment: "p", Amount: part, FromChannel: true, RefundID: ids[0]}
			for range 2 {
				if r := b.step(told); r.Err != nil || r.Payment != shard.PaymentRefundPending {
					t.Fatalf("part: %+v", r)
				}
			}
			if d := due(b); len(d) != 1 || d[0].Amount != rest || (d[0].ID == "rf-1") == (ids[0] == "rf-1") {
				t.Fatalf("asked for after the part: %+v", d)
			}
			told.Amount, told.RefundID = rest, ids[1]
			for range 2 {
				if r := b.step(told); r.Err != nil || r.Payment != shard.PaymentRefunded {
					t.Fatalf("the rest: %+v", r)
				}
			}
			if n := one[int](b, "SELECT count(*) FROM cellquota.refunds WHERE state = 'PENDING'"); n != 0 {
				t.Errorf("%d refunds are open", n)
			}
			if sum := one[string](b, "SELECT sum(amount)::text FROM cellquota.refunds"); sum != "4999.0000" {
				t.Errorf("%s went back", sum)
			}
			if s := b.stock(phone); s.Confirmed != 1 || s.Available != 0 {
				t.Errorf("parts restocked: %+v", s)
			}
			b.invariants()
		})
	}
}

// TestAdoptKeepsTheCause: why money goes back is read from what happened, not from the order's state alone.
func TestAdoptKeepsTheCause(t *testing.T) {
	b := newBench(t)
	b.sell(4)
	asked, swept, twice, late := b.paid("asked"), b.paid("swept"), b.paid("twice"), b.order("late")
	b.step(wantRefund(asked, "rf-1"))
	sweep := wantRefund(swept, "cancel-"+string(swept))
	sweep.Ask.Cause = shard.RefundCancelled
	b.step(sweep)
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: twice, Payment: "second", Amount: price, FromChannel: true})
	b.step(shard.Step{Kind: shard.StepCancel, Order: late, User: "late"})
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: late, Payment: "late", Amount: price, FromChannel: true})
	b.exec(b.admin, "DELETE FROM cellquota.refunds")
	if n, err := b.store.AdoptRefunds(b.ctx, 10); err != nil || n != 4 {
		t.Fatalf("adopted %d, %v", n, err)
	}
	for o, want := range map[ids.OrderID]string{
		asked: shard.RefundRequested, swept: shard.RefundCancelled, twice: shard.RefundDuplicate, late: shard.RefundAfterClose,
	} {
		if got := one[string](b, "SELECT cause FROM cellquota.refunds WHERE order_id = '"+string(o)+"'"); got != want {
			t.Errorf("adopted as %s, want %s", got, want)
		}
	}
}

// TestARefundAfterTheAccountMovesNoUnit: a campaign that restocks has settled; money that goes back then is
// recorded, and its unit stays where the account has it.
func TestARefundAfterTheAccountMovesNoUnit(t *testing.T) {
	b := newBench(t)
	b.sell(2, restocks)
	o := b.paid("u")
	settled := rules(phone)
	restocks(settled)
	settled.Version, settled.State = 9, cellquotav1.CampaignState_CAMPAIGN_STATE_SETTLED
	b.install(settled)
	b.step(wantRefund(o, "rf"))
	if r := b.step(shard.Step{Kind: shard.StepRefunded, Order: o, Payment: "p", RefundID: "rf"}); r.Err != nil || r.Payment != shard.PaymentRefunded {
		t.Fatalf("refunded: %+v", r)
	}
	if state, did, _ := b.refundRow("rf"); state != "REFUNDED" || did {
		t.Errorf("row %s, restocked %v", state, did)
	}
	if s := b.stock(phone); s.Available != 1 || s.Confirmed != 1 {
		t.Errorf("stock %+v", s)
	}
	b.invariants()
}
