package cell

import (
	"fmt"
	"testing"

	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// flip tells the cell's switch to whichever process is linked and waits for its word.
func (w *world) flip(version int64, paused bool, reason string) *pb.DirectiveResult {
	w.t.Helper()
	return w.cp.order(&pb.Directive{
		DirectiveId: fmt.Sprintf("switch/%d/%t", version, paused),
		Kind:        &pb.Directive_CellSwitch{CellSwitch: &pb.CellSwitch{Paused: paused, Version: version, Reason: reason}},
	})
}

// paused waits until this process's gates say why it is paused; then a new customer is told PAUSED.
func (p *process) paused(user, cause string) {
	p.w.t.Helper()
	testkit.Eventually(p.w.t, patience, func() error {
		g, err := p.client.Facts.GetGate(p.w.ctx, &pb.GetGateRequest{})
		if err != nil {
			return err
		}
		for _, one := range g.GetGates() {
			if one.GetState() != pb.GateState_GATE_STATE_PAUSED || one.GetCause() != cause {
				return fmt.Errorf("gate %v", one)
			}
		}
		return nil
	})
	want(p.w.t, p.exchange(p.w.ask(user, "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED)
}

// TestPausedCell: an operator pauses the cell. Every process refuses new customers, repeats have their
// answers, orders are paid; a process that restarts while the control plane is gone is paused still; an
// older word changes nothing, and a newer one lets it sell.
func TestPausedCell(t *testing.T) {
	w, p := selling(t, 5)
	second := w.start().ready()
	first := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	order := p.reaches("alice", "r1", first.GetReceipt(), pending)

	if r := w.flip(4, true, "drill"); !r.GetDone() || r.GetDetail() != "" {
		t.Fatalf("pause: %v", r)
	}
	const cause = "paused by an operator: drill"
	p.paused("bob", cause)
	second.paused("bob", cause)
	want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED)
	pay(t, w, p, "alice", order.GetOrderId())
	p.reaches("alice", "r1", "", paid)

	if r := w.flip(3, false, ""); r.GetDetail() == "" { // an older leader's word
		t.Fatalf("an older word was taken: %v", r)
	}
	w.cp.shutDown()
	second.end()
	p.end()
	p = w.start().ready()
	p.paused("carol", cause)
	if n := w.count("SELECT count(*) FROM cellquota.reservations"); n != 1 {
		t.Fatalf("%d reservations", n)
	}

	w.cp = newPlane(w)
	p.end()
	p = w.start().ready()
	if r := w.flip(5, false, ""); r.GetDetail() != "" {
		t.Fatalf("resume: %v", r)
	}
	p.stocked(4)
	want(t, p.exchange(w.ask("dave", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
}
