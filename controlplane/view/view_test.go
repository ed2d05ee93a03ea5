package view_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// script is a source that a test writes: what a list holds, and batches.
type script struct {
	mu      sync.Mutex
	rows    map[string]store.Entry
	rev     int64
	lists   int
	listErr error
	batches chan step
}

type step struct {
	batch store.Batch
	err   error
}

func newScript() *script {
	return &script{rows: map[string]store.Entry{}, rev: 1, batches: make(chan step)}
}

func (s *script) Key(kind store.Kind, name string) string { return "/" + kind.String() + "/" + name }

func (s *script) List(_ context.Context, add func([]store.Entry) error) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	if s.listErr != nil {
		return 0, s.listErr
	}
	var page []store.Entry
	for _, e := range s.rows {
		page = append(page, e)
	}
	return s.rev, add(page)
}

func (s *script) Watch(ctx context.Context, from int64, deliver func(store.Batch) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case st := <-s.batches:
			if st.err != nil {
				return st.err
			}
			if err := deliver(st.batch); err != nil {
				return err
			}
		}
	}
}

// change makes one change at the head; seen tells whether the watch delivers it.
func (s *script) change(t testing.TB, seen bool, e store.Entry) {
	s.mu.Lock()
	s.rev++
	e.ModRevision = s.rev
	if e.Deleted {
		delete(s.rows, e.Key)
	} else {
		s.rows[e.Key] = e
	}
	rev := s.rev
	s.mu.Unlock()
	if seen {
		s.send(t, step{batch: store.Batch{Revision: rev, Entries: []store.Entry{e}}})
	}
}

func (s *script) send(t testing.TB, st step) {
	select {
	case s.batches <- st:
	case <-testkit.Deadline(t).Done():
		t.Fatal("nobody watches")
	}
}

func cellEntry(s *script, n int, state core.CellState) store.Entry {
	id := fmt.Sprintf("cell-%d", n)
	return store.Entry{Key: s.Key(store.KindCell, id), Kind: store.KindCell, Value: core.Cell{Spec: core.CellSpec{ID: ids.CellID(id)}, State: state}}
}

type fixture struct {
	*view.View
	source   *script
	clock    *clock.Manual
	registry *prometheus.Registry
}

func start(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{source: newScript(), clock: clock.NewManual(time.Unix(1_000, 0)), registry: prometheus.NewRegistry()}
	var err error
	if f.View, err = view.New(f.source, view.Deps{Clock: f.clock, Registry: f.registry}); err != nil {
		t.Fatal(err)
	}
	run(t, f.View)
	return f
}

func run(t *testing.T, v *view.View) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func (f *fixture) at(t *testing.T, revision int64) view.Snapshot {
	t.Helper()
	s, err := f.WaitFor(testkit.Deadline(t), revision)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// relist lets the view's back-off pass.
func (f *fixture) relist(t *testing.T) {
	t.Helper()
	if err := f.clock.BlockUntil(testkit.Deadline(t), 1); err != nil {
		t.Fatal(err)
	}
	f.clock.Advance(10 * time.Second)
}

func TestChangesAndDeletes(t *testing.T) {
	f := start(t)
	before := f.at(t, 1)
	f.source.change(t, true, cellEntry(f.source, 1, core.CellActive))
	f.source.change(t, true, cellEntry(f.source, 2, core.CellFenced))
	s := f.at(t, 3)
	if got := s.Cells(); len(got) != 2 || got[1].State != core.CellFenced {
		t.Fatalf("cells %v", got)
	}
	gone := cellEntry(f.source, 1, 0)
	gone.Deleted, gone.Value = true, nil
	f.source.change(t, true, gone)
	if got := f.at(t, 4).Cells(); len(got) != 1 || got[0].Spec.ID != "cell-2" {
		t.Fatalf("after the delete: %v", got)
	}
	if len(before.Cells()) != 0 || len(s.Cells()) != 2 {
		t.Fatal("an old snapshot changed")
	}
}

// What happened while nobody watched, deletes included, is there after the next
// list; until then the view says that it is old.
func TestAnErrorOfTheWatchListsAgain(t *testing.T) {
	for _, cause := range []error{errors.New("broken"), fmt.Errorf("watch: %w", store.ErrCompacted)} {
		f := start(t)
		f.source.change(t, true, cellEntry(f.source, 1, core.CellActive))
		f.at(t, 2)
		f.source.send(t, step{err: cause})
		gone := cellEntry(f.source, 1, 0)
		gone.Deleted = true
		f.source.change(t, false, gone)
		f.source.change(t, false, cellEntry(f.source, 2, core.CellFencing))
		if err := f.clock.BlockUntil(testkit.Deadline(t), 1); err != nil {
			t.Fatal(err)
		}
		f.clock.Advance(time.Millisecond)
		if s := f.Snapshot(); len(s.Cells()) != 1 || s.Age() == 0 {
			t.Fatalf("a stale view has %d cells and age %s", len(s.Cells()), s.Age())
		}
		f.relist(t)
		s := f.at(t, 4)
		if got := s.Cells(); len(got) != 1 || got[0].State != core.CellFencing || s.Age() != 0 {
			t.Fatalf("after the next list: %v, age %s", got, s.Age())
		}
	}
}

func TestAFailedListIsTriedAgainAfterAPause(t *testing.T) {
	f := &fixture{source: newScript(), clock: clock.NewManual(time.Unix(1_000, 0))}
	f.source.listErr = errors.New("no etcd")
	var err error
	if f.View, err = view.New(f.source, view.Deps{Clock: f.clock}); err != nil {
		t.Fatal(err)
	}
	run(t, f.View)
	for want := 1; want <= 3; want++ {
		if err := f.clock.BlockUntil(testkit.Deadline(t), 1); err != nil {
			t.Fatal(err)
		}
		f.source.mu.Lock()
		if f.source.lists != want {
			t.Fatalf("%d lists, want %d: the pause was not taken", f.source.lists, want)
		}
		if want == 3 {
			f.source.listErr = nil
		}
		f.source.mu.Unlock()
		f.clock.Advance(10 * time.Second)
	}
	f.at(t, 1)
}

// K43: a broken record is named, its last good value stays, the others go on, and
// overwriting it cures it.
func TestABrokenRecordIsQuarantined(t *testing.T) {
	f := start(t)
	f.source.change(t, true, cellEntry(f.source, 1, core.CellActive))
	bad := cellEntry(f.source, 1, 0)
	bad.Value, bad.Err = nil, fmt.Errorf("%w: blank value", core.ErrBroken)
	f.source.change(t, true, bad)
	never := cellEntry(f.source, 7, 0)
	never.Value, never.Err = nil, errors.New("truncated")
	f.source.change(t, true, never)
	f.source.change(t, true, cellEntry(f.source, 2, core.CellActive))
	check := func(s view.Snapshot) {
		t.Helper()
		if got := s.Cells(); len(got) != 2 || got[0].Spec.ID != "cell-1" || len(s.Quarantined()) != 2 {
			t.Fatalf("cells %v, quarantined %v", got, s.Quarantined())
		}
		if why := s.Quarantined()[bad.Key]; !strings.Contains(why, "blank") {
			t.Errorf("the reason is %q", why)
		}
	}
	check(f.at(t, 5))
	f.source.send(t, step{err: errors.New("broken")})
	f.relist(t)
	if err := testutil.GatherAndCompare(f.registry, strings.NewReader(`
# HELP cellquota_view_quarantined_records Records that cannot be read.
# TYPE cellquota_view_quarantined_records gauge
cellquota_view_quarantined_records 2
# HELP cellquota_view_cycles_total Rounds of list and watch, by why they ended.
# TYPE cellquota_view_cycles_total counter
cellquota_view_cycles_total{cause="error"} 1
`), "cellquota_view_quarantined_records", "cellquota_view_cycles_total"); err != nil {
		t.Error(err)
	}
	f.source.change(t, true, cellEntry(f.source, 1, core.CellFenced))
	s := f.at(t, 6)
	if c, _ := s.Cell("cell-1"); c.State != core.CellFenced || len(s.Quarantined()) != 1 {
		t.Fatalf("after the overwrite: %v, quarantined %v", c, s.Quarantined())
	}
}

func TestWaitForIsReadYourWrites(t *testing.T) {
	f := start(t)
	f.at(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.WaitFor(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want canceled", err)
	}
	got := make(chan int64)
	go func() { s, _ := f.WaitFor(testkit.Deadline(t), 2); got <- s.Revision() }()
	f.source.send(t, step{batch: store.Batch{Revision: 5}}) // progress alone
	if rev := <-got; rev != 5 {
		t.Fatalf("woken at %d", rev)
	}
}

func TestAgeGrowsAndProgressConfirms(t *testing.T) {
	f := start(t)
	f.at(t, 1)
	f.clock.Advance(3 * time.Second)
	if age := f.Snapshot().Age(); age != 3*time.Second {
		t.Fatalf("age %s, want 3s", age)
	}
	if err := testutil.GatherAndCompare(f.registry, strings.NewReader(`
# HELP cellquota_view_age_seconds How long ago the view was last known to be current.
# TYPE cellquota_view_age_seconds gauge
cellquota_view_age_seconds 3
# HELP cellquota_view_revision etcd's revision that the view holds.
# TYPE cellquota_view_revision gauge
cellquota_view_revision 1
`), "cellquota_view_age_seconds", "cellquota_view_revision"); err != nil {
		t.Error(err)
	}
	f.source.send(t, step{batch: store.Batch{Revision: 9}})
	if s := f.at(t, 9); s.Age() != 0 {
		t.Fatalf("age %s after progress", s.Age())
	}
	if err := testutil.GatherAndCompare(f.registry, strings.NewReader(`
# HELP cellquota_view_revision etcd's revision that the view holds.
# TYPE cellquota_view_revision gauge
cellquota_view_revision 9
`), "cellquota_view_revision"); err != nil {
		t.Error(err)
	}
}

func TestBookMetrics(t *testing.T) {
	f := start(t)
	key := core.BookKey{Campaign: "c", SKU: "s"}
	f.source.change(t, true, store.Entry{Key: f.source.Key(store.KindBook, key.String()), Kind: store.KindBook, Value: core.Book{
		Key: key, SaleLimit: quantity.Must(10), Reserve: quantity.Must(4), Allocations: []core.Allocation{{Cell: "cell-1", Granted: quantity.Must(6)}},
	}})
	f.at(t, 2)
	if err := testutil.GatherAndCompare(f.registry, strings.NewReader(`
# HELP cellquota_book_allocated_units Units of a SKU granted to a cell.
# TYPE cellquota_book_allocated_units gauge
cellquota_book_allocated_units{campaign_id="c",cell_id="cell-1",sku_id="s"} 6
# HELP cellquota_book_reserve_units Units of a SKU that no cell holds.
# TYPE cellquota_book_reserve_units gauge
cellquota_book_reserve_units{campaign_id="c",sku_id="s"} 4
`), "cellquota_book_allocated_units", "cellquota_book_reserve_units"); err != nil {
		t.Error(err)
	}
}

func TestJournalAndOperationsPageNewestFirst(t *testing.T) {
	f := start(t)
	for i := range 5 {
		rec := core.Record{ID: fmt.Sprint("r", i), Key: core.BookKey{Campaign: ids.CampaignID([]string{"a", "b"}[i%2])}, CreateRevision: int64(10 + i)}
		if i == 2 {
			rec.Adjustments = []core.Adjustment{{ID: "adj", State: core.StateBooked}, {ID: "adj-2", State: core.StateDone}}
		}
		f.source.change(t, true, store.Entry{Key: f.source.Key(store.KindRecord, rec.ID), Kind: store.KindRecord, Value: rec})
		op := core.Operation{ID: fmt.Sprint("o", i), State: core.OperationDone, CreateRevision: int64(20 + i)}
		if i == 3 {
			op.State = core.OperationRunning
		}
		f.source.change(t, true, store.Entry{Key: f.source.Key(store.KindOperation, op.ID), Kind: store.KindOperation, Value: op})
	}
	s := f.at(t, 11)
	names := func(records []core.Record) (out []string) {
		for _, r := range records {
			out = append(out, r.ID)
		}
		return out
	}
	if got := names(s.Records("a", 0, 2)); !reflect.DeepEqual(got, []string{"r4", "r2"}) {
		t.Errorf("first page %v", got)
	}
	if got := names(s.Records("a", 12, 9)); !reflect.DeepEqual(got, []string{"r0"}) {
		t.Errorf("page before revision 12: %v", got)
	}
	if got := names(s.OpenRecords()); !reflect.DeepEqual(got, []string{"r2"}) {
		t.Errorf("open records %v", got)
	}
	for id, want := range map[string]string{"adj": "r2", "adj-2": "r2", "ad": "", "r2": ""} {
		if rec, ok := s.RecordOf(id); rec.ID != want || ok != (want != "") {
			t.Errorf("the record of %s is %q", id, rec.ID)
		}
	}
	if ops := s.Operations(24, 2); len(ops) != 2 || ops[0].ID != "o3" || ops[1].ID != "o2" {
		t.Errorf("operations %v", ops)
	}
	if ops := s.OpenOperations(); len(ops) != 1 || ops[0].ID != "o3" {
		t.Errorf("open operations %v", ops)
	}
}

// Whatever is changed, seen or missed, and however often the watch breaks: after
// the next list the view holds what the source holds.
func TestViewEqualsTheSourceAtTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		source := newScript()
		manual := clock.NewManual(time.Unix(1_000, 0))
		v, err := view.New(source, view.Deps{Clock: manual})
		if err != nil {
			rt.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- v.Run(ctx) }()
		defer func() { cancel(); <-done }()
		if _, err := v.WaitFor(ctx, 1); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			if rapid.IntRange(0, 4).Draw(rt, "break") == 0 {
				source.send(t, step{err: errors.New("broken")})
				e := cellEntry(source, rapid.IntRange(1, 4).Draw(rt, "cell"), rapid.SampledFrom(core.CellStates()).Draw(rt, "state"))
				e.Deleted = rapid.Bool().Draw(rt, "delete")
				source.change(t, false, e)
				if err := manual.BlockUntil(ctx, 1); err != nil {
					rt.Fatal(err)
				}
				manual.Advance(10 * time.Second)
				continue
			}
			e := cellEntry(source, rapid.IntRange(1, 4).Draw(rt, "cell"), rapid.SampledFrom(core.CellStates()).Draw(rt, "state"))
			e.Deleted = rapid.Bool().Draw(rt, "delete")
			source.change(t, true, e)
		}
		s, err := v.WaitFor(ctx, source.rev)
		if err != nil {
			rt.Fatal(err)
		}
		want := map[ids.CellID]core.Cell{}
		for _, e := range source.rows {
			c, _ := e.Value.(core.Cell)
			want[c.Spec.ID] = c
		}
		if got := s.CellsByID(); !reflect.DeepEqual(got, want) {
			rt.Fatalf("the view holds %v, the source %v", got, want)
		}
	})
}
