package cell

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// crowd is how many ask at once for one unit.
const crowd = 200

// askAll are first attempts of a crowd of users, each changed.
func (w *world) askAll(change ...func(i int, a *pb.Ask)) []*pb.Ask {
	asks := make([]*pb.Ask, crowd)
	for i := range asks {
		asks[i] = w.ask(fmt.Sprint("user-", i), "r1")
		for _, f := range change {
			f(i, asks[i])
		}
	}
	return asks
}

// TestK85NothingBypassesTheGuards: 200 direct gRPC calls at once (AdmissionService.Exchange, as whoever holds an
// edge's certificate could make them) for one unit. What an edge checks is checked again: permit, window,
// bucket, fence; nobody gets in, and no order is made.
func TestK85NothingBypassesTheGuards(t *testing.T) {
	soon, past := timestamppb.New(clock.System().Now().Add(30*time.Minute)), timestamppb.New(clock.System().Now().Add(-30*time.Minute))
	permit := func(f func(*signed.Permit)) func(w *world) func(int, *pb.Ask) {
		return func(w *world) func(int, *pb.Ask) {
			return func(_ int, a *pb.Ask) { a.GetAdmit().Permit = w.permit(a.GetUserId(), f) }
		}
	}
	for _, c := range []struct {
		name  string
		rules func(*pb.CampaignRules)
		do    func(w *world)                    // before the calls
		asks  func(w *world) func(int, *pb.Ask) // changes them
		want  pb.AdmitOutcome
	}{
		{name: "no permit", want: pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID, asks: func(*world) func(int, *pb.Ask) {
			return func(_ int, a *pb.Ask) { a.GetAdmit().Permit = "" }
		}},
		{name: "a permit that is signed by nobody", want: pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID, asks: func(*world) func(int, *pb.Ask) {
			return func(_ int, a *pb.Ask) {
				in := a.GetAdmit()
				in.Permit = in.GetPermit()[:len(in.GetPermit())-8] + strings.Repeat("A", 8)
			}
		}},
		{name: "a permit of another user", want: pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID, asks: permit(func(p *signed.Permit) { p.User = "mallory" })},
		{name: "a permit for another SKU", want: pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID, asks: permit(func(p *signed.Permit) { p.SKU = tablet })},
		{name: "a permit that expired", want: pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID, asks: permit(func(p *signed.Permit) { p.Expires = past.AsTime() })},
		{name: "before it opens", want: pb.AdmitOutcome_ADMIT_OUTCOME_NOT_STARTED, rules: func(r *pb.CampaignRules) { r.Spec.OpenAt = soon }},
		{name: "after its end", want: pb.AdmitOutcome_ADMIT_OUTCOME_ENDED, rules: func(r *pb.CampaignRules) { r.Spec.CloseAt = past }},
		{name: "in a bucket of another cell", want: pb.AdmitOutcome_ADMIT_OUTCOME_MOVED, rules: func(r *pb.CampaignRules) {
			r.Buckets = []*pb.DomainBuckets{{Ranges: []*pb.BucketRange{{BucketFrom: 4095, BucketTo: 4095}}}}
		}},
		{name: "more units than there are", want: pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT, asks: func(*world) func(int, *pb.Ask) {
			return func(_ int, a *pb.Ask) { a.GetAdmit().Quantity = 2 }
		}},
		{name: "at a fenced cell", want: pb.AdmitOutcome_ADMIT_OUTCOME_FENCED, do: func(w *world) {
			w.cp.version.Store(0)
			w.exec("SELECT cellquota.fence_cell('cell-1', 2, 'test', 1000)")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p := w.start().ready()
			rules := c.rules
			if rules == nil {
				rules = func(*pb.CampaignRules) {}
			}
			w.install(1, rules)
			w.grant(1, 1)
			p.stocked(1)
			if c.do != nil {
				c.do(w)
			}
			change := func(int, *pb.Ask) {}
			if c.asks != nil {
				change = c.asks(w)
			}
			told := map[pb.AdmitOutcome]int{}
			for _, a := range p.exchange(w.askAll(change)...) {
				told[a.GetOutcome()]++
			}
			if c.do == nil && told[c.want] != crowd { // of a fence the mirror hears a moment later: then the shard's word counts
				t.Errorf("told %v", told)
			}
			p.lastly(c.want, change)
			if n := w.count("SELECT count(*) FROM cellquota.orders") + w.count("SELECT count(*) FROM cellquota.ledger WHERE action = 'RESERVE'"); n != 0 {
				t.Errorf("%d orders and entries", n)
			}
		})
	}
}

// lastly waits until a newcomer is told so, and everything that was admitted has its outcome.
func (p *process) lastly(outcome pb.AdmitOutcome, change func(int, *pb.Ask)) {
	p.w.t.Helper()
	n := 0
	testkit.Eventually(p.w.t, patience, func() error {
		n++
		ask := p.w.ask(fmt.Sprint("late-", n), "r1")
		change(n, ask)
		if a := p.exchange(ask)[0]; a.GetOutcome() != outcome {
			return fmt.Errorf("answer %v, want %s", a, outcome)
		}
		return nil
	})
}

// TestK85OneUnitOfEveryWay: 200 customers of two processes, a user who asks 200 times, the sweeper's replays, and
// a return by the control plane are after one unit: one of them has it. Then 200 payments and cancellations of
// the one order are answered at once: it is paid or closed, once.
func TestK85OneUnitOfEveryWay(t *testing.T) {
	for name, mode := range map[string]func(*pb.CampaignRules){"MIRROR": func(*pb.CampaignRules) {}, "DATABASE": database, "REDIS": func(r *pb.CampaignRules) { r.Spec.AckMode = pb.AckMode_ACK_MODE_REDIS }} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p, q := w.start("--relay-sweep-after=100ms").ready(), w.start("--relay-sweep-after=100ms").ready()
			w.install(1, mode)
			w.grant(1, 1)
			var all sync.WaitGroup
			var returned pb.AdjustmentOutcome
			answers := make([][]*pb.Answer, 2)
			for i, one := range []*process{p, q} {
				asks := w.askAll(func(j int, a *pb.Ask) {
					if j%2 == i {
						a.UserId = "greedy"
						a.GetAdmit().RequestId, a.GetAdmit().Permit = fmt.Sprint("r", j), w.permit("greedy")
					}
				})
				all.Go(func() { answers[i] = one.exchange(asks...) })
			}
			all.Go(func() {
				returned = w.cp.order(&pb.Directive{DirectiveId: "back", Kind: &pb.Directive_Adjustment{Adjustment: &pb.AdjustmentOrder{
					AdjustmentId: "back", CampaignId: campaign, SkuId: phone, Number: 2, Kind: pb.AdjustmentKind_ADJUSTMENT_KIND_RETURN, Units: 1, BookRecordId: "back",
				}}}).GetOutcome()
			})
			all.Wait()
			testkit.Eventually(t, patience, func() error {
				if n := w.count("SELECT count(*) FROM cellquota.v_outbox WHERE state = 'PENDING'"); n > 0 {
					return fmt.Errorf("%d effects are on their way", n)
				}
				return nil
			})
			left := int64(1)
			if returned == pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_APPLIED {
				left = 0
			}
			if n := w.count("SELECT count(*) FROM cellquota.orders"); n > left {
				t.Fatalf("%d orders of one unit; the return was %s", n, returned)
			}
			if left == 0 {
				w.grant(3, 1)
			}
			order := p.theOrder()
			w.contest(p, order)
			if n := w.count("SELECT count(*) FROM cellquota.ledger WHERE action IN ('CONFIRM', 'RELEASE')"); n != 1 {
				t.Errorf("%d entries end the one order", n)
			}
		})
	}
}

// theOrder is the one unit's order; if nobody has it, a customer buys it.
func (p *process) theOrder() (id string) {
	p.w.t.Helper()
	n := 0
	testkit.Eventually(p.w.t, patience, func() error {
		if p.w.count("SELECT count(*) FROM cellquota.orders") == 0 {
			n++
			p.exchange(p.w.ask(fmt.Sprint("last-", n), "r1"))
		}
		return p.w.admin.QueryRow(p.w.ctx, "SELECT order_id FROM cellquota.orders").Scan(&id)
	})
	return id
}

// contest pays and cancels an order 200 times at once.
func (w *world) contest(p *process, order string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	var user string
	w.must(w.admin.QueryRow(ctx, "SELECT user_id FROM cellquota.orders WHERE order_id = $1", order).Scan(&user))
	started, err := p.client.Orders.StartPayment(ctx, &pb.StartPaymentRequest{OrderId: order, UserId: user, PaymentId: "pay-1"})
	w.must(err)
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() { // who loses is told so; what counts is the ledger
			if i%2 == 0 {
				_, _ = p.client.Orders.ApplyPaymentCallback(ctx, &pb.ApplyPaymentCallbackRequest{
					OrderId: order, PaymentId: "pay-1", Amount: started.GetTotal(), Status: pb.CallbackStatus_CALLBACK_STATUS_SUCCEEDED,
				})
				return
			}
			_, _ = p.client.Orders.CancelOrder(ctx, &pb.CancelOrderRequest{OrderId: order, UserId: user})
		})
	}
	all.Wait()
}
