package recovery_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// The life of a fenced cell, one stage after the other. A backup is taken after one
// of them, and etcd is lost after a later one.
var stages = []struct {
	name string
	next func(w *world)
}{
	{"sells", func(*world) {}},
	{"fence ordered", func(w *world) { w.fence("f1", false) }},
	{"fenced", func(w *world) { w.carryOn(0, "f1") }},
	{"reclaimed", func(w *world) { w.reclaim("r1"); w.carryOn(0, "r1") }},
	{"settles", func(w *world) { w.giveBack("g1"); w.settles("g1") }},
	{"restored", func(w *world) { w.carryOn(0, "g1") }},
}

// A fence, a reclaim and a restore may each stand before the backup, be lost with what
// came after it, or be cut in two. Whatever etcd remembers of them, after the recovery
// the cell sells again or is restorable, no unit is lost or there twice, and the next
// fence and reclaim come out.
func TestAFenceThatTheBackupCutsInTwo(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	type life struct {
		*world
		name         string
		backup, lost int
	}
	var lives []life
	var worlds []*world
	for policy, cuts := range map[core.Reclaim][][2]int{
		core.ReclaimManual: {{0, 2}, {0, 4}, {1, 2}, {2, 2}, {2, 5}},
		core.ReclaimNever:  {{0, 5}},
	} {
		for _, cut := range cuts {
			b, l := cut[0], cut[1]
			w := newWorldIn(t, etcd, fmt.Sprintf("/w%d-%d-%d", policy, b, l), policy)
			lives, worlds = append(lives, life{w, fmt.Sprintf("%s: backup when %s, lost when %s", policy, stages[b].name, stages[l].name), b, l}), append(worlds, w)
		}
	}
	for _, l := range lives {
		for range 3 {
			l.lead()
		}
		l.sell("cell-1", 120)
		for i := range l.backup + 1 {
			stages[i].next(l.world)
		}
	}
	kept := filepath.Join(t.TempDir(), "backup")
	restart(t, etcd, func() error { return os.CopyFS(kept, os.DirFS(etcd.DataDir(0))) }, worlds...)
	for _, l := range lives {
		l.lead()
		if err := l.grant("a1", "cell-2", 50); err != nil {
			t.Fatal(err)
		}
		l.apply("cell-2", "a1", 2, 50, "a1")
		for i := l.backup + 1; i <= l.lost; i++ {
			stages[i].next(l.world)
		}
	}
	restart(t, etcd, func() error {
		return errors.Join(os.RemoveAll(etcd.DataDir(0)), os.CopyFS(etcd.DataDir(0), os.DirFS(kept)))
	}, worlds...)
	for _, l := range lives {
		t.Run(l.name, func(t *testing.T) {
			l.t = t
			l.marked()
			l.recover("op", 1_000, func(op core.Operation) error {
				if op.State != core.OperationDone {
					return fmt.Errorf("operation is %s: %s", op.State, op.Detail)
				}
				return nil
			})
			l.sellsAgain()
		})
	}
}

// sellsAgain brings cell-1 to ACTIVE by what an operator can order, grants it units, and
// fences it once more.
func (w *world) sellsAgain() {
	w.t.Helper()
	ctx := testkit.Deadline(w.t)
	w.lead()
	for _, op := range w.now().OpenOperations() {
		w.carryOn(0, op.ID)
	}
	switch cell := w.cell(); cell.State {
	case core.CellFenced:
		w.reclaim("r2") // what the recovery booked is not booked again
		w.carryOn(0, "r2")
		w.balanced()
		w.giveBack("g2")
		w.carryOn(0, "g2")
	case core.CellActive:
	default:
		w.t.Fatalf("cell %s at fence version %d, operation %q: neither sells nor can be restored", cell.State, cell.FenceVersion, cell.OperationID)
	}
	if cell := w.cell(); cell.State != core.CellActive || cell.OperationID != "" {
		w.t.Fatalf("cell %+v", cell)
	}
	if err := w.grant("a9", "cell-1", 10); err != nil {
		w.t.Fatal(err)
	}
	w.fence("f9", true)
	w.carryOn(0, "f9")
	w.balanced()
	if book, err := w.store.Book(ctx, key); err != nil || len(w.now().OpenRecords()) != 0 {
		w.t.Errorf("book %+v, %v: something is open", book, err)
	}
}

// balanced holds the book against the shards: I1, I2 and I3, and every unit named.
func (w *world) balanced() {
	w.t.Helper()
	book, err := w.store.Book(testkit.Deadline(w.t), key)
	if err != nil {
		w.t.Fatal(err)
	}
	frozen := int64(0)
	for _, id := range []ids.CellID{"cell-1", "cell-2"} {
		allocation, _ := book.Allocation(id)
		granted, sold := w.holds(id)
		if granted > allocation.Granted.Int64() {
			w.t.Errorf("I2: the shard of %s was granted %d, the book allocates %s", id, granted, allocation.Granted)
		}
		if id == "cell-1" && w.cell().State == core.CellFenced && granted != sold {
			w.t.Errorf("a fenced shard holds %d and sold %d", granted, sold)
		}
		frozen += allocation.Granted.Int64() - granted
	}
	if book.Check() != nil || book.SaleLimit.Int64() != 1_000 || w.policy != core.ReclaimNever && frozen != 0 {
		w.t.Errorf("book %+v, %d units are in no shard and not in the reserve: %v", book, frozen, book.Check())
	}
}

func (w *world) cellDriver(grace time.Duration) *reclaim.Driver {
	return reclaim.New(reclaim.Config{RetryInterval: time.Millisecond, CloseGrace: max(grace, time.Millisecond)}, w.store, w.view, reclaim.Files{}, clock.System(), nil)
}

func (w *world) cellOrders() *reclaim.Orders {
	return &reclaim.Orders{Store: w.store, View: w.view, Shards: reclaim.Files{}}
}

var sre = intent.Caller{Name: "sre-1", Method: "test"}

func (w *world) fence(id string, andReclaim bool) {
	w.t.Helper()
	w.now()
	if _, err := w.cellOrders().Fence(testkit.Deadline(w.t), sre, reclaim.FenceOrder{Cell: "cell-1", OperationID: id, Force: true, Reclaim: andReclaim, Reason: "drill"}, false); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) reclaim(id string) {
	w.t.Helper()
	if _, err := w.cellOrders().Reclaim(testkit.Deadline(w.t), sre, "cell-1", id, false, "drill"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) giveBack(id string) {
	w.t.Helper()
	if _, err := w.cellOrders().Restore(testkit.Deadline(w.t), sre, "cell-1", id, "", "drill", false); err != nil {
		w.t.Fatal(err)
	}
}

// carryOn drives an operation to its end; it must be DONE.
func (w *world) carryOn(grace time.Duration, id string) {
	w.t.Helper()
	w.drive(grace, id, func(op core.Operation) error {
		if op.State != core.OperationDone {
			return fmt.Errorf("%s %s is %s at %s: %s", op.Kind, op.ID, op.State, op.Step, op.Detail)
		}
		return nil
	})
}

// settles drives a restore until the shard only settles, and leaves it there.
func (w *world) settles(id string) {
	w.t.Helper()
	w.drive(time.Hour, id, func(op core.Operation) error {
		if op.Step != "SETTLE_ONLY" {
			return fmt.Errorf("%s: %s", op.Step, op.Detail)
		}
		return nil
	})
}

func (w *world) drive(grace time.Duration, id string, until func(core.Operation) error) {
	w.t.Helper()
	leader := w.present()
	driver := w.cellDriver(grace)
	testkit.Eventually(w.t, wait, func() error {
		ctx := testkit.Deadline(w.t)
		op, err := w.store.Operation(ctx, id)
		if err != nil {
			return err
		}
		if err = until(op); err == nil || op.State.Terminal() {
			if err != nil {
				w.t.Fatal(err)
			}
			return nil
		}
		return errors.Join(err, driver.Step(ctx, leader, op))
	})
}

// marked makes the loss known.
func (w *world) marked() {
	w.t.Helper()
	w.lead()
	if err := w.store.MarkRestored(testkit.Deadline(w.t), core.Restored{Why: "a drill", FoundBy: "here"}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) cell() core.Cell {
	w.t.Helper()
	c, err := w.store.Cell(testkit.Deadline(w.t), "cell-1")
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// sell reserves units in a shard.
func (w *world) sell(id ids.CellID, units int64) {
	w.t.Helper()
	if _, err := w.shards[id].Conn(w.t).Exec(testkit.Deadline(w.t), fmt.Sprintf("UPDATE cellquota.stock SET available = available - %d, reserved = reserved + %d, version = version + 1", units, units)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) holds(id ids.CellID) (granted, sold int64) {
	w.t.Helper()
	if err := w.shards[id].Conn(w.t).QueryRow(testkit.Deadline(w.t), "SELECT granted, reserved + confirmed FROM cellquota.stock WHERE sku_id = 's'").Scan(&granted, &sold); err != nil {
		w.t.Fatal(err)
	}
	return granted, sold
}
