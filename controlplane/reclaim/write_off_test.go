package reclaim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/testkit"
)

var second = intent.Caller{Name: "sre-2", Method: "test"}

// lost is a world whose cell-1 died with its shard and stays FENCING: 30 units, a
// grant of 4 that it never applied, and a return of 3 that it was asked for.
func (w *world) lost() *world {
	w.t.Helper()
	w.shards["cell-1"].sell(1, "u", 8, 3)
	w.grant("cell-1", "g1", 4, false)
	w.propose("cell-1", "r1", 3, false)
	w.dies("cell-1")
	w.shards["cell-1"].reachable(false)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1"})
	w.step("f1")
	return w
}

// step drives an operation once.
func (w *world) step(id string) core.Operation {
	w.t.Helper()
	ctx := testkit.Deadline(w.t)
	op, err := w.store.Operation(ctx, id)
	if err == nil {
		err = w.driver().Step(ctx, w.leader, op)
	}
	if err == nil {
		op, err = w.store.Operation(ctx, id)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return op
}

func (w *world) writeOff(id string) (core.Operation, error) {
	w.t.Helper()
	return w.orders.WriteOff(testkit.Deadline(w.t), who, "cell-1", id, "burnt", false)
}

func (w *world) approve(id string) {
	w.t.Helper()
	if _, err := w.people.Approve(testkit.Deadline(w.t), second, id, "saw the ashes"); err != nil {
		w.t.Fatal(err)
	}
}

// K08: the shard is gone for good. What the cell held, a grant that never arrived
// included, is given up when two people say so, and nobody else ever gets it.
func TestK08WriteOff(t *testing.T) {
	w := newWorld(t).publish().lost()
	before := w.book()
	preview, err := w.orders.PreviewWriteOff(testkit.Deadline(t), "cell-1")
	if err != nil || len(preview) != 1 || preview[0].Units.Int64() != 34 {
		t.Fatalf("%v, %v", preview, err)
	}
	op, err := w.writeOff("w1")
	if err != nil || !op.NeedsApproval || op.Kind != core.OperationWriteOff {
		t.Fatalf("%+v, %v", op, err)
	}
	if again, err := w.writeOff("w1"); err != nil || again.ID != "w1" {
		t.Fatalf("a repeat: %+v, %v", again, err)
	}
	if _, err := w.writeOff("w2"); !errors.Is(err, core.ErrCellState) || !strings.Contains(err.Error(), "w1") {
		t.Fatalf("a second write-off: %v", err)
	}
	if op = w.step("w1"); op.State.Terminal() || w.cell("cell-1").State != core.CellFencing {
		t.Fatalf("without approval: %+v", op)
	}
	if _, err := w.people.Approve(testkit.Deadline(t), who, "w1", "me too"); !errors.Is(err, core.ErrSelfApproval) {
		t.Fatalf("approved by who asked: %v", err)
	}
	w.approve("w1")
	w.done("w1")
	w.wantLost(t, before)
	if f := w.finish(w.driver(), "f1"); f.State != core.OperationFailed || !strings.Contains(f.Detail, "w1") {
		t.Fatalf("the fence: %s %s", f.State, f.Detail)
	}
	if _, err := w.orders.Fence(testkit.Deadline(t), who, reclaim.FenceOrder{Cell: "cell-1", OperationID: "f2", Reason: "again"}, false); !errors.Is(err, fencing.ErrRetired) {
		t.Fatalf("a fence of it: %v", err)
	}
	if _, err := w.orders.Restore(testkit.Deadline(t), who, "cell-1", "r2", "", "again", false); !errors.Is(err, fencing.ErrRetired) {
		t.Fatalf("a restore of it: %v", err)
	}
	w.shards["cell-1"].reachable(true) // it is back after all, and its row was never fenced
	w.shards["cell-1"].sell(1, "late", 22, 0)
	if l := w.shards["cell-1"].levels(); l.reserved+l.confirmed > 34 {
		t.Fatalf("it sold %+v, 34 were written off", l)
	}
	w.i1()
}

// wantLost is what a write-off comes to, on whatever way.
func (w *world) wantLost(t *testing.T, before core.Book) {
	t.Helper()
	book := w.book()
	a, _ := book.Allocation("cell-1")
	if a.Granted.Int64() != 34 || a.WrittenOff != a.Granted || book.Reserve != before.Reserve || w.granted("cell-2") != 30 || w.granted("cell-3") != 30 {
		t.Fatalf("%+v", book)
	}
	cell := w.cell("cell-1")
	if cell.State != core.CellRetired || cell.OperationID != "" || cell.FenceVersion != 2 || !cell.Reclaimed {
		t.Fatalf("%+v", cell)
	}
	proof, err := w.store.Proof(testkit.Deadline(t), "cell-1", 2)
	said := proof.Attestation
	if err != nil || proof.Evidence != core.EvidenceAttestedLoss || said.Operator != "sre-1" || said.Approver != "sre-2" || said.Reason != "burnt" || said.ApprovalReason != "saw the ashes" || said.ApprovedAt.IsZero() {
		t.Fatalf("%+v, %v", proof, err)
	}
	ends := map[string]string{}
	for _, r := range w.view.Snapshot().Records("c", 0, 1000) {
		for _, j := range r.Adjustments {
			if j.Evidence == core.EvidenceAttestedLoss {
				ends[j.ID] += fmt.Sprintf("%s %s %s", j.Kind, j.State, j.Units)
			}
		}
	}
	want := map[string]string{"g1": "GRANT DONE 4", "r1": "RETURN VOIDED 3", "writeoff.cell-1.2.c.s": "WRITE_OFF DONE 34"}
	if fmt.Sprint(ends) != fmt.Sprint(want) {
		t.Fatalf("the journal says %v, want %v", ends, want)
	}
	w.i1()
}

// A write-off is for a cell whose fence nobody can prove; each other is refused by name.
func TestWriteOffIsRefused(t *testing.T) {
	w := newWorld(t).publish()
	refused := func(name string, want error, text string) {
		t.Helper()
		if _, err := w.writeOff("w-" + name); !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if _, err := w.store.Operation(testkit.Deadline(t), "w-"+name); err == nil {
			t.Errorf("%s: an operation stands", name)
		}
	}
	refused("active", fencing.ErrFenceFirst, "")
	if _, err := w.orders.WriteOff(testkit.Deadline(t), who, "cell-9", "w", "r", false); !errors.Is(err, core.ErrUnknownCell) {
		t.Errorf("no such cell: %v", err)
	}
	w.dies("cell-1")
	refused("suspect", fencing.ErrFenceFirst, "")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1"})
	refused("its shard answers", core.ErrCellState, "its shard answers")
	w.done("f1")
	refused("fenced", core.ErrCellState, "only a FENCING cell")
}

// The shard comes back between the question and the answer: its fence proves, and
// nothing is written off.
func TestWriteOffOfAShardThatComesBack(t *testing.T) {
	for name, fenced := range map[string]bool{"answers": false, "was fenced": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).publish().lost()
			if _, err := w.writeOff("w1"); err != nil {
				t.Fatal(err)
			}
			w.approve("w1")
			w.shards["cell-1"].reachable(true)
			if fenced {
				w.done("f1")
			}
			if op := w.finish(w.driver(), "w1"); op.State != core.OperationFailed || !strings.Contains(op.Detail, "nothing is written off") {
				t.Fatalf("%s %s", op.State, op.Detail)
			}
			w.done("f1")
			if _, err := w.orders.Reclaim(testkit.Deadline(t), who, "cell-1", "rec", false, "back"); err != nil {
				t.Fatal(err)
			}
			w.done("rec")
			if a, _ := w.book().Allocation("cell-1"); a.Granted.Int64() != 8 || !a.WrittenOff.IsZero() {
				t.Fatalf("%+v", a)
			}
		})
	}
}

// A driver that dies between any two steps of a write-off, before it or with the
// answer lost, is followed by another, which comes to the same end.
func TestWriteOffMayDieAtEveryEffect(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	for _, after := range []bool{false, true} {
		for n, died := 1, true; died; n++ {
			ok := t.Run(fmt.Sprintf("effect %d, answer lost %v", n, after), func(t *testing.T) {
				w := newWorldIn(t, etcd, false).publish().lost()
				before := w.book()
				if _, err := w.writeOff("w1"); err != nil {
					t.Fatal(err)
				}
				w.approve("w1")
				died = w.live("w1", n, after)
				w.lead()
				w.done("w1")
				w.wantLost(t, before)
			})
			if !ok {
				return
			}
			if !died && n < 4 {
				t.Fatalf("only %d effects were found: the test looks at nothing", n-1)
			}
		}
	}
}

// More records open of the cell than one transaction takes are all ended.
func TestWriteOffEndsManyOpenRecords(t *testing.T) {
	w := newWorld(t).publish()
	w.dies("cell-1")
	for i := range 60 {
		w.propose("cell-1", fmt.Sprintf("many-%02d", i), 1, false)
	}
	w.shards["cell-1"].reachable(false)
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1"})
	if _, err := w.writeOff("w1"); err != nil {
		t.Fatal(err)
	}
	w.approve("w1")
	w.done("w1")
	if open := w.view.Snapshot().OpenRecords(); len(open) != 0 || w.granted("cell-1") != 30 {
		t.Fatalf("%d records are open, cell-1 has %d", len(open), w.granted("cell-1"))
	}
	w.i1()
}

// TestARegressedCellIsWrittenOff: buckets were handed over and the copy does not know, so that no recovery
// gets on. The shard answers, and is given up all the same.
func TestARegressedCellIsWrittenOff(t *testing.T) {
	w := newWorld(t).publish()
	w.dies("cell-1")
	wentBack(w, "copy_given_up")
	if err := w.store.RaiseWitness(testkit.Deadline(t), w.leader, "cell-1", fencing.Witness{Identity: "1/1", Version: 1, Routes: map[string]int64{"c": 2}}); err != nil {
		t.Fatal(err)
	}
	w.restore("r")
	if op := w.step("r"); !strings.Contains(op.Detail, "handed over") {
		t.Fatalf("%s: %s", op.State, op.Detail)
	}
	if _, err := w.writeOff("w1"); err != nil {
		t.Fatal(err)
	}
	w.approve("w1")
	w.done("w1")
	a, _ := w.book().Allocation("cell-1")
	if c := w.cell("cell-1"); c.State != core.CellRetired || c.FenceVersion != 3 || a.WrittenOff != a.Granted || a.Granted.IsZero() {
		t.Errorf("%s at version %d: %+v", c.State, c.FenceVersion, a)
	}
	if r := w.finish(w.driver(), "r"); r.State != core.OperationFailed {
		t.Errorf("the restore: %s %s", r.State, r.Detail)
	}
	w.i1()
}
