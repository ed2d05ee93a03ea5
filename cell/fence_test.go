package cell

import (
	"fmt"
	"testing"

	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// TestFencedProcess: a process whose shard was fenced answers FENCED within a second or two, although
// its mirror would admit; after a restore it settles first and then sells again.
func TestFencedProcess(t *testing.T) {
	w, p := selling(t, 5)
	first := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	order := p.reaches("alice", "r1", first.GetReceipt(), pending)

	w.cp.version.Store(0) // the control plane refuses it from now on
	w.exec("SELECT cellquota.fence_cell('cell-1', 2, 'test', 1000)")
	outcome := func(user string, o pb.AdmitOutcome) {
		t.Helper()
		testkit.Eventually(t, patience, func() error {
			if a := p.exchange(w.ask(user, "r1"))[0]; a.GetOutcome() != o {
				return fmt.Errorf("answer %v, want %s", a, o)
			}
			return nil
		})
	}
	fenced := func(user string) { t.Helper(); outcome(user, pb.AdmitOutcome_ADMIT_OUTCOME_FENCED) }
	fenced("bob")
	testkit.Eventually(t, patience, func() error {
		if ok, why := p.parts.health.ready(); ok || why["writer"] == "" {
			return fmt.Errorf("ready %v: %v", ok, why)
		}
		return nil
	})
	if _, err := p.client.Orders.StartPayment(w.ctx, &pb.StartPaymentRequest{OrderId: order.GetOrderId(), UserId: "alice", PaymentId: "p"}); err == nil {
		t.Fatal("a fenced cell took a payment")
	}
	p.reaches("alice", "r1", first.GetReceipt(), pending) // what was ordered is still told

	w.exec("SELECT cellquota.restore_cell('cell-1', 3, 'blue', 'test', 1000)")
	w.cp.version.Store(3)
	testkit.Eventually(t, patience, func() error {
		_, err := p.client.Orders.StartPayment(w.ctx, &pb.StartPaymentRequest{OrderId: order.GetOrderId(), UserId: "alice", PaymentId: "p"})
		return err
	})
	fenced("carol") // settles only

	w.exec("SELECT cellquota.activate_cell('cell-1', 3, 'test', 1000)")
	w.grant(1, 4)
	p.stocked(4)
	outcome("dave", pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	p.reaches("dave", "r1", "", pending)
}

// TestRestartWithoutAControlPlane is K71 and K59 in one: everything but the stores is restarted while
// the control plane is gone; the cell goes on selling, and repeats have their answers.
func TestRestartWithoutAControlPlane(t *testing.T) {
	w, p := selling(t, 3)
	first := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	w.cp.shutDown()
	p.end()
	p = w.start().ready()
	p.stocked(2)
	replay := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED).GetRequest()
	if replay.GetReservationId() != first.GetReservationId() {
		t.Fatalf("replayed as %v, was %v", replay, first)
	}
	for i, user := range []string{"bob", "carol"} {
		got := want(t, p.exchange(w.ask(user, "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
		p.reaches(user, "r1", got.GetReceipt(), pending)
		if n := w.count("SELECT available FROM cellquota.stock WHERE sku_id = $1", phone); n != int64(1-i) {
			t.Fatalf("%d units left", n)
		}
	}
	want(t, p.exchange(w.ask("dave", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT)
	if ok, why := p.parts.health.ready(); !ok || why["link"] == "" {
		t.Fatalf("ready %v: %v", ok, why)
	}
}

// TestMirrorLost: Redis comes back empty; until its mirror is built again nobody is told "sold out",
// and then what was ordered is known and what was not can be bought; on each kind of Redis, behind
// sentinels by a failover (K04, R-123).
func TestMirrorLost(t *testing.T) {
	for _, kind := range redisKinds {
		t.Run(kind.name, func(t *testing.T) {
			w := newWorld(t)
			lose := kind.start(t, w)
			mirrorLost(t, w, w.sell(3), lose)
		})
	}
}

func mirrorLost(t *testing.T, w *world, p *process, lose func()) {
	t.Helper()
	first := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	p.reaches("alice", "r1", first.GetReceipt(), pending)
	lose()
	testkit.Eventually(t, patience, func() error {
		a := p.exchange(w.ask("bob", "r1"))[0]
		switch a.GetOutcome() {
		case pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED, pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED:
			return nil
		case pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT, pb.AdmitOutcome_ADMIT_OUTCOME_FINAL_SOLD_OUT:
			t.Fatalf("a lost mirror answers %v", a)
		}
		return fmt.Errorf("answer %v", a)
	})
	p.reaches("bob", "r1", "", pending)
	want(t, p.exchange(w.ask("alice", "r2"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED)
	replay := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED).GetRequest()
	if replay.GetReservationId() != first.GetReservationId() {
		t.Fatalf("replayed as %v", replay)
	}
}
