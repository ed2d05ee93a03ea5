package quota_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/testkit"
)

func transfer(id string, units int64) intent.Transfer {
	return intent.Transfer{ID: id, Key: key, From: "cell-1", To: "cell-2", Units: q(units), Reason: "more is asked for there"}
}

func (r *rig) transfers(t intent.Transfer) core.Operation {
	r.t.Helper()
	op, _, err := r.intent.TransferUnits(testkit.Deadline(r.t), who, t, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return op
}

// A transfer: the giver's shard, then the book, then the taker's shard.
func TestTransfer(t *testing.T) {
	r := newRig(t)
	r.sells(300, 250, 100, 100)
	op := r.transfers(transfer("t1", 30))
	if op.Kind != core.OperationTransfer || op.State != core.OperationRunning || op.Subject != key.String() {
		t.Fatalf("accepted as %+v", op)
	}
	r.has(250, 50, 100, 100) // until the giver has answered the units are its own
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	if op := r.op("t1"); op.Step != "return" || !strings.Contains(op.Detail, "cell-1") {
		t.Errorf("it waits at %q: %s", op.Step, op.Detail)
	}
	r.answer()
	r.has(250, 80, 70, 100)
	done := r.settle("t1")
	if done.State != core.OperationDone || !done.DoneStep("return") {
		t.Fatalf("%+v", done)
	}
	r.has(250, 50, 70, 130)
	if r.shards["cell-1"].granted != 70 || r.shards["cell-2"].granted != 130 {
		t.Errorf("the shards have %d and %d", r.shards["cell-1"].granted, r.shards["cell-2"].granted)
	}
	// The same again answers the first; other parameters are a conflict.
	if again := r.transfers(transfer("t1", 30)); again.State != core.OperationDone {
		t.Errorf("a repeat answers %s", again.State)
	}
	if _, _, err := r.intent.TransferUnits(testkit.Deadline(t), who, transfer("t1", 31), false); !errors.Is(err, core.ErrIDReused) {
		t.Errorf("other parameters: %v", err)
	}
	r.has(250, 50, 70, 130)
}

// What does not come about, and where the units then are.
func TestTransferThatFails(t *testing.T) {
	for _, row := range []struct {
		name    string
		after   func(r *rig) // once the giver's return is proposed
		between func(r *rig) // once the book has the giver's units
		reserve int64
		granted [2]int64
		words   []string
	}{
		{"the giver sold them meanwhile", func(r *rig) { r.shards["cell-1"].sell(80) }, nil, 50, [2]int64{100, 100}, []string{"fewer than 30", "0 were moved", "number 2"}},
		{
			"the taker is fenced meanwhile", nil, func(r *rig) { r.cell("cell-2", func(c *core.Cell) { c.State, c.FenceVersion = core.CellFencing, 2 }) },
			80,
			[2]int64{70, 100},
			[]string{"30 units", "stay in the reserve", "FENCING"},
		},
		{"the taker is SUSPECT meanwhile", nil, func(r *rig) { r.suspect("cell-2") }, 80, [2]int64{70, 100}, []string{"stay in the reserve", "SUSPECT"}},
		{"somebody took them from the reserve", nil, func(r *rig) { r.topUp("other", 1, 80) }, 0, [2]int64{150, 100}, []string{"stay in the reserve", "units=30"}},
		{"a lowering has the reserve", nil, func(r *rig) { r.setLimit("l", 100) }, 0, [2]int64{70, 100}, []string{"stay in the reserve", "limit_target"}},
		{"the campaign was closed", nil, func(r *rig) { r.closes() }, 80, [2]int64{70, 100}, []string{"stay in the reserve", "CLOSED"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.sells(300, 250, 100, 100)
			r.transfers(transfer("t1", 30))
			if row.after != nil {
				row.after(r)
			}
			r.answer()
			if row.between != nil {
				row.between(r)
			}
			if err := r.step(); err != nil {
				t.Fatal(err)
			}
			op := r.op("t1")
			if op.State != core.OperationFailed {
				t.Fatalf("%+v", op)
			}
			for _, words := range row.words {
				if !strings.Contains(op.Detail, words) {
					t.Errorf("it says %q, without %q", op.Detail, words)
				}
			}
			b := r.book()
			for i, n := range row.granted {
				if a, _ := b.Allocation(cellID(i + 1)); a.Granted.Int64() != n && row.name != "somebody took them from the reserve" {
					t.Errorf("cell-%d is allocated %s, want %d", i+1, a.Granted, n)
				}
			}
			if b.Reserve.Int64() != row.reserve || b.Check() != nil {
				t.Errorf("reserve %s, want %d; %v", b.Reserve, row.reserve, b.Check())
			}
		})
	}
}

// The giver is fenced with the return under way: its proof ends the return, applied or voided, and the
// transfer with it.
func TestTransferWhoseGiverIsFenced(t *testing.T) {
	for _, outcome := range []core.Outcome{core.OutcomeApplied, core.OutcomeVoided} {
		t.Run(outcome.String(), func(t *testing.T) {
			r := newRig(t)
			r.sells(300, 250, 100, 100)
			r.transfers(transfer("t1", 30))
			if outcome == core.OutcomeApplied { // the shard did, and the fence came before the answer
				record, _ := r.view.Snapshot().Record("t1.return")
				r.shards["cell-1"].decide(record.Adjustments[0])
			}
			r.shards["cell-1"].fenced = true
			r.cell("cell-1", func(c *core.Cell) { c.State, c.FenceVersion = core.CellFencing, 2 })
			if err := r.step(); err != nil {
				t.Fatal(err)
			}
			if op := r.op("t1"); op.State != core.OperationRunning {
				t.Fatalf("it does not wait for the proof: %+v", op)
			}
			// What reclaim does with the proof's word on t1.return.
			if _, err := r.store.Settle(testkit.Deadline(t), r.leader, "t1.return", "t1.return", outcome); err != nil {
				t.Fatal(err)
			}
			op := r.settle("t1")
			if outcome == core.OutcomeApplied {
				if op.State != core.OperationDone {
					t.Errorf("%+v", op)
				}
				r.has(250, 50, 70, 130)
			} else {
				if op.State != core.OperationFailed || !strings.Contains(op.Detail, "fenced") {
					t.Errorf("%+v", op)
				}
				r.has(250, 50, 100, 100)
			}
		})
	}
}

// A leader that dies between any two steps is followed by one that does what is left, once.
func TestTransferSurvivesItsLeader(t *testing.T) {
	for cut := range 6 {
		t.Run(fmt.Sprint("before step ", cut), func(t *testing.T) {
			r := newRig(t)
			r.sells(300, 250, 100, 100)
			steps := []func(){
				func() { r.transfers(transfer("t1", 30)) },
				func() { _ = r.step() }, // waits for the giver
				func() { r.answer() },
				func() { _ = r.step() }, // the book moves
				func() { r.answer() },
				func() { _ = r.step() }, // done
			}
			for i, step := range steps {
				if i == cut {
					old := r.leader
					r.lead()
					r.leader, old = old, r.leader
					if op, known := r.view.Snapshot().Operation("t1"); known && !op.State.Terminal() && i > 1 && i%2 == 1 {
						if err := r.step(); !errors.Is(err, core.ErrNotLeader) {
							t.Errorf("the old leader steps on: %v", err)
						}
					}
					r.leader = old
				}
				step()
				step() // a retry of each is nothing new
			}
			if op := r.settle("t1"); op.State != core.OperationDone {
				t.Fatalf("%+v", op)
			}
			r.has(250, 50, 70, 130)
		})
	}
}

// A repeat whose operation is gone answers what the journal knows, and is never told that
// it is unknown; the same id with other parameters is a conflict as ever.
func TestARepeatAfterItsOperationIsForgotten(t *testing.T) {
	r := newRig(t)
	r.sells(300, 250, 100, 100)
	r.transfers(transfer("t1", 30))
	r.settle("t1")
	r.transfers(transfer("t2", 60))
	r.shards["cell-1"].sell(70) // so that nothing is left to give
	r.settle("t2")
	lower := r.limit("l1", 260)
	if _, _, err := r.intent.SetSaleLimit(testkit.Deadline(t), who, lower, false); err != nil {
		t.Fatal(err)
	}
	r.settle("l1")
	_, err := r.store.Update(testkit.Deadline(t), "forget", func(tx *store.Tx) error {
		var errs []error
		for _, id := range []string{"t1", "t2", "l1"} {
			_, _, err := tx.Operation(id)
			errs = append(errs, err, tx.DropOperation(id))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
	before := r.book()
	if op := r.transfers(transfer("t1", 30)); op.State != core.OperationDone || op.ID != "t1" || op.StartedAt.IsZero() {
		t.Errorf("a transfer that was done: %+v", op)
	}
	if op := r.transfers(transfer("t2", 60)); op.State != core.OperationFailed || !strings.Contains(op.Detail, "t2.return") {
		t.Errorf("a transfer that was refused: %+v", op)
	}
	if op, _, err := r.intent.SetSaleLimit(testkit.Deadline(t), who, lower, false); err != nil || op.State != core.OperationDone {
		t.Errorf("a limit: %+v, %v", op, err)
	}
	if _, _, err := r.intent.TransferUnits(testkit.Deadline(t), who, transfer("t1", 31), false); !errors.Is(err, core.ErrIDReused) {
		t.Errorf("other parameters: %v", err)
	}
	if after := r.book(); after.Version != before.Version {
		t.Errorf("the book moved from version %d to %d", before.Version, after.Version)
	}
}
