package planner_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// A new leader grants nothing of a campaign while one of its cells is silent, and
// names it; campaigns of other cells go on.
func TestASilentCellHoldsTheGrantsThatItCouldHave(t *testing.T) {
	r := newRig(t)
	r.provision(3)
	r.lead()
	for _, id := range []ids.CellID{"cell-1", "cell-2", "cell-3"} {
		r.link(id)
	}
	r.draft("c", 3, "s")
	r.publish("c", "op-c")
	r.draft("d", 2, "s2")
	r.publish("d", "op-d")
	r.until("op-c", core.OperationDone)
	r.until("op-d", core.OperationDone)
	r.cells.disconnect("cell-3")
	r.view, r.planner = r.another() // a process that saw nothing by its own watch
	r.lead()
	r.link("cell-1")
	r.link("cell-2")
	r.topUp("a0", "cell-1", 10)
	if _, err := r.intent.TopUp(testkit.Deadline(t), who, topUpOf("d0", "d", "s2", "cell-1", 10), false); err != nil {
		t.Fatal(err)
	}
	r.settled("d0")
	r.cells.read("cell-1", func(sh *shard) {
		if count(sh.log, "a0") != 0 {
			t.Errorf("a0 was sent while cell-3 is silent: %v", sh.log)
		}
	})
	if cells := r.planner.Uncompared(); len(cells) != 1 || cells[0] != "cell-3" {
		t.Errorf("uncompared: %v", cells)
	}
	r.draft("e", 2, "s3")
	r.publish("e", "op-e") // its past is unknown: it waits for every cell
	r.at("op-e", core.StepGrants)
	if op, _ := r.view.Snapshot().Operation("op-e"); !strings.Contains(op.Detail, "cell-3 may hold units of e") && !strings.Contains(op.Detail, "[cell-3]") {
		t.Errorf("op-e waits: %s", op.Detail)
	}
	r.link("cell-3")
	r.settled("a0")
	r.until("op-e", core.OperationDone)
}

// witness reads shards as the fencer would.
type witness struct {
	mu    sync.Mutex
	shard map[ids.CellID]planner.Shard
}

func (w *witness) Witness(_ context.Context, spec core.CellSpec, _ core.Term) (planner.Shard, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, known := w.shard[spec.ID]
	if !known {
		return planner.Shard{}, errors.New("no route to the shard")
	}
	return s, nil
}

// A cell whose processes are dead, but whose shard answers, holds nothing up; and
// what its shard says is compared like a hello.
func TestASilentCellsShardIsRead(t *testing.T) {
	r := onSale(t)
	r.cells.disconnect("cell-4")
	w := &witness{shard: map[ids.CellID]planner.Shard{}}
	r.witness = w
	r.view, r.planner = r.another()
	r.lead()
	for _, id := range []ids.CellID{"cell-1", "cell-2", "cell-3"} {
		r.link(id)
	}
	r.topUp("a0", "cell-1", 10)
	w.mu.Lock()
	w.shard["cell-4"] = planner.Shard{Cell: "cell-4", FenceVersion: 1, Stocks: []core.StockFacts{{Key: demoKey, Granted: quantity.Must(2_400), AdjustmentVersion: 1, LastNumber: 1}}}
	w.mu.Unlock()
	r.settled("a0")

	r.view, r.planner = r.another()
	w.mu.Lock()
	w.shard["cell-4"] = planner.Shard{Cell: "cell-4", FenceVersion: 1, Stocks: []core.StockFacts{{Key: demoKey, Granted: quantity.Must(2_500), AdjustmentVersion: 1, LastNumber: 2}}}
	w.mu.Unlock()
	r.lead()
	if found := r.restored(); !strings.Contains(found.Why, "number 2") || found.Cell != "cell-4" {
		t.Errorf("%+v", found)
	}
}

// A leader whose own watch ran since all shards were compared waits for nobody.
func TestAnUnbrokenWatchWaitsForNobody(t *testing.T) {
	r := onSale(t)
	testkit.Eventually(t, wait, func() error {
		if !r.view.Snapshot().SawCompared() {
			return errors.New("the word that all were compared did not come")
		}
		return nil
	})
	r.cells.disconnect("cell-2")
	r.lead()
	r.link("cell-1")
	r.topUp("a0", "cell-1", 10)
	r.settled("a0")
}

// A report shows what etcd lost, between two hellos.
func TestAReportIsComparedToo(t *testing.T) {
	r := onSale(t)
	r.cells.set("cell-2", func(s *shard) {
		s.report = []core.StockFacts{{Key: demoKey, Granted: quantity.Must(2_400), AdjustmentVersion: 1, LastNumber: 1, LastAdjustmentID: "unheard-of"}}
	})
	r.planner.OnReport("cell-2")
	if found := r.restored(); !strings.Contains(found.Why, "adjustment unheard-of") || found.Cell != "cell-2" {
		t.Errorf("%+v", found)
	}
	if _, err := r.tryTopUp("a0", "cell-1", 10); !errors.Is(err, core.ErrRestored) {
		t.Errorf("%v, want ErrRestored", err)
	}
}

// etcd is restored from a backup under the living leader, whose key comes back
// with it. The units granted since are in the reserve again; nobody is given one.
func TestABackupRestoredUnderALivingLeader(t *testing.T) {
	r := onSale(t)
	kept := filepath.Join(t.TempDir(), "backup")
	r.etcd.Stop(t, 0)
	if err := os.CopyFS(kept, os.DirFS(r.etcd.DataDir(0))); err != nil {
		t.Fatal(err)
	}
	r.etcd.Start(t, 0)
	testkit.Eventually(t, wait, func() error { // the client finds the server again in its own time
		_, err := r.tryTopUp("a0", "cell-1", 400) // the whole reserve
		return err
	})
	r.settled("a0")
	r.etcd.Stop(t, 0)
	if err := errors.Join(os.RemoveAll(r.etcd.DataDir(0)), os.CopyFS(r.etcd.DataDir(0), os.DirFS(kept))); err != nil {
		t.Fatal(err)
	}
	r.etcd.Start(t, 0)
	r.restored() // without anybody asking for anything
	if _, err := r.tryTopUp("b0", "cell-2", 400); !errors.Is(err, core.ErrRestored) {
		t.Errorf("%v, want ErrRestored", err)
	}
	r.cells.read("cell-2", func(sh *shard) {
		if sh.granted[demoKey] != 2_400 {
			t.Errorf("cell-2 was granted %d", sh.granted[demoKey])
		}
	})
}
