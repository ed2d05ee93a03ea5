package view

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-memdb"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Source is where the records are. store.Store implements it.
type Source interface {
	// List hands every record at one revision to add and gives that revision.
	List(ctx context.Context, add func([]store.Entry) error) (int64, error)
	// Watch delivers every change from a revision on, in order, and gives the
	// reason why it ended, never nil.
	Watch(ctx context.Context, from int64, deliver func(store.Batch) error) error
	// Key gives the whole key of a record, to look a row up.
	Key(kind store.Kind, name string) string
}

// Deps are what a view is given.
type Deps struct {
	Clock    clock.Clock
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: no metrics
}

// View is the mirror. Make it with New, let a lifecycle.Group run Run.
type View struct {
	source Source
	clock  clock.Clock
	log    *slog.Logger
	cycles *prometheus.CounterVec

	mu      sync.Mutex
	state   state
	changed chan struct{} // closed and replaced whenever state changes
}

// state is what a snapshot is made of. Its maps are never changed in place.
type state struct {
	db          *memdb.MemDB
	txn         *memdb.Txn // read transaction at revision
	revision    int64      // 0: nothing was ever loaded
	confirmed   time.Time  // when the view was last known to be current
	quarantined map[string]string
	sawCompared bool // see Snapshot.SawCompared
}

// New makes an empty view; it serves nothing before Run has listed.
func New(source Source, deps Deps) (*View, error) {
	v := &View{source: source, clock: deps.Clock, log: deps.Log, changed: make(chan struct{})}
	if v.log == nil {
		v.log = slog.New(slog.DiscardHandler)
	}
	v.cycles = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: telemetry.Namespace, Name: "view_cycles_total", Help: "Rounds of list and watch, by why they ended.",
	}, []string{"cause"})
	if deps.Registry == nil {
		return v, nil
	}
	if err := errors.Join(deps.Registry.Register(v.cycles), deps.Registry.Register(newCollector(v))); err != nil {
		return nil, fmt.Errorf("view metrics: %w", err)
	}
	return v, nil
}

// Run keeps the view until ctx ends, and returns nil then.
func (v *View) Run(ctx context.Context) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.RandomizationFactor = 50*time.Millisecond, 5*time.Second, 0.5
	pause.Reset()
	for ctx.Err() == nil {
		loaded, err := v.round(ctx)
		if ctx.Err() != nil {
			break
		}
		v.cycles.WithLabelValues(cause(err)).Inc()
		v.log.WarnContext(ctx, "view is stale; it lists again", append([]any{telemetry.Event, "view_stale"}, telemetry.Failure(err, cause(err), true)...)...)
		if loaded {
			pause.Reset()
		}
		_ = v.clock.Sleep(ctx, pause.NextBackOff()) // ends early with ctx, which ends the loop
	}
	return nil //nolint:nilerr // the end of ctx is how it ends
}

func cause(err error) string {
	if errors.Is(err, store.ErrCompacted) {
		return "compacted"
	}
	return "error"
}

// round is list → load → watch → apply; loaded tells how far it came.
func (v *View) round(ctx context.Context) (loaded bool, err error) {
	// 1. list
	fresh, err := memdb.NewMemDB(schema())
	if err != nil {
		return false, err
	}
	var entries []store.Entry
	revision, err := v.source.List(ctx, func(page []store.Entry) error {
		entries = append(entries, page...)
		return nil
	})
	if err != nil {
		return false, err
	}
	// 2. load
	if err := v.load(fresh, revision, entries); err != nil {
		return false, err
	}
	// 3. watch, 4. apply
	return true, v.source.Watch(ctx, revision+1, v.apply)
}

// load fills a fresh memdb and puts it in the place of the old one. A record that
// cannot be read keeps the last good value of the old one.
func (v *View) load(fresh *memdb.MemDB, revision int64, entries []store.Entry) error {
	txn := fresh.Txn(true)
	defer txn.Abort()
	old := v.Snapshot()
	quarantined := map[string]string{}
	for _, e := range entries {
		r := &row{key: e.Key, value: e.Value, modRevision: e.ModRevision}
		if e.Err != nil {
			v.quarantine(quarantined, e)
			if r = old.row(e.Kind, e.Key); r == nil {
				continue
			}
		}
		if err := txn.Insert(e.Kind.String(), r); err != nil {
			return err
		}
	}
	txn.Commit()
	v.publish(state{db: fresh, revision: revision, quarantined: quarantined})
	return nil
}

// apply takes a batch over in one transaction.
func (v *View) apply(b store.Batch) error {
	v.mu.Lock()
	next := v.state
	v.mu.Unlock()
	txn := next.db.Txn(true)
	defer txn.Abort()
	next.quarantined = maps.Clone(next.quarantined)
	for _, e := range b.Entries {
		if e.Kind == store.KindCompared && !e.Deleted {
			next.sawCompared = true
		}
		if !e.Kind.Mirrored() {
			continue
		}
		if err := v.change(txn, next.quarantined, e); err != nil {
			return err
		}
	}
	txn.Commit()
	next.revision = max(next.revision, b.Revision)
	v.publish(next)
	return nil
}

func (v *View) change(txn *memdb.Txn, quarantined map[string]string, e store.Entry) error {
	if e.Err != nil {
		v.quarantine(quarantined, e)
		return nil //nolint:nilerr // the record is put aside; the batch goes on
	}
	if e.Deleted {
		delete(quarantined, e.Key)
		_, err := txn.DeleteAll(e.Kind.String(), "id", e.Key)
		return err
	}
	delete(quarantined, e.Key)
	return txn.Insert(e.Kind.String(), &row{key: e.Key, value: e.Value, modRevision: e.ModRevision})
}

func (v *View) quarantine(into map[string]string, e store.Entry) {
	into[e.Key] = e.Err.Error()
	v.log.Error("record cannot be read; it is left out", telemetry.Event, "record_quarantined", "key", e.Key, "revision", e.ModRevision, telemetry.Error, e.Err)
}

// publish makes a state visible and wakes whoever waits.
func (v *View) publish(s state) {
	s.txn = s.db.Txn(false)
	s.confirmed = v.clock.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state = s
	close(v.changed)
	v.changed = make(chan struct{})
}

// Snapshot gives the view as it is now. Before the first list it is empty, at
// revision 0.
func (v *View) Snapshot() Snapshot {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Snapshot{state: v.state, key: v.source.Key, now: v.clock.Now()}
}

// Changed is closed at the next change of the view, progress included.
func (v *View) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// WaitFor gives a snapshot at a revision or a later one, or ctx's error. Revision
// 1 waits for the first list.
func (v *View) WaitFor(ctx context.Context, revision int64) (Snapshot, error) {
	for {
		changed := v.Changed()
		if s := v.Snapshot(); s.Revision() >= max(revision, 1) {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Snapshot{}, fmt.Errorf("wait for revision %d: %w", revision, ctx.Err())
		}
	}
}
