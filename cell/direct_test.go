package cell

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func database(r *pb.CampaignRules) { r.Spec.Admission = pb.AdmissionMode_ADMISSION_MODE_DATABASE }

// TestDatabaseSale is R-030: a campaign that the shard alone sells, through the whole cell, while Redis
// and Kafka are stopped, from the start of the process to the payment.
func TestDatabaseSale(t *testing.T) {
	w := newWorld(t)
	w.redis.Kill(t)
	w.kafka.Stop(t)
	p := w.start()
	w.install(1, database)
	w.grant(1, 2)
	p.ready() // what nothing here needs is no reason
	first := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	if first.GetState() != pending || first.GetAck() != pb.Ack_ACK_DATABASE || first.GetReceipt() == "" || first.GetOrderId() == "" || first.GetExpiresAtMs() == 0 {
		t.Fatalf("accepted as %v", first)
	}
	replay := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED).GetRequest()
	if replay.GetReservationId() != first.GetReservationId() || replay.GetReceipt() == "" || replay.GetExpiresAtMs() != first.GetExpiresAtMs() {
		t.Fatalf("replayed as %v, first %v", replay, first)
	}
	want(t, p.exchange(w.ask("alice", "r1", func(a *pb.Ask) { a.GetAdmit().Quantity = 2 }))[0], pb.AdmitOutcome_ADMIT_OUTCOME_IDEMPOTENCY_CONFLICT)
	if other := want(t, p.exchange(w.ask("alice", "r2"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED); other.GetRequest().GetRequestId() != "r1" {
		t.Fatalf("her own request is %v", other.GetRequest())
	}
	precheck := w.ask("alice", "")
	precheck.Kind = &pb.Ask_Precheck{Precheck: &pb.PrecheckAsk{}}
	want(t, p.exchange(precheck)[0], pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED)
	want(t, p.exchange(w.ask("eve", "r1", func(a *pb.Ask) {
		a.GetAdmit().Permit = w.permit("eve", func(p *signed.Permit) { p.Expires = p.Expires.Add(-time.Hour) })
	}))[0], pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID)

	p.reaches("alice", "r1", first.GetReceipt(), pending)
	_, err := p.client.Admissions.GetRequest(w.ctx, &pb.GetRequestRequest{CampaignId: campaign, SkuId: phone, UserId: "mallory", RequestId: "r1"})
	if !errors.Is(err, rpcstatus.ErrNotFound) {
		t.Fatalf("another user's request: %v", err)
	}
	pay(t, w, p, "alice", first.GetOrderId())
	p.reaches("alice", "r1", "", paid)
	want(t, p.exchange(w.ask("alice", "r2"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_PURCHASED)

	bob := want(t, p.exchange(w.ask("bob", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	if a := want(t, p.exchange(w.ask("carol", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT); a.GetStockLeft() != 0 {
		t.Fatalf("sold out with %d left", a.GetStockLeft())
	}
	_, err = p.client.Orders.CancelOrder(w.ctx, &pb.CancelOrderRequest{OrderId: bob.GetOrderId(), UserId: "bob"})
	w.must(err)
	want(t, p.exchange(w.ask("carol", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED) // what was refused was not accepted
	want(t, p.exchange(w.ask("bob", "again"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ORDER_CLOSED)

	for i, row := range []struct {
		change  func(*pb.CampaignRules)
		outcome pb.AdmitOutcome
	}{
		{func(r *pb.CampaignRules) { r.PausedSkus = []string{phone} }, pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED},
		{func(r *pb.CampaignRules) { r.State = pb.CampaignState_CAMPAIGN_STATE_CLOSED }, pb.AdmitOutcome_ADMIT_OUTCOME_ENDED},
		{func(r *pb.CampaignRules) { r.FinalSkus = []string{phone} }, pb.AdmitOutcome_ADMIT_OUTCOME_FINAL_SOLD_OUT},
	} {
		w.install(int64(i+2), database, row.change)
		want(t, p.exchange(w.ask("frank", "r1"))[0], row.outcome)
		want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED)
	}
	if n := w.count("SELECT count(*) FROM cellquota.ledger WHERE source = 'direct'"); n != 3 {
		t.Fatalf("%d ledger entries of 3 orders", n)
	}
}

// TestDatabaseCrowd: everybody at once and twice, over two processes. Each user has one order, each
// request one reservation, and the transactions are far fewer than the requests.
func TestDatabaseCrowd(t *testing.T) {
	const users, units = 300, 250
	w := newWorld(t)
	p := w.start().ready()
	q := w.start().ready()
	w.install(1, database)
	w.grant(1, units)
	testkit.Eventually(t, patience, func() error {
		for _, one := range []*process{p, q} {
			if c, ok := one.parts.rules.Current().Campaign(campaign); !ok || !c.Direct {
				return errors.New("the rules have not come")
			}
		}
		return nil
	})
	answers := make(chan []*pb.Answer, 2)
	for _, one := range []*process{p, q} {
		var asks []*pb.Ask
		for i := range users {
			asks = append(asks, w.ask(fmt.Sprint("user-", i), "r1"))
		}
		go func() { answers <- one.exchange(asks...) }()
	}
	first, second := <-answers, <-answers
	made := map[string]bool{}
	for i := range users {
		a, b := first[i], second[i]
		switch {
		case a.GetOutcome() == pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT && b.GetOutcome() == a.GetOutcome():
		case a.GetRequest().GetReservationId() == "" || a.GetRequest().GetReservationId() != b.GetRequest().GetReservationId():
			t.Fatalf("user-%d: %v and %v", i, a, b)
		default:
			made[a.GetRequest().GetReservationId()] = true
		}
	}
	if n := w.count("SELECT count(*) FROM cellquota.orders"); n != units || len(made) != units {
		t.Fatalf("%d orders and %d reservations of %d units", n, len(made), units)
	}
	if n := w.count("SELECT count(DISTINCT created_at) FROM cellquota.reservations"); n > units/5 {
		t.Fatalf("%d transactions made %d orders", n, units)
	}
}

// TestRepeatsComeFirst: a process that may not sell (its cell drains; its lease is in doubt and the
// campaign's on_lease_loss is PAUSE) refuses first attempts, and answers repeats as it did before, by the
// mirror and without one.
func TestRepeatsComeFirst(t *testing.T) {
	for name, mode := range map[string]func(*pb.CampaignRules){"MIRROR": func(*pb.CampaignRules) {}, "DATABASE": database} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.start("--link-pause-margin=1m").ready() // as long as the lease: always in doubt, where it matters
			w.install(1, mode)
			w.grant(1, 10_000)
			p.stocked(10_000)
			first := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
			p.reaches("alice", "r1", first.GetReceipt(), pending)
			refused := func(user string, outcome pb.AdmitOutcome) {
				t.Helper()
				tries := 0
				testkit.Eventually(t, patience, func() error {
					tries++
					if a := p.exchange(w.ask(fmt.Sprint(user, tries), "r1"))[0]; a.GetOutcome() != outcome {
						return fmt.Errorf("%s is told %v", user, a)
					}
					return nil
				})
				again := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED).GetRequest()
				if again.GetReservationId() != first.GetReservationId() || again.GetState() != pending {
					t.Fatalf("repeated as %v", again)
				}
				want(t, p.exchange(w.ask("alice", "r1", func(a *pb.Ask) { a.GetAdmit().Quantity = 2 }))[0], pb.AdmitOutcome_ADMIT_OUTCOME_IDEMPOTENCY_CONFLICT)
			}
			w.cp.cell.Store(int32(pb.CellState_CELL_STATE_DRAINING))
			refused("bob", pb.AdmitOutcome_ADMIT_OUTCOME_FENCED)
			w.cp.cell.Store(int32(pb.CellState_CELL_STATE_ACTIVE))
			w.install(2, mode, func(r *pb.CampaignRules) { r.Spec.OnLeaseLoss = pb.OnLeaseLoss_ON_LEASE_LOSS_PAUSE })
			refused("carl", pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED)
		})
	}
}

// TestDatabaseHolds: limits on unpaid orders are the shard's, and told by their name.
func TestDatabaseHolds(t *testing.T) {
	w := newWorld(t)
	p := w.start().ready()
	w.install(1, database, func(r *pb.CampaignRules) { r.Spec.Holds = &pb.HoldRules{MaxUnpaidPerDevice: 1} })
	w.grant(1, 5)
	p.stocked(5)
	onPhone := func(a *pb.Ask) { a.GetAdmit().DeviceId = "her phone" }
	want(t, p.exchange(w.ask("alice", "r1", onPhone))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	want(t, p.exchange(w.ask("bob", "r1", onPhone))[0], pb.AdmitOutcome_ADMIT_OUTCOME_TOO_MANY_UNPAID)
	want(t, p.exchange(w.ask("bob", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
}
