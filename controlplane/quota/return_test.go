package quota_test

import (
	"errors"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

func topUpOf(id string, cell int, units int64) intent.TopUp {
	return intent.TopUp{AdjustmentID: id, Key: key, Cell: cellID(cell), Units: q(units)}
}

func returnOf(id string, cell int, units int64) intent.Return {
	return intent.Return{AdjustmentID: id, Key: key, Cell: cellID(cell), Units: q(units)}
}

// The shard decides: what it has available comes to the reserve; of more than that nothing does, and the
// number is used up.
func TestReturn(t *testing.T) {
	r := newRig(t)
	r.sells(300, 250, 100, 100)
	ctx := testkit.Deadline(t)
	r.shards["cell-1"].sell(60)
	for _, row := range []struct {
		id      string
		units   int64
		outcome core.Outcome
		number  int64
		reserve int64
		granted int64
	}{
		{"r1", 41, core.OutcomeRefused, 2, 50, 100},
		{"r2", 40, core.OutcomeApplied, 3, 90, 60},
		{"r3", 1, core.OutcomeRefused, 4, 90, 60},
	} {
		moved, err := r.intent.ReturnUnits(ctx, who, returnOf(row.id, 1, row.units), false)
		if err != nil {
			t.Fatal(err)
		}
		if a := moved.Record.Adjustments[0]; a.State != core.StateProposed || a.Number != row.number || moved.Book.Reserve != r.book().Reserve {
			t.Errorf("%s: proposed as %+v", row.id, a)
		}
		r.answer()
		record, _ := r.view.Snapshot().Record(row.id)
		if a := record.Adjustments[0]; a.State != core.StateDone || a.Outcome != row.outcome {
			t.Errorf("%s: %+v", row.id, a)
		}
		r.has(250, row.reserve, row.granted, 100)
	}
	again, err := r.intent.ReturnUnits(ctx, who, returnOf("r2", 1, 40), false)
	if err != nil || !again.Replayed || again.Record.Adjustments[0].Outcome != core.OutcomeApplied {
		t.Errorf("a repeat: %+v, %v", again, err)
	}
	if _, err := r.intent.ReturnUnits(ctx, who, returnOf("r2", 2, 40), false); !errors.Is(err, core.ErrIDReused) {
		t.Errorf("other parameters: %v", err)
	}
	if _, err := r.intent.ReturnUnits(ctx, who, returnOf("r4", 1, 61), false); !errors.Is(err, core.ErrAllocationShort) {
		t.Errorf("more than the allocation: %v", err)
	}
	if _, err := r.intent.ReturnUnits(ctx, who, returnOf("r5", 9, 1), true); !errors.Is(err, core.ErrUnknownCell) {
		t.Errorf("an unknown cell: %v", err)
	}
	if moved, err := r.intent.ReturnUnits(ctx, who, returnOf("r6", 2, 1), true); err != nil || moved.Record.Adjustments[0].Number != 2 {
		t.Errorf("a dry run: %+v, %v", moved, err)
	}
	if _, known := r.view.Snapshot().Record("r6"); known {
		t.Error("a dry run left a record")
	}
}

// No top-up goes to a SUSPECT cell, although its record is ACTIVE.
func TestNoTopUpToASuspectCell(t *testing.T) {
	r := newRig(t)
	r.sells(300, 250, 100, 100)
	ctx := testkit.Deadline(t)
	r.suspect("cell-1")
	if _, err := r.intent.TopUp(ctx, who, topUpOf("a1", 1, 10), false); !errors.Is(err, core.ErrCellState) {
		t.Errorf("a top-up to a SUSPECT cell: %v", err)
	}
	toIt := transfer("t1", 10)
	toIt.From, toIt.To = "cell-2", "cell-1"
	if _, _, err := r.intent.TransferUnits(ctx, who, toIt, false); !errors.Is(err, core.ErrCellState) {
		t.Errorf("a transfer to a SUSPECT cell: %v", err)
	}
	r.alive(ids.CellID("cell-1"))
	r.caughtUp()
	r.topUp("a1", 1, 10)
}
