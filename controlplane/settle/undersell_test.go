package settle_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/controlplane/settle"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

func (w *world) accounts() undersell.Result {
	w.t.Helper()
	got, err := undersell.Reader{Plane: undersell.Fresh{Store: w.store, View: w.view}, Shards: w.reader, Clock: clock.System()}.Read(testkit.Deadline(w.t), "c")
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func of(r undersell.Result, cause undersell.Cause) int64 { return r.Accounts[0].Of(cause) }

// I10 from real shards: what came back before the end is left in its cell, what came
// back after it is named so, and a shard that does not answer is frozen and named.
func TestTheAccountOfRealShards(t *testing.T) {
	w := newWorld(t)
	w.shards["cell-1"].sell("a", 10, 6, 3) // 1 stays reserved
	w.shards["cell-1"].do("SELECT sale.entry(1, 's', 'RESTOCK', 'rf-a0', 1, 0, -1)")
	before := w.accounts()
	if a := before.Accounts[0]; a.Confirmed != 5 || a.Of(undersell.Unallocated) != 20 || a.Of(undersell.LeftInCell) != 75 || a.Of(undersell.ReleasedAfterEnd) != 0 || a.Confirmed+a.Unsold() != a.SaleLimit {
		t.Fatalf("before the end: %+v", a)
	}
	w.close()
	testkit.Eventually(t, wait, func() error { return w.passed(w.now().ClosedAt) })
	w.shards["cell-1"].do("SELECT sale.close(1, 's', 'a9')")
	after := w.accounts()
	if of(after, undersell.ReleasedAfterEnd) != 1 || of(after, undersell.LeftInCell) != 74 {
		t.Errorf("after the end: %+v", after.Accounts[0])
	}
	w.shards["cell-1"].do("SELECT sale.entry(1, 's', 'RESTOCK', 'rf-a1', 1, 0, -1)")
	if got := w.accounts(); got.Accounts[0].Confirmed != 4 || of(got, undersell.ReleasedAfterEnd) != 2 || of(got, undersell.LeftInCell) != 74 {
		t.Errorf("a refund that restocked after the end: %+v", got.Accounts[0])
	}
	w.shards["cell-2"].do("SELECT sale.sell(1, 's', 'z')")
	w.shards["cell-2"].do("UPDATE cellquota.reservations SET state = 'MANUAL_REVIEW' WHERE user_id = 'z'")
	if got := w.accounts(); of(got, undersell.UnderReview) != 1 {
		t.Errorf("under review: %+v", got.Accounts[0])
	}
	w.shards["cell-2"].reachable(false)
	w.freshReader()
	if got := w.accounts(); of(got, undersell.Frozen) != 40 || got.Unreachable[ids.CellID("cell-2")] == nil || got.Accounts[0].Unsold()+got.Accounts[0].Confirmed != 100 {
		t.Errorf("unreachable: %+v, %v", got.Accounts[0], got.Unreachable)
	}
}

// passed is nil once a shard's clock is past an instant of the control plane's.
func (w *world) passed(at time.Time) error {
	var now time.Time
	if err := w.shards["cell-1"].conn.QueryRow(w.t.Context(), "SELECT cellquota.now()").Scan(&now); err != nil {
		return err
	}
	if !now.After(at) {
		return context.DeadlineExceeded
	}
	return nil
}

func TestTheMetricShowsTheCauses(t *testing.T) {
	w := newWorld(t).over()
	registry := prometheus.NewRegistry()
	metrics, err := settle.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	d := settle.New(settle.Config{}, settle.Deps{
		Store: w.store, View: w.view, Shards: w.reader, Mirrors: w.cells, Cells: w.cells, Archive: w.archive, Metrics: metrics, Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
	})
	d.Tick(testkit.Deadline(t), w.leader)
	families, err := registry.Gather()
	if err != nil || testutil.CollectAndCount(registry) != 6 {
		t.Fatalf("%v, %v", families, err)
	}
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
	}
	if got["UNALLOCATED"] != 20 || got["LEFT_IN_CELL"] != 68 {
		t.Errorf("undersell_units: %v", got)
	}
}
