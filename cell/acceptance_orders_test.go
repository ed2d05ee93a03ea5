package cell

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/client"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

var total = &pb.Money{Amount: "4999.00", Currency: "CNY"}

// buy makes an order for each of n users user-0 …; each pays and cancels as its test says.
func (p *process) buy(n int) (orders []string) {
	p.w.t.Helper()
	asks := make([]*pb.Ask, n)
	for i := range asks {
		asks[i] = p.w.ask(fmt.Sprint("user-", i), "r1")
	}
	for i, a := range p.exchange(asks...) {
		want(p.w.t, a, pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
		orders = append(orders, p.reaches(fmt.Sprint("user-", i), "r1", a.GetRequest().GetReceipt(), pending).GetOrderId())
	}
	return orders
}

// as is another caller's connection to the process.
func (p *process) as(workload string) *client.Client {
	p.w.t.Helper()
	c, err := client.Dial(p.listener.Addr().String(), transport.DialOptions{Dev: true, Workload: workload, DefaultTimeout: 10 * time.Second})
	p.w.must(err)
	p.w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// succeeded is the channel's word that an order's payment succeeded.
func (p *process) succeeded(order, payment string) (*pb.ApplyPaymentCallbackResponse, error) {
	return p.client.Orders.ApplyPaymentCallback(p.w.ctx, &pb.ApplyPaymentCallbackRequest{
		OrderId: order, PaymentId: payment, Amount: total, Status: pb.CallbackStatus_CALLBACK_STATUS_SUCCEEDED,
	})
}

func (p *process) cancelled(order string, i int) error {
	_, err := p.client.Orders.CancelOrder(p.w.ctx, &pb.CancelOrderRequest{OrderId: order, UserId: fmt.Sprint("user-", i)})
	return err
}

// TestC06ATokenHasOneReservation is C-06 in TOKEN mode: 400 users are after 150 units, over two
// processes; who is late to pay or cancels lets the row go, and another one gets it. No row ever has two
// reservations, and at the end each unit's row says where it is.
func TestC06ATokenHasOneReservation(t *testing.T) {
	const units, users = 150, 400
	w := newWorld(t)
	p, q := w.sellTwo(units, wide, tokens)
	over := lines(t, edgeStreams, p, q)
	var orders atomic.Int64
	for round := range 3 { // a third of who bought goes away again, and the next crowd comes
		asks := w.crowdOf(users, func(i int) (string, string) { return fmt.Sprintf("user-%d-%d", round, i), "r1" })
		for _, a := range w.storm(over, asks, never) {
			if o := a.GetOutcome(); o != pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED && o != pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT {
				t.Fatalf("told %v", a)
			}
		}
		p.settled()
		w.accepted()
		rows, err := w.admin.Query(w.ctx, "SELECT order_id, user_id FROM cellquota.v_orders WHERE state = 'PENDING_PAYMENT' ORDER BY order_id")
		w.must(err)
		var list [][2]string
		for rows.Next() {
			var one [2]string
			w.must(rows.Scan(&one[0], &one[1]))
			list = append(list, one)
		}
		w.must(rows.Err())
		orders.Store(int64(len(list)))
		atOnce(len(list), func(i int) {
			var err error
			switch i % 3 {
			case 0:
				_, err = p.client.Orders.CancelOrder(w.ctx, &pb.CancelOrderRequest{OrderId: list[i][0], UserId: list[i][1]})
			case 1:
				_, err = q.succeeded(list[i][0], "pay-1")
			}
			if err != nil {
				t.Errorf("order %s: %v", list[i][0], err)
			}
		})
		p.settled()
		w.accepted()
	}
	for state, sql := range map[string]string{
		"FREE": "available", "BOUND": "reserved", "SOLD": "confirmed",
	} {
		if rows, stock := w.count("SELECT count(*) FROM cellquota.v_tokens WHERE state = $1", state), w.count("SELECT "+sql+" FROM cellquota.v_stock WHERE sku_id = $1", phone); rows != stock {
			t.Errorf("%d rows are %s, the stock row has %d %s", rows, state, stock, sql)
		}
	}
	if n := w.count("SELECT count(*) FROM cellquota.v_tokens WHERE state = 'SOLD' GROUP BY state"); n == 0 || orders.Load() == 0 {
		t.Error("nothing was sold")
	}
}

// TestC08HundredCompensations is C-08 and R-273: a hundred callers of two processes cancel one order at
// once, and a hundred deliveries of its give-back reach Redis at once: the shard has its unit back once, and so
// has the mirror. A later delivery, out of the outbox, changes nothing either, and nothing goes back.
func TestC08HundredCompensations(t *testing.T) {
	const times, units = 100, 5
	w := newWorld(t)
	p, q := w.sellTwo(units, nil)
	order := p.buy(1)[0]
	p.settled()
	w.accepted()
	var done, mine atomic.Int64
	atOnce(times, func(i int) {
		one := []*process{p, q}[i%2]
		if err := one.cancelled(order, 0); err == nil {
			done.Add(1)
		} else if rpcstatus.Reason(err) == "ORDER_CLOSED" {
			mine.Add(1)
		} else {
			t.Errorf("cancelling: %v", err)
		}
	})
	p.settled()
	if n := w.count("SELECT count(*) FROM cellquota.v_ledger WHERE action = 'RELEASE'"); n != 1 || done.Load() == 0 {
		t.Errorf("%d releases; %d were told that it is cancelled, %d that it was closed", n, done.Load(), mine.Load())
	}
	var payload []byte
	w.must(w.admin.QueryRow(w.ctx, "SELECT payload FROM cellquota.outbox WHERE target = 'MIRROR' AND event_type = 'release'").Scan(&payload))
	release := &eventsv1.MirrorEffect{}
	w.must(proto.Unmarshal(payload, release))
	scope := admission.Scope{Campaign: campaign, SKU: phone}
	build, ok := p.parts.mirror.Expected(scope)
	if !ok {
		t.Fatal("the process expects no mirror")
	}
	atOnce(times, func(i int) {
		one := []*process{p, q}[i%2]
		if got := one.parts.mirror.ApplyEffects(w.ctx, []admission.Effect{{Scope: scope, Build: build, Effect: release}})[0]; got.Err != nil || !got.Change.Done() {
			t.Errorf("delivery: %s %v", got.Change, got.Err)
		}
	})
	w.exec("UPDATE cellquota.outbox SET state = 'PENDING', claimed_by = '', claimed_until = NULL, published_at = NULL") // all of the order's life again
	p.settled()
	m, err := p.client.Facts.GetMirror(w.ctx, &pb.GetMirrorRequest{CampaignId: campaign, SkuId: phone})
	w.must(err)
	if available := w.count("SELECT available FROM cellquota.v_stock WHERE sku_id = $1", phone); m.GetStock() != units || available != units {
		t.Errorf("mirror %d, shard %d, want %d", m.GetStock(), available, units)
	}
	p.reaches("user-0", "r1", "", closed)
	want(t, p.exchange(w.ask("user-0", "r2"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ORDER_CLOSED) // by the mirror: it did not go back
	w.accepted()
}

// TestC09PaidStaysPaid is C-09: everything that closes orders is after forty paid ones at once:
// their owners, failed callbacks, the closer with their time long over, and the whole log once more.
func TestC09PaidStaysPaid(t *testing.T) {
	const n = 40
	w := newWorld(t)
	p, q := w.sellTwo(n, nil)
	orders := p.buy(n)
	for _, o := range orders {
		_, err := p.succeeded(o, "pay-1")
		w.must(err)
	}
	w.exec("UPDATE cellquota.orders SET expires_at = created_at, close_after = created_at")
	atOnce(4*n, func(i int) {
		one, order := []*process{p, q}[i%2], orders[i%n]
		switch i / n {
		case 0, 1:
			if err := one.cancelled(order, i%n); rpcstatus.Reason(err) != "ORDER_PAID" {
				t.Errorf("cancelling a paid order: %v", err)
			}
		case 2:
			out, err := one.client.Orders.ApplyPaymentCallback(w.ctx, &pb.ApplyPaymentCallbackRequest{
				OrderId: order, PaymentId: "pay-1", Amount: total, Status: pb.CallbackStatus_CALLBACK_STATUS_FAILED,
			})
			if err == nil && out.GetOrderState() != pb.OrderState_ORDER_STATE_PAID {
				t.Errorf("after a late failure: %v", out)
			}
		case 3:
			if _, err := one.client.Orders.StartPayment(w.ctx, &pb.StartPaymentRequest{OrderId: order, UserId: fmt.Sprint("user-", i%n), PaymentId: "pay-2"}); err == nil {
				t.Errorf("a payment of a paid order began")
			}
		}
	})
	q.end()
	p.end()
	w.rewind()
	p = w.start().ready()
	p.settled()
	if paid, released := w.count("SELECT count(*) FROM cellquota.v_orders WHERE state = 'PAID'"), w.count("SELECT count(*) FROM cellquota.v_ledger WHERE action = 'RELEASE'"); paid != n || released != 0 {
		t.Errorf("%d of %d are PAID, %d were released", paid, n, released)
	}
	w.accepted()
}

// TestC10PayAndCancelTogether is C-10, R-271 and fault 4: 200 orders are paid and cancelled at
// the same moment, through different processes. Each is PAID, or CLOSED with its money on the way back exactly
// once, however often the channel repeats itself; nothing is both.
func TestC10PayAndCancelTogether(t *testing.T) {
	const n = 200
	w := newWorld(t)
	p, q := w.sellTwo(n, nil)
	orders := p.buy(n)
	var late, refusedCancel atomic.Int64
	atOnce(2*n, func(i int) {
		order, mine := orders[i/2], i/2
		one := []*process{p, q}[(i+mine)%2] // each process has calls of both kinds in its batches
		if i%2 == 0 {
			if err := one.cancelled(order, mine); rpcstatus.Reason(err) == "ORDER_PAID" {
				refusedCancel.Add(1)
			} else if err != nil {
				t.Errorf("cancelling order %d: %v", mine, err)
			}
			return
		}
		out, err := one.succeeded(order, "pay-1")
		if err != nil {
			t.Errorf("callback %d: %v", mine, err)
		} else if out.GetPaymentState() == pb.PaymentState_PAYMENT_STATE_PAID_AFTER_CLOSE {
			late.Add(1)
		}
	})
	for _, o := range orders { // the channel repeats itself
		for range 2 {
			_, err := q.succeeded(o, "pay-1")
			w.must(err)
		}
	}
	p.settled()
	paid, closed := w.count("SELECT count(*) FROM cellquota.v_orders WHERE state = 'PAID'"), w.count("SELECT count(*) FROM cellquota.v_orders WHERE state = 'CLOSED'")
	t.Logf("%d paid, %d closed", paid, closed)
	if paid+closed != n || paid != refusedCancel.Load() || closed != late.Load() {
		t.Errorf("%d paid (%d cancels were told so), %d closed (%d payments were told so)", paid, refusedCancel.Load(), closed, late.Load())
	}
	if confirms, releases := w.count("SELECT count(*) FROM cellquota.v_ledger WHERE action = 'CONFIRM'"), w.count("SELECT count(*) FROM cellquota.v_ledger WHERE action = 'RELEASE'"); confirms != paid || releases != closed {
		t.Errorf("%d CONFIRM of %d paid, %d RELEASE of %d closed", confirms, paid, releases, closed)
	}
	if refunds := w.count("SELECT count(*) FROM cellquota.v_outbox WHERE event_type = 'refund-requested'"); refunds != closed {
		t.Errorf("%d refunds were asked for, of %d late payments", refunds, closed)
	}
	w.accepted()
}

// TestC13NothingIsLeftOver is C-13: a campaign ends, with orders that were paid, cancelled, left alone
// and refunded, over two processes of which one dies. When all has come to rest every unit is sold or unsold,
// in the stock row, in the ledger and in the mirror alike.
func TestC13NothingIsLeftOver(t *testing.T) {
	const units, n = 80, 60
	w := newWorld(t)
	rules := func(r *pb.CampaignRules) { r.Spec.RefundRule = pb.RefundRule_REFUND_RULE_RESTOCK }
	p, q := w.sellTwo(units, []string{"--provider-refund-after=0s"}, rules)
	operator := p.as("controlplane/c1")
	orders := p.buy(n)
	atOnce(n, func(i int) {
		var err error
		switch i % 4 {
		case 0:
			_, err = q.succeeded(orders[i], "pay-1")
		case 1:
			err = p.cancelled(orders[i], i)
		case 2:
			if _, err = q.succeeded(orders[i], "pay-1"); err == nil {
				_, err = operator.Orders.RefundOrder(w.ctx, &pb.RefundOrderRequest{OrderId: orders[i], RefundId: fmt.Sprint("refund-", i), Reason: "test", Actor: "operator"})
			}
		}
		if err != nil {
			t.Errorf("order %d: %v", i, err)
		}
	})
	q.end()
	w.exec("UPDATE cellquota.orders SET expires_at = created_at, close_after = created_at WHERE state = 'PENDING_PAYMENT'")
	w.install(2, rules, func(r *pb.CampaignRules) { r.Spec.CloseAt = timestamppb.New(clock.System().Now()) })
	testkit.Eventually(t, 2*patience, func() error {
		if n := w.count("SELECT count(*) FROM cellquota.v_orders WHERE state = 'PENDING_PAYMENT'") + w.count("SELECT count(*) FROM cellquota.v_refunds WHERE state = 'PENDING'"); n != 0 {
			return fmt.Errorf("%d orders and refunds are open", n)
		}
		return nil
	})
	want(t, p.exchange(w.ask("late", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ENDED)
	p.settled()
	w.accepted()
	const sold = n / 4
	confirmed := w.count("SELECT confirmed FROM cellquota.v_stock WHERE sku_id = $1", phone)
	unsold := w.count("SELECT available FROM cellquota.v_stock WHERE sku_id = $1", phone)
	reserved := w.count("SELECT reserved FROM cellquota.v_stock WHERE sku_id = $1", phone)
	if deviation := units - confirmed - unsold; deviation != 0 || reserved != 0 || confirmed != sold {
		t.Errorf("%d units = %d confirmed + %d unsold + %d reserved: deviation %d; %d were paid and kept", units, confirmed, unsold, reserved, deviation, sold)
	}
	if granted := w.count("SELECT sum(delta_available + delta_reserved + delta_confirmed) FROM cellquota.v_ledger WHERE sku_id = $1", phone); granted != units {
		t.Errorf("the ledger has %d units of %d", granted, units)
	}
	if _, err := p.client.Orders.StartPayment(w.ctx, &pb.StartPaymentRequest{OrderId: orders[3], UserId: "user-3", PaymentId: "late"}); err == nil || errors.Is(err, rpcstatus.ErrUnavailable) {
		t.Errorf("paying what was closed: %v", err)
	}
}
