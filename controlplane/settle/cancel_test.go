package settle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/testkit"
)

func (w *world) cancelling() core.Operation {
	w.t.Helper()
	op := core.Operation{ID: "op", Kind: core.OperationCancel, Subject: "c", State: core.OperationPending, Step: core.StepStopSale, Actor: "me", Reason: "wrong price", StartedAt: time.Now()}
	w.update(func(tx *store.Tx) error {
		_, _, err := tx.Operation("op")
		return errors.Join(err, tx.PutOperation(op))
	})
	return op
}

// step is one step of a new driver, on the operation as etcd has it.
func (w *world) step() core.Operation {
	w.t.Helper()
	op, err := w.store.Operation(testkit.Deadline(w.t), "op")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.driver(w.store, w.archive).Step(testkit.Deadline(w.t), w.leader, op); err != nil {
		w.t.Fatal(err)
	}
	w.seen()
	if op, err = w.store.Operation(testkit.Deadline(w.t), "op"); err != nil {
		w.t.Fatal(err)
	}
	return op
}

// The sale stops and is marked in one transaction; the operation then says what is
// left, from the shards, and waits for the cell that cannot be asked.
func TestACancellingEndsWhenNothingIsLeft(t *testing.T) {
	w := newWorld(t)
	w.shards["cell-1"].sell("a", 3, 2, 0) // two paid, one unpaid
	w.shards["cell-1"].do("INSERT INTO cellquota.payments SELECT order_id, 'p', 10, 'CNY', 'SUCCEEDED', NULL, now(), now() FROM cellquota.orders WHERE state = 'PAID'")
	unpaid, paid, err := w.driver(w.store, w.archive).Orders(testkit.Deadline(t), "c")
	if err != nil || unpaid != 1 || paid != 2 {
		t.Fatalf("would close %d and refund %d: %v", unpaid, paid, err)
	}
	w.cancelling()
	op, c := w.step(), w.now()
	if c.State != core.CampaignClosed || c.CancelledBy != "op" || c.Version != 3 || c.ClosedAt.IsZero() || !op.DoneStep(core.StepStopSale) || c.ModRevision != op.ModRevision {
		t.Fatalf("stopped: %+v by %+v", c, op)
	}
	says := func(want string) {
		t.Helper()
		if op := w.step(); op.State != core.OperationRunning || !strings.Contains(op.Detail, want) {
			t.Fatalf("%s: %q, want %q", op.State, op.Detail, want)
		}
	}
	says("1 unpaid orders to close; 2 paid orders to refund")
	w.shards["cell-1"].do("SELECT sale.close(1, 's', 'a2')")
	w.shards["cell-1"].do("UPDATE cellquota.payments SET state = 'REFUND_PENDING' WHERE order_id = 'o-a0-s'")
	says("2 paid orders to refund; 1 refunds under way")
	w.shards["cell-1"].do("UPDATE cellquota.payments SET state = 'REFUNDED'")
	w.shards["cell-2"].reachable(false)
	w.freshReader()
	says("cells that do not answer: cell-2")
	w.shards["cell-2"].reachable(true)
	w.freshReader()
	w.cells.late = []string{"cell-2/p serves version 2"}
	says("not told yet: cell-2/p serves version 2")
	w.cells.late = nil
	if op := w.step(); op.State != core.OperationDone {
		t.Fatalf("%s: %s", op.State, op.Detail)
	}
	for range 4 {
		w.tick()
	}
	if now := w.now(); now.State != core.CampaignSettled {
		t.Errorf("a cancelled campaign does not settle: %s, %v", now.State, w.driver(w.store, w.archive).Blockers(t.Context(), now))
	}
}

// A campaign whose account was taken is not cancelled any more: the operation says
// so and ends.
func TestATakenAccountIsNotCancelled(t *testing.T) {
	w := newWorld(t).over()
	w.tick()
	if _, reported := w.now().Report(); !reported {
		t.Fatal("no report")
	}
	w.cancelling()
	if op := w.step(); op.State != core.OperationFailed || w.now().Cancelled() {
		t.Errorf("%s: %s", op.State, op.Detail)
	}
}
