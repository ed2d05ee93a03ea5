package quota_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

func move(from, to ids.CellID, units int64) core.RebalanceMove {
	return core.RebalanceMove{SKU: key.SKU, From: from, To: to, Units: q(units), Why: "test"}
}

func (r *rig) rebalances(id string, moves ...core.RebalanceMove) core.Operation {
	r.t.Helper()
	op, err := r.intent.ApplyRebalance(testkit.Deadline(r.t), who, plan(id, nil, moves...), false)
	if err != nil {
		r.t.Fatal(err)
	}
	return op
}

func plan(id string, versions map[ids.SKUID]int64, moves ...core.RebalanceMove) intent.Rebalance {
	return intent.Rebalance{
		OperationID: id, Campaign: key.Campaign, Moves: moves, Versions: versions, Reason: "why",
		Parameters: intent.RebalanceParameters(key.Campaign, "", moves), Empty: "nothing to move",
	}
}

func says(t *testing.T, op core.Operation, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(op.Detail, w) {
			t.Errorf("it says %q, without %q", op.Detail, w)
		}
	}
}

// rounds counts the journal's records of one operation.
func (r *rig) rounds(id string) (n int) {
	for _, record := range r.view.Snapshot().Records(key.Campaign, 0, 1000) {
		if record.OperationID == id {
			n++
		}
	}
	return n
}

// a plan of every sort of move is carried out, each unit once, in one transaction per tick; DONE says
// what went where.
func TestRebalance(t *testing.T) {
	r := newRig(t)
	r.sells(400, 350, 100, 100, 100)
	version := r.book().Version
	moves := []core.RebalanceMove{
		move("cell-1", "cell-2", 30), move("cell-1", "cell-3", 20), move("cell-3", "", 10), move("", "cell-2", 50),
	}
	op := r.rebalances("r1", moves...)
	if op.Kind != core.OperationRebalance || op.State != core.OperationPending || op.Subject != string(key.Campaign) {
		t.Fatalf("accepted as %+v", op)
	}
	r.has(350, 50, 100, 100, 100)
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	// The first tick asks every giver and grants what the reserve has: one version of the book.
	if got := r.book().Version; got != version+1 {
		t.Errorf("the book went from version %d to %d in one tick", version, got)
	}
	r.has(350, 0, 100, 150, 100)
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	if op := r.op("r1"); op.Step != "moves" || !strings.Contains(op.Detail, "has not answered") {
		t.Errorf("it waits at %q: %s", op.Step, op.Detail)
	}
	done := r.settle("r1")
	if done.State != core.OperationDone {
		t.Fatalf("%+v", done)
	}
	says(t, done, "110 of 110 units", "30 from cell-1 to cell-2", "10 from cell-3 to the reserve", "50 from the reserve to cell-2")
	r.has(350, 10, 50, 180, 110)
	for id, granted := range map[ids.CellID]int64{"cell-1": 50, "cell-2": 180, "cell-3": 110} {
		if r.shards[id].granted != granted {
			t.Errorf("the shard of %s has %d", id, r.shards[id].granted)
		}
	}
	if again := r.rebalances("r1", moves...); again.State != core.OperationDone {
		t.Errorf("a repeat answers %s", again.State)
	}
	if _, err := r.intent.ApplyRebalance(testkit.Deadline(t), who, plan("r1", nil, moves[0]), false); !errors.Is(err, core.ErrIDReused) {
		t.Errorf("other parameters: %v", err)
	}
}

// An operation is forgotten after operations.keep, its journal stays with the campaign: the same id given to a
// later plan moves its units, instead of finding those of the first one.
func TestARebalanceUnderAForgottenID(t *testing.T) {
	r := newRig(t)
	r.sells(400, 300, 100, 100, 100)
	r.rebalances("r1", move("cell-1", "cell-2", 10))
	r.settle("r1")
	r.has(300, 0, 90, 110, 100)
	if _, err := r.store.Update(testkit.Deadline(t), "prune", func(tx *store.Tx) error {
		_, _, err := tx.Operation("r1")
		return errors.Join(err, tx.DropOperation("r1"))
	}); err != nil {
		t.Fatal(err)
	}
	r.rebalances("r1", move("cell-1", "cell-3", 20))
	says(t, r.settle("r1"), "20 of 20 units")
	r.has(300, 0, 70, 110, 120)
}

// A slow giver holds nobody else's units back.
func TestRebalanceMovesGoOnSideBySide(t *testing.T) {
	r := newRig(t)
	r.sells(400, 300, 100, 100, 100)
	r.shards["cell-1"].silent = true
	r.rebalances("r1", move("cell-1", "cell-3", 30), move("cell-2", "cell-3", 20))
	for range 4 {
		if err := r.step(); err != nil {
			t.Fatal(err)
		}
		r.answer()
	}
	r.has(300, 0, 100, 80, 120)
	if op := r.op("r1"); op.State != core.OperationRunning || !strings.Contains(op.Detail, "cell-1") {
		t.Fatalf("%+v", op)
	}
	r.shards["cell-1"].silent = false
	if op := r.settle("r1"); op.State != core.OperationDone {
		t.Fatalf("%+v", op)
	}
	r.has(300, 0, 70, 80, 150)
}

// What does not come about is skipped and named, with the place of the units; the other move comes about.
func TestRebalanceThatSkips(t *testing.T) {
	for _, row := range []struct {
		name            string
		before, between func(r *rig) // the first tick; the giver's answer and the grant
		reserve         int64
		granted         [3]int64
		words           []string
	}{
		{"the giver sold them meanwhile", func(r *rig) { r.shards["cell-1"].sell(80) }, nil, 0, [3]int64{100, 80, 120}, []string{"30 from cell-1 to cell-3: cell cell-1 has fewer available"}},
		{"the giver is SUSPECT", func(r *rig) { r.suspect("cell-1") }, nil, 0, [3]int64{100, 80, 120}, []string{"30 from cell-1", "SUSPECT"}},
		{
			"the giver is being fenced", func(r *rig) { r.cell("cell-1", func(c *core.Cell) { c.State, c.FenceVersion = core.CellFencing, 2 }) }, nil,
			0,
			[3]int64{100, 80, 120},
			[]string{"30 from cell-1", "FENCING"},
		},
		{
			"somebody took them from the reserve", nil, func(r *rig) { r.topUp("other", 2, 50) }, 0,
			[3]int64{70, 130, 100},
			[]string{"0 of 50 units", "30 from cell-1 to cell-3: they are in the reserve", "20 from cell-2 to cell-3: they are in the reserve"},
		},
		{
			"the taker is fenced meanwhile", nil, func(r *rig) { r.cell("cell-3", func(c *core.Cell) { c.State, c.FenceVersion = core.CellFencing, 2 }) }, 50,
			[3]int64{70, 80, 100},
			[]string{"0 of 50 units", "they are in the reserve", "FENCING"},
		},
		{"the taker is SUSPECT meanwhile", nil, func(r *rig) { r.suspect("cell-3") }, 50, [3]int64{70, 80, 100}, []string{"0 of 50 units", "they are in the reserve", "SUSPECT"}},
		{"the taker is SUSPECT at first", func(r *rig) { r.suspect("cell-3") }, nil, 0, [3]int64{100, 100, 100}, []string{"0 of 50 units", "SUSPECT"}},
		{"the campaign was closed", nil, func(r *rig) { r.closes() }, 50, [3]int64{70, 80, 100}, []string{"0 of 50 units", "they are in the reserve", "CLOSED"}},
		{"the limit is being lowered", func(r *rig) { r.setLimit("l", 250) }, nil, 0, [3]int64{100, 100, 100}, []string{"0 of 50 units", "limit_target"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.sells(400, 300, 100, 100, 100)
			r.rebalances("r1", move("cell-1", "cell-3", 30), move("cell-2", "cell-3", 20))
			if row.before != nil {
				row.before(r)
			}
			if err := r.step(); err != nil {
				t.Fatal(err)
			}
			if op := r.op("r1"); !op.State.Terminal() {
				r.answer()
				if row.between != nil {
					row.between(r)
				}
			}
			op := r.op("r1")
			for range 10 {
				if op.State.Terminal() {
					break
				}
				if err := r.step(); err != nil {
					t.Fatal(err)
				}
				r.answer()
				op = r.op("r1")
			}
			moved := row.granted[2] == 120
			if want := core.OperationDone; moved && op.State != want || !moved && op.State != core.OperationFailed {
				t.Fatalf("%+v", op)
			}
			says(t, op, row.words...)
			if moved {
				says(t, op, "20 of 50 units", "20 from cell-2 to cell-3")
			}
			if row.name != "the limit is being lowered" {
				r.has(300, row.reserve, row.granted[:]...)
			}
		})
	}
}

// The giver is fenced with its return under way: the proof's word ends the move, either way.
func TestRebalanceWhoseGiverIsFenced(t *testing.T) {
	for _, outcome := range []core.Outcome{core.OutcomeApplied, core.OutcomeVoided} {
		t.Run(outcome.String(), func(t *testing.T) {
			r := newRig(t)
			r.sells(400, 300, 100, 100, 100)
			r.rebalances("r1", move("cell-1", "cell-3", 30))
			if err := r.step(); err != nil {
				t.Fatal(err)
			}
			open := r.view.Snapshot().OpenRecords()
			if len(open) != 1 || len(open[0].Adjustments) != 1 {
				t.Fatalf("%+v", open)
			}
			asked := open[0].Adjustments[0]
			if outcome == core.OutcomeApplied { // the shard did, and the fence came before the answer
				r.shards["cell-1"].decide(asked)
			}
			r.shards["cell-1"].fenced = true
			r.cell("cell-1", func(c *core.Cell) { c.State, c.FenceVersion = core.CellFencing, 2 })
			if err := r.step(); err != nil {
				t.Fatal(err)
			}
			if op := r.op("r1"); op.State != core.OperationRunning {
				t.Fatalf("it does not wait for the proof: %+v", op)
			}
			if _, err := r.store.Settle(testkit.Deadline(t), r.leader, open[0].ID, asked.ID, outcome); err != nil {
				t.Fatal(err)
			}
			op := r.settle("r1")
			if outcome == core.OutcomeApplied {
				says(t, op, "30 of 30 units")
				r.has(300, 0, 70, 100, 130)
			} else {
				says(t, op, "0 of 30 units", "fenced before it gave them up")
				r.has(300, 0, 100, 100, 100)
			}
		})
	}
}

// A leader that dies before any step is followed by one that does what is left, once; the old one does
// nothing more.
func TestRebalanceSurvivesItsLeader(t *testing.T) {
	for cut := range 7 {
		t.Run(fmt.Sprint("before step ", cut), func(t *testing.T) {
			r := newRig(t)
			r.sells(400, 300, 100, 100, 50)
			steps := []func(){
				func() {
					r.rebalances("r1", move("cell-1", "cell-3", 30), move("cell-2", "cell-3", 20), move("", "cell-3", 50))
				},
				func() { _ = r.step() }, // asks, and grants of the reserve
				func() { r.answer() },
				func() { _ = r.step() }, // grants what came
				func() { r.answer() },
				func() { _ = r.step() }, // done
				func() { r.answer() },
			}
			for i, step := range steps {
				if i == cut {
					old := r.leader
					r.lead()
					if op, known := r.view.Snapshot().Operation("r1"); known && !op.State.Terminal() && i%2 == 1 {
						r.leader, old = old, r.leader
						if err := r.step(); !errors.Is(err, core.ErrNotLeader) {
							t.Errorf("the old leader steps on: %v", err)
						}
						r.leader = old
					}
				}
				step()
				step() // a retry of each is nothing new
			}
			if op := r.settle("r1"); op.State != core.OperationDone {
				t.Fatalf("%+v", op)
			}
			r.has(300, 0, 70, 80, 150)
			if n := r.rounds("r1"); n != 2 {
				t.Errorf("%d rounds", n)
			}
			if r.shards["cell-3"].granted != 150 {
				t.Errorf("the taker's shard has %d", r.shards["cell-3"].granted)
			}
		})
	}
}

// Nothing is accepted that was planned on another book, of nobody's cells, or off the sale.
func TestRebalanceRefusals(t *testing.T) {
	r := newRig(t)
	r.sells(400, 300, 100, 100, 50)
	ctx := testkit.Deadline(t)
	version := r.book().Version
	for name, row := range map[string]struct {
		plan intent.Rebalance
		want error
	}{
		"another version of the book": {plan("a", map[ids.SKUID]int64{key.SKU: version + 1}, move("cell-1", "cell-2", 1)), core.ErrVersion},
		"an unknown cell":             {plan("b", nil, move("cell-1", "cell-9", 1)), core.ErrUnknownCell},
		"an unknown SKU":              {plan("c", nil, core.RebalanceMove{SKU: "tablet", From: "cell-1", Units: q(1)}), core.ErrUnknownSKU},
	} {
		for _, dry := range []bool{true, false} {
			if _, err := r.intent.ApplyRebalance(ctx, who, row.plan, dry); !errors.Is(err, row.want) {
				t.Errorf("%s, dry run %t: %v", name, dry, err)
			}
		}
	}
	good := plan("d", map[ids.SKUID]int64{key.SKU: version}, move("cell-1", "cell-2", 1))
	if op, err := r.intent.ApplyRebalance(ctx, who, good, true); err != nil || op.ID != "" {
		t.Errorf("dry run: %+v, %v", op, err)
	}
	if _, err := r.store.Operation(ctx, "d"); !errors.Is(err, core.ErrUnknownOperation) {
		t.Errorf("a dry run wrote an operation: %v", err)
	}
	if op, err := r.intent.ApplyRebalance(ctx, who, plan("e", nil), false); err != nil || op.State != core.OperationDone || op.Detail != "nothing to move" {
		t.Errorf("an empty plan: %+v, %v", op, err)
	}
	// One that has begun cannot be aborted, one that has not can.
	r.rebalances("f", move("cell-1", "cell-2", 1))
	if _, err := r.intent.AbortOperation(ctx, who, "f", "no"); err != nil {
		t.Errorf("before its first step: %v", err)
	}
	r.rebalances("g", move("cell-1", "cell-2", 1))
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.intent.AbortOperation(ctx, who, "g", "no"); !errors.Is(err, core.ErrOperationState) {
		t.Errorf("after its first step: %v", err)
	}
	r.settle("g")
	r.closes()
	if _, err := r.intent.ApplyRebalance(ctx, who, plan("h", nil, move("cell-1", "cell-2", 1)), false); !errors.Is(err, core.ErrCampaignState) {
		t.Errorf("a closed campaign: %v", err)
	}
}
