package cell

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	pending = pb.RequestState_REQUEST_STATE_PENDING_PAYMENT
	paid    = pb.RequestState_REQUEST_STATE_PAID
	closed  = pb.RequestState_REQUEST_STATE_CLOSED
)

// TestSale is the life of one request: accepted, ordered, paid; and what its repeats (with another body too:
// K63) and everybody else are told on the way; on each kind of Redis.
func TestSale(t *testing.T) {
	for _, kind := range redisKinds {
		t.Run(kind.name, func(t *testing.T) {
			w := newWorld(t)
			kind.start(t, w)
			sale(t, w, w.sell(2))
		})
	}
}

func sale(t *testing.T, w *world, p *process) {
	t.Helper()
	first := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	if first.GetState() != pb.RequestState_REQUEST_STATE_QUEUED || first.GetAck() != pb.Ack_ACK_KAFKA || first.GetReceipt() == "" || first.GetReservationId() == "" {
		t.Fatalf("accepted as %v", first)
	}
	order := p.reaches("alice", "r1", first.GetReceipt(), pending)
	if order.GetReservationId() != first.GetReservationId() || order.GetOrderId() == "" || order.GetExpiresAtMs() == 0 {
		t.Fatalf("ordered as %v", order)
	}

	replay := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED).GetRequest()
	if replay.GetReservationId() != first.GetReservationId() || replay.GetReceipt() == "" {
		t.Fatalf("replayed as %v", replay)
	}
	want(t, p.exchange(w.ask("alice", "r1", func(a *pb.Ask) { a.GetAdmit().Quantity = 2 }))[0], pb.AdmitOutcome_ADMIT_OUTCOME_IDEMPOTENCY_CONFLICT)
	other := want(t, p.exchange(w.ask("alice", "r2"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED)
	if other.GetRequest().GetRequestId() != "r1" {
		t.Fatalf("her own request is %v", other.GetRequest())
	}
	precheck := w.ask("alice", "")
	precheck.Kind = &pb.Ask_Precheck{Precheck: &pb.PrecheckAsk{}}
	want(t, p.exchange(precheck)[0], pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED)

	pay(t, w, p, "alice", order.GetOrderId())
	p.reaches("alice", "r1", "", paid)
	testkit.Eventually(t, patience, func() error { // the status is the shard's; the mirror follows by the outbox
		switch a := p.exchange(w.ask("alice", "r2"))[0]; a.GetOutcome() {
		case pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_PURCHASED:
			return nil
		case pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED:
			return fmt.Errorf("the mirror still says %v", a)
		default:
			t.Fatalf("after paying: %v", a)
			return nil
		}
	})

	_, err := p.client.Orders.GetOrder(w.ctx, &pb.GetOrderRequest{OrderId: order.GetOrderId(), UserId: "mallory"})
	if !errors.Is(err, rpcstatus.ErrNotFound) {
		t.Fatalf("another user's order: %v", err)
	}
	_, err = p.client.Admissions.GetRequest(w.ctx, &pb.GetRequestRequest{CampaignId: campaign, SkuId: phone, UserId: "mallory", RequestId: "r1"})
	if !errors.Is(err, rpcstatus.ErrNotFound) {
		t.Fatalf("another user's request: %v", err)
	}

	bob := want(t, p.exchange(w.ask("bob", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	want(t, p.exchange(w.ask("carol", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT)
	bobs := p.reaches("bob", "r1", bob.GetReceipt(), pending)
	cancelled, err := p.client.Orders.CancelOrder(w.ctx, &pb.CancelOrderRequest{OrderId: bobs.GetOrderId(), UserId: "bob"})
	w.must(err)
	if o := cancelled.GetOrder(); o.GetState() != pb.OrderState_ORDER_STATE_CLOSED || o.GetReason() != pb.Reason_REASON_CANCELLED {
		t.Fatalf("cancelled as %v", o)
	}
	p.reaches("bob", "r1", "", closed)
	_, err = p.client.Orders.StartPayment(w.ctx, &pb.StartPaymentRequest{OrderId: bobs.GetOrderId(), UserId: "bob", PaymentId: "late"})
	if rpcstatus.Reason(err) != "ORDER_CLOSED" {
		t.Fatalf("paying a closed order: %v", err)
	}
	p.stocked(1)
	want(t, p.exchange(w.ask("carol", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	want(t, p.exchange(w.ask("bob", "again"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ORDER_CLOSED)
	list, err := p.client.Admissions.ListRequests(w.ctx, &pb.ListRequestsRequest{CampaignId: campaign, UserId: "bob"})
	w.must(err)
	if len(list.GetRequests()) != 1 || list.GetRequests()[0].GetState() != closed {
		t.Fatalf("bob's requests %v", list)
	}
}

// pay pays an order and checks refusals and repeats on the way.
func pay(t *testing.T, w *world, p *process, user, order string) {
	t.Helper()
	started, err := p.client.Orders.StartPayment(w.ctx, &pb.StartPaymentRequest{OrderId: order, UserId: user, PaymentId: "pay-1"})
	w.must(err)
	if started.GetTotal().GetAmount() != "4999.00" || started.GetPaymentState() != pb.PaymentState_PAYMENT_STATE_INITIATED {
		t.Fatalf("started %v", started)
	}
	if _, err := p.client.Orders.CancelOrder(w.ctx, &pb.CancelOrderRequest{OrderId: order, UserId: user}); rpcstatus.Reason(err) != "PAYMENT_IN_PROGRESS" {
		t.Fatalf("cancelling while a payment is open: %v", err)
	}
	callback := &pb.ApplyPaymentCallbackRequest{
		OrderId: order, PaymentId: "pay-1", Amount: &pb.Money{Amount: "1.00", Currency: "CNY"}, Status: pb.CallbackStatus_CALLBACK_STATUS_SUCCEEDED,
	}
	if _, err := p.client.Orders.ApplyPaymentCallback(w.ctx, callback); rpcstatus.Reason(err) != "PAYMENT_MISMATCH" {
		t.Fatalf("a callback over another amount: %v", err)
	}
	started, err = p.client.Orders.StartPayment(w.ctx, &pb.StartPaymentRequest{OrderId: order, UserId: user, PaymentId: "pay-2"})
	w.must(err)
	callback.PaymentId, callback.Amount = "pay-2", started.GetTotal()
	for range 2 {
		out, err := p.client.Orders.ApplyPaymentCallback(w.ctx, callback)
		w.must(err)
		if out.GetOrderState() != pb.OrderState_ORDER_STATE_PAID || out.GetPaymentState() != pb.PaymentState_PAYMENT_STATE_SUCCEEDED {
			t.Fatalf("callback %v", out)
		}
	}
	if _, err := p.client.Orders.CancelOrder(w.ctx, &pb.CancelOrderRequest{OrderId: order, UserId: user}); rpcstatus.Reason(err) != "ORDER_PAID" {
		t.Fatalf("cancelling a paid order: %v", err)
	}
	unknown := &pb.ApplyPaymentCallbackRequest{
		OrderId: "cell-1.o" + order[len("cell-1.o")+1:] + "a", PaymentId: "x", Amount: started.GetTotal(), Status: pb.CallbackStatus_CALLBACK_STATUS_SUCCEEDED,
	}
	if _, err := p.client.Orders.ApplyPaymentCallback(w.ctx, unknown); rpcstatus.Reason(err) != "ORDER_UNKNOWN" {
		t.Fatalf("a callback for an unknown order: %v", err)
	}
	o, err := p.client.Orders.GetOrder(w.ctx, &pb.GetOrderRequest{OrderId: order, UserId: user})
	w.must(err)
	if o.GetOrder().GetState() != pb.OrderState_ORDER_STATE_PAID || o.GetOrder().GetPaidAtMs() == 0 || o.GetOrder().GetTotal().GetAmount() != "4999.00" {
		t.Fatalf("order %v", o)
	}
}

// TestRefusedAtTheDoor: what an ask is told that never reaches the mirror (quantities of direct calls too:
// K60), and that replay comes before what only stands against first attempts.
func TestRefusedAtTheDoor(t *testing.T) {
	w, p := selling(t, 5)
	want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	permitOf := func(change func(*signed.Permit)) func(*pb.Ask) {
		return func(a *pb.Ask) { a.GetAdmit().Permit = w.permit("eve", change) }
	}
	for name, row := range map[string]struct {
		change  func(*pb.Ask)
		outcome pb.AdmitOutcome
	}{
		"campaign":           {func(a *pb.Ask) { a.CampaignId = "nothing" }, pb.AdmitOutcome_ADMIT_OUTCOME_UNKNOWN_CAMPAIGN},
		"sku":                {func(a *pb.Ask) { a.SkuId = "nothing" }, pb.AdmitOutcome_ADMIT_OUTCOME_UNKNOWN_CAMPAIGN},
		"user with a space":  {func(a *pb.Ask) { a.UserId = "e ve" }, pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT},
		"request id":         {func(a *pb.Ask) { a.GetAdmit().RequestId = "a b" }, pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT},
		"quantity 0":         {func(a *pb.Ask) { a.GetAdmit().Quantity = 0 }, pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT},
		"quantity 4":         {func(a *pb.Ask) { a.GetAdmit().Quantity = 4 }, pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT},
		"quantity -1":        {func(a *pb.Ask) { a.GetAdmit().Quantity = -1 }, pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT},
		"the most negative":  {func(a *pb.Ask) { a.GetAdmit().Quantity = math.MinInt32 }, pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT},
		"the largest":        {func(a *pb.Ask) { a.GetAdmit().Quantity = math.MaxInt32 }, pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT},
		"device with NUL":    {func(a *pb.Ask) { a.GetAdmit().DeviceId = "x\x00" }, pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT},
		"no kind":            {func(a *pb.Ask) { a.Kind = nil }, pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT},
		"no permit":          {func(a *pb.Ask) { a.GetAdmit().Permit = "" }, pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID},
		"forged permit":      {func(a *pb.Ask) { a.GetAdmit().Permit += "x" }, pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID},
		"another's permit":   {permitOf(func(p *signed.Permit) { p.User = "alice" }), pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID},
		"another SKU's":      {permitOf(func(p *signed.Permit) { p.SKU = tablet }), pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID},
		"another campaign's": {permitOf(func(p *signed.Permit) { p.Campaign = "other" }), pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID},
		"expired permit":     {permitOf(func(p *signed.Permit) { p.Expires = p.Expires.Add(-time.Hour) }), pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID},
	} {
		t.Run(name, func(t *testing.T) {
			got := want(t, p.exchange(w.ask("eve", "r1", row.change))[0], row.outcome)
			if (row.outcome == pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT) != (got.GetDetail() != "") {
				t.Fatalf("detail %q", got.GetDetail())
			}
		})
	}
	expired := func(a *pb.Ask) {
		a.GetAdmit().Permit = w.permit("alice", func(p *signed.Permit) { p.Expires = p.Expires.Add(-time.Hour) })
	}
	want(t, p.exchange(w.ask("alice", "r1", expired))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED)
	for i, row := range []struct {
		change  func(*pb.CampaignRules)
		outcome pb.AdmitOutcome
	}{
		{func(r *pb.CampaignRules) { r.PausedSkus = []string{phone} }, pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED},
		{func(r *pb.CampaignRules) { r.State = pb.CampaignState_CAMPAIGN_STATE_PAUSED }, pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED},
		{func(r *pb.CampaignRules) { r.State = pb.CampaignState_CAMPAIGN_STATE_CLOSED }, pb.AdmitOutcome_ADMIT_OUTCOME_ENDED},
		{func(r *pb.CampaignRules) { r.FinalSkus = []string{phone} }, pb.AdmitOutcome_ADMIT_OUTCOME_FINAL_SOLD_OUT},
	} {
		w.install(int64(i+2), row.change)
		want(t, p.exchange(w.ask("frank", "r1"))[0], row.outcome)
		want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED)
		want(t, p.exchange(w.ask("alice", "r1", func(a *pb.Ask) { a.GetAdmit().Quantity = 2 }))[0], pb.AdmitOutcome_ADMIT_OUTCOME_IDEMPOTENCY_CONFLICT)
	}
	p.reaches("alice", "r1", "", pending)
	if n := w.count("SELECT count(*) FROM cellquota.reservations"); n != 1 {
		t.Fatalf("%d reservations", n)
	}
	if n := w.count("SELECT available FROM cellquota.stock WHERE sku_id = $1", phone); n != 4 {
		t.Fatalf("%d of 5 units are left, one was sold", n)
	}
}

// TestHangUp is K58: edges that close their stream right after asking lose their answers, and nothing
// else: every repeat has the same reservation, and no unit is lost.
func TestHangUp(t *testing.T) {
	const users = 60
	w, p := selling(t, users)
	for round := range 6 {
		ctx, hangUp := context.WithCancel(w.ctx)
		stream, err := p.client.Admissions.Exchange(ctx)
		w.must(err)
		var asks []*pb.Ask
		for i := round * 10; i < (round+1)*10; i++ {
			a := w.ask(fmt.Sprint("user-", i), "r1")
			a.CorrelationId = uint64(i + 1)
			asks = append(asks, a)
		}
		w.must(stream.Send(&pb.ExchangeRequest{Asks: asks}))
		testkit.Hold(t, time.Duration(round)*time.Millisecond, "the edge dies a moment after it asked")
		hangUp()
	}
	var again []*pb.Ask
	for i := range users {
		again = append(again, w.ask(fmt.Sprint("user-", i), "r1"))
	}
	reservations := map[string]bool{}
	for i, a := range p.exchange(again...) {
		if o := a.GetOutcome(); o != pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED && o != pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED {
			t.Fatalf("user-%d: %v", i, a)
		}
		reservations[a.GetRequest().GetReservationId()] = true
		p.reaches(fmt.Sprint("user-", i), "r1", a.GetRequest().GetReceipt(), pending)
	}
	if n := w.count("SELECT count(*) FROM cellquota.orders"); n != users || len(reservations) != users {
		t.Fatalf("%d orders and %d reservations of %d users", n, len(reservations), users)
	}
	m, err := p.client.Facts.GetMirror(w.ctx, &pb.GetMirrorRequest{CampaignId: campaign, SkuId: phone})
	w.must(err)
	if m.GetStock() != 0 {
		t.Fatalf("mirror %v", m)
	}
}

// TestLogIsAway: an admission whose acknowledgement is late is answered as ADMITTED, and becomes an
// order when the log is back.
func TestLogIsAway(t *testing.T) {
	w, p := selling(t, 5)
	w.kafka.Stop(t)
	got := want(t, p.exchange(w.ask("alice", "r1", func(a *pb.Ask) { a.WaitMs = 200 }))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	if got.GetState() != pb.RequestState_REQUEST_STATE_ADMITTED || got.GetAck() != pb.Ack_ACK_REDIS || got.GetReceipt() == "" {
		t.Fatalf("accepted as %v", got)
	}
	testkit.Eventually(t, patience, func() error {
		if ok, why := p.parts.health.ready(); ok || why["kafka"] == "" {
			return fmt.Errorf("ready %v: %v", ok, why)
		}
		return nil
	})
	w.kafka.Start(t)
	if v := p.reaches("alice", "r1", got.GetReceipt(), pending); v.GetReservationId() != got.GetReservationId() {
		t.Fatalf("ordered as %v", v)
	}
}

// TestAckModeRedis answers as soon as the mirror granted.
func TestAckModeRedis(t *testing.T) {
	w := newWorld(t)
	p := w.start().ready()
	w.install(1, func(r *pb.CampaignRules) { r.Spec.AckMode = pb.AckMode_ACK_MODE_REDIS })
	w.grant(1, 3)
	p.stocked(3)
	w.kafka.Stop(t)
	got := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	if got.GetState() != pb.RequestState_REQUEST_STATE_ADMITTED || got.GetAck() != pb.Ack_ACK_REDIS {
		t.Fatalf("accepted as %v", got)
	}
	w.kafka.Start(t)
	p.reaches("alice", "r1", got.GetReceipt(), pending)
}
