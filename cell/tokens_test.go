package cell

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestSaleOfTokens: a SKU with a row per unit is sold through the whole cell, from the control plane's
// rules and grant to the paid order; every unit's serial tells where it is, and a return takes serials out.
func TestSaleOfTokens(t *testing.T) {
	w := newWorld(t)
	p := w.start().ready()
	w.install(1, tokens)
	w.grant(1, 5)
	p.stocked(5)
	rows := func(state string) int64 {
		return w.count("SELECT count(*) FROM cellquota.v_tokens WHERE state = $1 AND campaign_id = $2 AND sku_id = $3", state, campaign, phone)
	}
	want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	want(t, p.exchange(w.ask("bob", "r1", func(a *pb.Ask) { a.GetAdmit().Quantity = 2 }))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	alice, bob := p.reaches("alice", "r1", "", pending), p.reaches("bob", "r1", "", pending)
	pay(t, w, p, "alice", alice.GetOrderId())
	if n := w.count("SELECT count(*) FROM cellquota.v_tokens WHERE order_id = $1 AND state = 'SOLD'", alice.GetOrderId()); n != 1 {
		t.Errorf("alice has %d serials", n)
	}
	_, err := p.client.Orders.CancelOrder(w.ctx, &pb.CancelOrderRequest{OrderId: bob.GetOrderId(), UserId: "bob"})
	w.must(err)
	p.stocked(4)
	r := w.cp.order(&pb.Directive{DirectiveId: "back", Kind: &pb.Directive_Adjustment{Adjustment: &pb.AdjustmentOrder{
		AdjustmentId: "back", CampaignId: campaign, SkuId: phone, Number: 2, Kind: pb.AdjustmentKind_ADJUSTMENT_KIND_RETURN, Units: 2, BookRecordId: "back",
	}}})
	if r.GetOutcome() != pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_APPLIED {
		t.Fatalf("return: %v", r)
	}
	if free, bound, sold, sealed := rows("FREE"), rows("BOUND"), rows("SOLD"), rows("SEALED"); free != 2 || bound != 0 || sold != 1 || sealed != 2 {
		t.Errorf("FREE %d, BOUND %d, SOLD %d, SEALED %d", free, bound, sold, sealed)
	}
}

// TestBoundsOnUnpaidOrders: one device may hold two unpaid orders. The third is refused at the door by
// what the mirror has seen; where the mirror has lost it, by the shard, which counts; after a payment
// there is a place again. A customer of high risk has less time to pay.
func TestBoundsOnUnpaidOrders(t *testing.T) {
	w := newWorld(t)
	p := w.start().ready()
	w.install(1, func(r *pb.CampaignRules) {
		r.Spec.Holds = &pb.HoldRules{MaxUnpaidPerUser: 1, MaxUnpaidPerDevice: 2, PaymentTtlByRisk: map[string]*durationpb.Duration{"high": durationpb.New(3 * time.Minute)}}
	})
	w.grant(1, 10)
	p.stocked(10)
	ask := func(user, request string) *pb.Ask {
		return w.ask(user, request, func(a *pb.Ask) { a.GetAdmit().DeviceId, a.GetAdmit().RiskTier = "farm", "high" })
	}
	for _, user := range []string{"a", "b"} {
		want(t, p.exchange(ask(user, "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	}
	want(t, p.exchange(ask("c", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_TOO_MANY_UNPAID)
	if a := want(t, p.exchange(ask("a", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED); a.GetRequest().GetReservationId() == "" {
		t.Errorf("a repeat is told %v", a)
	}
	order := p.reaches("a", "r1", "", pending)
	p.reaches("b", "r1", "", pending)
	if n := w.count("SELECT count(*) FROM cellquota.reservations WHERE expires_at - created_at BETWEEN interval '2 minutes 59 seconds' AND interval '3 minutes 1 second'"); n != 2 {
		t.Errorf("%d orders of high risk have three minutes", n)
	}

	w.must(w.redis.Client(t).Del(w.ctx, "cq:{"+campaign+"}:held:d:farm").Err())
	late := want(t, p.exchange(ask("c", "r2"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	if v := p.reaches("c", "r2", late.GetReceipt(), pb.RequestState_REQUEST_STATE_REJECTED); v.GetReason() != pb.Reason_REASON_TOO_MANY_UNPAID {
		t.Errorf("counted by the shard: %v", v)
	}
	p.stocked(8) // the unit came back
	pay(t, w, p, "a", order.GetOrderId())
	testkit.Eventually(t, patience, func() error { // the mirror hears of it by the outbox, the shard counts
		if a := p.exchange(ask("c", "r3"))[0]; a.GetOutcome() != pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED {
			return fmt.Errorf("told %v", a)
		}
		return nil
	})
	p.reaches("c", "r3", "", pending)
}
