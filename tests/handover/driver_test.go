package handover_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// bought are users of the moving buckets 0 to 1023 who have an order at cell-a, and
// what they are at the new home for ever.
const bought = 7

func (w *world) sell() {
	w.t.Helper()
	for n := range bought {
		if d := w.cells["cell-a"].decide(userIn(n, 0, 1023), "r"); d.Outcome != shard.Ordered {
			w.t.Fatalf("%+v", d)
		}
	}
}

// sameEnd is what every handover of 0-1023 from cell-a to cell-b comes to.
func (w *world) sameEnd(id string) {
	w.t.Helper()
	op := w.operation(id)
	var steps []string
	for _, s := range op.Steps {
		steps = append(steps, s.Name)
	}
	if got := strings.Join(steps, " "); got != "order close carry open turn" || op.State != core.OperationDone {
		w.t.Errorf("%s: %s after %s", id, op.State, got)
	}
	route := w.route()
	_, m, _ := route.Move(2)
	if route.Version != 2 || m.State != core.BucketMoved || m.Buckets() != 1024 || len(route.Domains[0].Moves) != 1 {
		w.t.Errorf("route version %d, %+v", route.Version, route.Domains[0].Moves)
	}
	a, b := w.cells["cell-a"], w.cells["cell-b"]
	if got := a.buckets(); got != "0-1023 CLOSED 2, 1024-2047 OPEN 1" {
		w.t.Errorf("cell-a: %s", got)
	}
	if got := b.buckets(); got != "0-1023 OPEN 2, 2048-4095 OPEN 1" {
		w.t.Errorf("cell-b: %s", got)
	}
	if n, q := b.count("buyers WHERE origin = 'CARRIED'"), b.count("carried_requests"); n != bought || q != bought {
		w.t.Errorf("%d places and %d answered requests arrived, %d bought", n, q, bought)
	}
	for n := range bought {
		if d := b.decide(userIn(n, 0, 1023), "again"); d.Reason != reservation.AlreadyReserved {
			w.t.Errorf("buyer %d at the new home: %+v", n, d)
		}
	}
}

func TestAHandoverFromEndToEnd(t *testing.T) {
	w := newWorld(t, testkit.Etcd(t, 1), 100)
	w.sell()
	late := userIn(bought, 0, 1023)
	in := request("h", "cell-a", "cell-b", 0, 1023)
	preview, err := w.people.HandOver(testkit.Deadline(t), sre, in, true)
	if err != nil || preview.Operation.ID != "" || len(preview.Ranges) != 1 || preview.Ranges[0].Count() != 1024 || preview.Version != 1 {
		t.Fatalf("%+v, %v", preview, err)
	}
	if _, err := w.store.Operation(testkit.Deadline(t), "h"); !errors.Is(err, core.ErrUnknownOperation) {
		t.Fatalf("a dry run left an operation: %v", err)
	}
	w.ask(in)
	w.ask(in) // a lost answer: the same operation
	if _, err := w.people.HandOver(testkit.Deadline(t), sre, request("h", "cell-a", "cell-b", 0, 9), false); !errors.Is(err, core.ErrIDReused) {
		t.Errorf("the id with another range: %v", err)
	}
	w.done("h")
	if d := w.cells["cell-a"].decide(late, "r"); d.Reason != reservation.Moved {
		t.Errorf("a late message of a closed bucket: %+v", d)
	}
	if home := w.home(late); home.id != "cell-b" {
		t.Errorf("home is %s", home.id)
	}
	if d := w.home(late).decide(late, "r"); d.Outcome != shard.Ordered {
		t.Errorf("MOVED is not final, the new home decides: %+v", d)
	}
	w.sameEnd("h")
	w.ask(in) // and after the end
	if op := w.operation("h"); op.State != core.OperationDone || op.Handover.RouteVersion != 2 {
		t.Errorf("a repeat after the end: %+v", op)
	}
}

// K72, K84: a driver that dies at any of its effects, before it or with the answer
// lost, is followed by another leader's, which comes to the very same end.
func TestADriverOfAHandoverMayDieAtEveryEffect(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			ok := t.Run(fmt.Sprintf("effect %d, answer lost %v", n, after), func(t *testing.T) {
				w := newWorld(t, etcd, 100)
				w.sell()
				w.ask(request("h", "cell-a", "cell-b", 0, 1023))
				old := w.leader
				died = w.live("h", n, after)
				w.lead()
				w.done("h")
				w.sameEnd("h")
				// K01: who led before wakes up and goes on; nothing comes of it.
				if err := w.driver(w.store, w.open).Step(testkit.Deadline(t), old, w.operation("h")); err != nil {
					t.Errorf("the old leader: %v", err)
				}
			})
			if !ok {
				return
			}
			if !died {
				if n < 10 {
					t.Fatalf("only %d effects were found: the test looks at nothing", n-1)
				}
				break
			}
		}
	}
}

// K08, K46: a giver whose shard does not answer is waited for, visibly and before
// anything has happened; so is a taker that is not ready. Nothing of it needs a lease.
func TestAHandoverWaitsVisibly(t *testing.T) {
	w := newWorld(t, testkit.Etcd(t, 1), 100)
	w.sell()
	w.ask(request("h", "cell-a", "cell-b", 0, 1023))
	waits := func(why string) {
		t.Helper()
		op := w.step("h")
		if op.State != core.OperationRunning || op.Step != core.StepOrder || !strings.Contains(op.Detail, why) {
			t.Errorf("%s %s %q, want it to wait for %q", op.State, op.Step, op.Detail, why)
		}
		if r := w.route(); len(r.Domains[0].Moves) != 0 || w.cells["cell-a"].count("bucket_closings") != 0 {
			t.Error("something happened while it waits")
		}
	}
	w.hurt(func() { w.silent["cell-a"] = true })
	waits("the shard cannot be reached")
	w.hurt(func() { w.silent["cell-a"], w.silent["cell-b"] = false, true })
	waits("shard of cell-b")
	w.hurt(func() { w.silent["cell-b"], w.behind = false, []string{"cell-b/p4 serves version 1"} })
	waits("cell-b/p4 serves version 1")
	w.hurt(func() { w.behind = nil })
	w.process("cell-b", core.HandoverStep-1)
	waits("knows no handover")
	w.process("cell-b", -1)
	waits("SUSPECT")
	w.process("cell-b", core.HandoverStep)
	w.process("cell-a", -1) // the giver's lease is no evidence, and is not asked
	w.regress("cell-a", core.CellRegressed)
	waits("REGRESSED")
	w.regress("cell-a", core.CellRestoring) // its recovery makes orders again that it lacks
	waits("RESTORING")
	w.regress("cell-a", core.CellActive)
	w.done("h")
	w.sameEnd("h")
}

func (w *world) regress(id ids.CellID, state core.CellState) {
	w.t.Helper()
	w.update(func(tx *store.Tx) error {
		c, _, err := tx.Cell(id)
		c.State, c.Version = state, c.Version+1
		return errors.Join(err, tx.PutCell(c))
	})
}

// Until MOVING is written nothing has happened and it may be aborted; afterwards it
// goes forward only, also when the giver falls silent between its steps.
func TestAbortOfAHandover(t *testing.T) {
	w := newWorld(t, testkit.Etcd(t, 1), 100)
	w.sell()
	ctx := testkit.Deadline(t)
	w.ask(request("h1", "cell-a", "cell-b", 0, 1023))
	w.hurt(func() { w.silent["cell-a"] = true })
	w.step("h1")
	if op, err := w.people.AbortOperation(ctx, sre, "h1", "not tonight"); err != nil || op.State != core.OperationAborted {
		t.Fatalf("%+v, %v", op, err)
	}
	w.hurt(func() { w.silent["cell-a"] = false })
	if op := w.step("h1"); op.State != core.OperationAborted || len(w.route().Domains[0].Moves) != 0 {
		t.Fatalf("an aborted handover went on: %+v", op)
	}
	w.ask(request("h2", "cell-a", "cell-b", 0, 1023))
	if !w.live("h2", 2, false) { // the order is written; the closing is not
		t.Fatal("it did not die")
	}
	if _, err := w.people.AbortOperation(ctx, sre, "h2", "too late"); !errors.Is(err, core.ErrOperationState) {
		t.Fatalf("aborted although the giver may have closed: %v", err)
	}
	w.lead()
	w.regress("cell-b", core.CellDraining)
	if op := w.step("h2"); op.Step != core.StepClose || !strings.Contains(op.Detail, "nothing is closed yet") || w.cells["cell-a"].count("bucket_closings") != 0 {
		t.Errorf("closed for a taker that leaves: %+v", op)
	}
	w.regress("cell-b", core.CellActive)
	w.hurt(func() { w.silent["cell-a"] = true })
	if op := w.step("h2"); op.Step != core.StepClose || !strings.Contains(op.Detail, "cannot be reached") {
		t.Errorf("%+v", op)
	}
	if d := w.cells["cell-b"].decide(userIn(0, 0, 1023), "r"); d.Reason != reservation.Moved {
		t.Errorf("no export, no handover: %+v", d)
	}
	w.hurt(func() { w.silent["cell-a"] = false })
	w.done("h2")
	w.sameEnd("h2")
}

// K01, K22: a fenced giver's buckets go by the same steps; what it holds stays fenced.
func TestAHandoverFromAFencedCell(t *testing.T) {
	w := newWorld(t, testkit.Etcd(t, 1), 100)
	w.sell()
	if _, err := w.cells["cell-a"].Fence(testkit.Deadline(t), "cell-a", 2, "dead"); err != nil {
		t.Fatal(err)
	}
	w.regress("cell-a", core.CellFenced)
	w.process("cell-a", -1)
	w.ask(request("h", "cell-a", "cell-b", 0, 1023))
	w.done("h")
	w.sameEnd("h")
	if _, err := w.cells["cell-a"].apply(w.cells["cell-a"].ask(userIn(bought, 1024, 2047), "r")); !errors.Is(err, shard.ErrFenced) {
		t.Errorf("the fenced giver writes: %v", err)
	}
}

func TestRefusedHandovers(t *testing.T) {
	w := newWorld(t, testkit.Etcd(t, 1), 100)
	refused := func(name string, in intent.HandOver, want error) {
		t.Helper()
		if _, err := w.people.HandOver(testkit.Deadline(t), sre, in, false); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	refused("to a cell that takes no part", request("h", "cell-a", "cell-c", 0, 9), core.ErrNotTakingPart)
	refused("to nobody", request("h", "cell-a", "cell-x", 0, 9), core.ErrUnknownCell)
	refused("of another's buckets", request("h", "cell-a", "cell-b", 2048, 4095), core.ErrNothingToMove)
	old := request("h", "cell-a", "cell-b", 0, 9)
	old.ExpectedVersion = 7
	refused("of another version", old, core.ErrVersion)
	w.process("cell-b", -1)
	refused("to a cell that is SUSPECT", request("h", "cell-a", "cell-b", 0, 9), core.ErrCellState)
	w.process("cell-b", core.HandoverStep)
	for _, s := range []core.CellState{core.CellRetired, core.CellRegressed, core.CellRestoring} {
		w.regress("cell-a", s)
		refused("from "+s.String(), request("h", "cell-a", "cell-b", 0, 9), core.ErrCellState)
	}
	w.regress("cell-a", core.CellActive)

	w.ask(request("h1", "cell-a", "cell-b", 0, 99))
	w.ask(request("h2", "cell-a", "cell-b", 50, 149)) // asked before the first began
	w.live("h1", 2, false)
	w.lead()
	refused("of buckets that move", request("h3", "cell-a", "cell-b", 99, 200), core.ErrMoving)
	if op := w.step("h2"); op.Step != core.StepOrder || !strings.Contains(op.Detail, "being handed over") {
		t.Errorf("the second waits for the first: %+v", op)
	}
	w.done("h1")
	w.done("h2") // moves what is left of its range
	if got := w.cells["cell-b"].buckets(); got != "0-99 OPEN 2, 100-149 OPEN 3, 2048-4095 OPEN 1" {
		t.Errorf("cell-b: %s", got)
	}
	w.ask(request("h4", "cell-a", "cell-b", 150, 199))
	w.update(func(tx *store.Tx) error {
		c, _, err := tx.Campaign(campaign)
		c.State, c.Version = core.CampaignSettled, c.Version+1
		return errors.Join(err, tx.PutCampaign(c))
	})
	if op := w.step("h4"); op.State != core.OperationFailed {
		t.Errorf("of a settled campaign: %+v", op)
	}
	refused("of a settled campaign", request("h5", "cell-a", "cell-b", 150, 199), core.ErrCampaignState)
}

// What the shard closed is what moves. One that closed something else than the route
// says, or a user with two places, stops it, by name, with nobody selling.
func TestAHandoverThatMustNotGoOn(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	t.Run("the shard owns less", func(t *testing.T) {
		w := newWorld(t, etcd, 100)
		if _, err := w.cells["cell-a"].admin.Exec(t.Context(), "UPDATE cellquota.buckets SET bucket_from = 100"); err != nil {
			t.Fatal(err)
		}
		w.ask(request("h", "cell-a", "cell-b", 0, 1023))
		if op := w.step("h"); op.Step != core.StepClose || op.State != core.OperationRunning || !strings.Contains(op.Detail, "differ") {
			t.Errorf("%+v", op)
		}
	})
	t.Run("a user has two orders", func(t *testing.T) {
		w := newWorld(t, etcd, 100)
		w.sell()
		if _, err := w.cells["cell-b"].admin.Exec(t.Context(), "INSERT INTO cellquota.buyers VALUES ('c', 's', $1, 'OWN', 'cell-b.rother', now())", string(userIn(0, 0, 1023))); err != nil {
			t.Fatal(err)
		}
		w.ask(request("h", "cell-a", "cell-b", 0, 1023))
		var op core.Operation
		for range 5 {
			op = w.step("h")
		}
		if op.Step != core.StepCarry || op.State != core.OperationRunning || !strings.Contains(op.Detail, "cell-b.rother") {
			t.Errorf("%+v", op)
		}
		if got := w.cells["cell-b"].buckets(); !strings.Contains(got, "0-1023 IMPORTING") {
			t.Errorf("cell-b sells: %s", got)
		}
	})
	t.Run("the giver is lost before its pages came", func(t *testing.T) {
		w := newWorld(t, etcd, 100)
		w.sell()
		w.ask(request("h", "cell-a", "cell-b", 0, 1023))
		w.live("h", 4, false) // closed
		w.lead()
		w.hurt(func() { w.silent["cell-a"] = true })
		if op := w.step("h"); op.State != core.OperationRunning || op.Step != core.StepCarry {
			t.Fatalf("%+v", op)
		}
		w.regress("cell-a", core.CellRetired)
		if op := w.step("h"); op.State != core.OperationFailed || !strings.Contains(op.Detail, "gone for good") {
			t.Errorf("%+v", op)
		}
		if _, m, _ := w.route().Move(2); m.State != core.BucketMoving {
			t.Errorf("its users have a home: %+v", m)
		}
	})
}
