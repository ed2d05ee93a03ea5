package planner_test

import (
	"errors"
	"testing"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/testkit"
)

// A grant that no shard has applied when its cell begins to drain is void: it takes its number with no
// units, and the return behind it gets on.
func TestAGrantToADrainingCellIsVoid(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	r.lead()
	r.link("cell-1")
	r.link("cell-2")
	r.draft("c", 2, "s")
	r.publish("c", "p1")
	r.until("p1", core.OperationDone)
	r.cells.disconnect("cell-1") // the grant is booked and cannot be sent
	before := r.topUp("g1", "cell-1", 5).Book
	if _, err := r.intent.ReturnUnits(testkit.Deadline(t), who, intent.Return{AdjustmentID: "b1", Key: before.Key, Cell: "cell-1", Units: quantity.Must(2)}, false); err != nil {
		t.Fatal(err)
	}
	_, err := r.store.Update(testkit.Deadline(t), "drain", func(tx *store.Tx) error {
		cell, _, err := tx.Cell("cell-1")
		cell.State = core.CellDraining
		cell.Version++
		return errors.Join(err, tx.PutCell(cell))
	})
	if err != nil {
		t.Fatal(err)
	}
	r.link("cell-1")
	if g := r.settled("g1"); g.State != core.StateVoided || g.Outcome != core.OutcomeVoided {
		t.Errorf("the grant is %s, %s", g.State, g.Outcome)
	}
	if b := r.settled("b1"); b.Outcome != core.OutcomeApplied {
		t.Errorf("the return behind it is %s", b.Outcome)
	}
	book, err := r.store.Book(testkit.Deadline(t), before.Key)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := book.Allocation("cell-1")
	r.cells.read("cell-1", func(s *shard) {
		if book.Reserve.Int64() != before.Reserve.Int64()+7 || a.Granted.Int64() != s.granted[book.Key] {
			t.Errorf("reserve %s, was %s with the grant; cell-1 has %s, its shard %d", book.Reserve, before.Reserve, a.Granted, s.granted[book.Key])
		}
	})
}
