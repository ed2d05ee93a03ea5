package hygiene_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/hygiene"
	"github.com/cellquota/cellquota/controlplane/report/books"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

const (
	wait = 20 * time.Second
	keep = 10 * time.Minute
)

var noon = time.Date(2026, 11, 11, 12, 0, 0, 0, time.UTC)

type rig struct {
	t        *testing.T
	etcd     *clientv3.Client
	store    *store.Store
	view     *view.View
	leader   core.Leader
	clock    *clock.Manual
	registry *prometheus.Registry
}

func newRig(t *testing.T) *rig {
	t.Helper()
	etcd := testkit.Etcd(t, 1)
	r := &rig{t: t, etcd: etcd.Client(t), clock: clock.NewManual(noon), registry: prometheus.NewRegistry()}
	var err error
	if r.store, err = store.Open(store.Config{Endpoints: etcd.Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() })
	if r.view, err = view.New(r.store, view.Deps{Clock: clock.System(), Registry: r.registry}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.view.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	lease, err := r.store.GrantLease(testkit.Deadline(t), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if r.leader, err = r.store.TakeLead(testkit.Deadline(t), lease, "here", ids.NewOperationID()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) deps() hygiene.Deps {
	return hygiene.Deps{Store: r.store, View: r.view, Clock: r.clock, Log: slog.New(slog.DiscardHandler), Registry: r.registry}
}

func (r *rig) compactor(keep time.Duration) *hygiene.Compactor {
	r.t.Helper()
	c, err := hygiene.NewCompactor(keep, r.deps())
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// put writes records, and gives the revision, which the view has reached.
func (r *rig) put(middle func(tx *store.Tx) error) int64 {
	r.t.Helper()
	revision, err := r.store.Update(testkit.Deadline(r.t), "seed", middle)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.view.WaitFor(testkit.Deadline(r.t), revision); err != nil {
		r.t.Fatal(err)
	}
	return revision
}

func (r *rig) operation(op core.Operation) int64 {
	r.t.Helper()
	return r.put(func(tx *store.Tx) error {
		_, _, err := tx.Operation(op.ID)
		return errors.Join(err, tx.PutOperation(op))
	})
}

func running(id string) core.Operation {
	return core.Operation{ID: id, Kind: core.OperationTransfer, Subject: "c", State: core.OperationRunning, Actor: "me", StartedAt: noon.Add(-time.Hour)}
}

// readable tells whether etcd still has its state of a revision.
func (r *rig) readable(revision int64) bool {
	r.t.Helper()
	_, err := r.etcd.Get(testkit.Deadline(r.t), "/cellquota/term", clientv3.WithRev(revision))
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		r.t.Fatal(err)
	}
	return err == nil
}

// K27: history goes after compact_keep and not before; the view goes on with what
// comes, and a verification finds everything.
func TestCompactedAfterKeep(t *testing.T) {
	r := newRig(t)
	c := r.compactor(keep)
	early := r.operation(running("a"))
	for minute := range 10 {
		if err := c.Round(testkit.Deadline(t), r.leader); err != nil {
			t.Fatal(err)
		}
		r.operation(running(fmt.Sprint("b", minute)))
		r.clock.Advance(time.Minute)
		if !r.readable(early) {
			t.Fatalf("revision %d is gone after %d minutes", early, minute+1)
		}
	}
	noted := r.view.Snapshot().Revision()
	if err := c.Round(testkit.Deadline(t), r.leader); err != nil {
		t.Fatal(err)
	}
	if r.readable(early - 1) {
		t.Errorf("revision %d is there after %s", early-1, keep)
	}
	if !r.readable(early+1) || !r.readable(noted) {
		t.Error("newer history is gone")
	}
	if got := value(t, r.registry, "cellquota_etcd_compacted_revision", ""); got != float64(early) {
		t.Errorf("compacted at %v, want %d", got, early)
	}
	r.operation(running("after")) // waits for the view
	if _, known := r.view.Snapshot().Operation("after"); !known {
		t.Error("the view did not go on")
	}
	if cut, err := (books.Plane{Store: r.store}).Cut(testkit.Deadline(t), ""); err != nil || len(cut.Unreadable) > 0 {
		t.Errorf("verify's cut: %+v, %v", cut, err)
	}
}

// K27: a replica whose watch is behind what was compacted lists again and has
// everything.
func TestASlowWatcherListsAgain(t *testing.T) {
	r := newRig(t)
	first := r.operation(running("a"))
	for i := range 5 {
		r.operation(running(fmt.Sprint("b", i)))
	}
	if err := r.store.Compact(testkit.Deadline(t), r.leader, r.view.Snapshot().Revision()); err != nil {
		t.Fatal(err)
	}
	err := r.store.Watch(testkit.Deadline(t), first, func(store.Batch) error { return nil })
	if !errors.Is(err, store.ErrCompacted) {
		t.Fatalf("a watch from a compacted revision: %v", err)
	}
	seen := 0
	if _, err := r.store.List(testkit.Deadline(t), func(page []store.Entry) error {
		for _, e := range page {
			if e.Kind == store.KindOperation {
				seen++
			}
		}
		return nil
	}); err != nil || seen != 6 {
		t.Fatalf("%d operations, %v", seen, err)
	}
	if err := r.store.Compact(testkit.Deadline(t), r.leader, first); err != nil {
		t.Errorf("compacted further already: %v", err)
	}
}

// Who lost the lead compacts nothing; keep 0 compacts never; and while etcd is
// known to have lost its past its history stays.
func TestWhoMayCompact(t *testing.T) {
	r := newRig(t)
	at := r.operation(running("a"))
	r.operation(running("b"))
	never := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { never <- r.compactor(0).Lead(ctx, r.leader) }()
	deposed := r.leader
	deposed.CreateRevision--
	if err := r.store.Compact(testkit.Deadline(t), deposed, at); !errors.Is(err, core.ErrNotLeader) {
		t.Errorf("a deposed leader: %v", err)
	}
	if err := r.store.Compact(testkit.Deadline(t), core.Leader{}, at); !errors.Is(err, core.ErrNotLeader) {
		t.Errorf("nobody: %v", err)
	}
	if r.clock.Waiters() != 0 {
		t.Error("keep 0, and the compactor waits for a time")
	}
	cancel()
	if err := <-never; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if err := r.store.MarkRestored(testkit.Deadline(t), core.Restored{Why: "a backup", FoundBy: "here"}); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Compact(testkit.Deadline(t), r.leader, at); !errors.Is(err, core.ErrRestored) {
		t.Errorf("RESTORED: %v", err)
	}
	if !r.readable(at) {
		t.Error("history is gone")
	}
}

// The loop runs by its clock and ends with the leadership's context.
func TestTheLoopCompacts(t *testing.T) {
	r := newRig(t)
	early := r.operation(running("a"))
	c := r.compactor(time.Second) // counts as a minute
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Lead(ctx, r.leader) }()
	if err := r.clock.BlockUntil(testkit.Deadline(t), 1); err != nil {
		t.Fatal(err)
	}
	r.operation(running("b"))
	testkit.Eventually(t, wait, func() error {
		r.clock.Advance(hygiene.LeastKeep / 10)
		if r.readable(early - 1) {
			return errors.New("nothing was compacted")
		}
		return nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// value is a metric's present value; folder empty: it has no labels.
func value(t *testing.T, registry *prometheus.Registry, name, folder string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (folder == "" || m.GetLabel()[0].GetValue() == folder) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
