package deletion_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/deletion"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// rig is a driver over a real etcd that holds what is left of campaign c, and all
// of campaign d.
type rig struct {
	t     *testing.T
	store *store.Store
	view  *view.View
	lead  core.Leader
	lease int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t}
	var err error
	if r.store, err = store.Open(store.Config{Endpoints: testkit.Etcd(t, 1).Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() })
	if r.view, err = view.New(r.store, view.Deps{Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.view.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	r.elect()
	return r
}

// elect gives the lead to another term.
func (r *rig) elect() {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	if r.lease != 0 {
		if err := r.store.RevokeLease(ctx, r.lease); err != nil {
			r.t.Fatal(err)
		}
	}
	var err error
	if r.lease, err = r.store.GrantLease(ctx, time.Minute); err != nil {
		r.t.Fatal(err)
	}
	if r.lead, err = r.store.TakeLead(ctx, r.lease, "here", ids.NewOperationID()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) write(middle func(tx *store.Tx) error) {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	revision, err := r.store.Update(ctx, "test", middle)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.view.WaitFor(ctx, revision); err != nil {
		r.t.Fatal(err)
	}
}

// fill writes books, records of which the first may be open, and a route.
func (r *rig) fill(campaign ids.CampaignID, books, records int, state core.JournalState) {
	r.t.Helper()
	for i := range books {
		r.write(func(tx *store.Tx) error {
			key := core.BookKey{Campaign: campaign, SKU: ids.SKUID(fmt.Sprint("s", i))}
			_, _, err := tx.Book(key)
			return errors.Join(err, tx.PutBook(core.Book{Key: key, SaleLimit: quantity.Must(1), Reserve: quantity.Must(1)}.Stamp("x")))
		})
	}
	for i := range records {
		r.write(func(tx *store.Tx) error {
			id := fmt.Sprint(campaign, "-record-", i)
			rec := core.Record{ID: id, Key: core.BookKey{Campaign: campaign, SKU: "s0"}, Adjustments: []core.Adjustment{{
				ID: id, Cell: "cell-1", Kind: core.KindGrant, Units: quantity.Must(1), State: state, Step: core.Step{FenceVersion: 1, Number: int64(i + 1)},
			}}}
			_, _, err := tx.Record(id)
			return errors.Join(err, tx.PutRecord(rec))
		})
	}
	homes, err := allocator.DealBuckets([]allocator.CellWeight{{Cell: "cell-1", Weight: 1}}, allocator.Buckets)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(func(tx *store.Tx) error {
		_, _, err := tx.Route(campaign)
		return errors.Join(err, tx.PutRoute(core.Route{Campaign: campaign, Version: 1, Domains: []core.DomainRoute{{Homes: homes}}}))
	})
}

func (r *rig) begin() {
	r.t.Helper()
	r.write(func(tx *store.Tx) error {
		_, _, err := tx.Operation("op")
		return errors.Join(err, tx.PutOperation(core.Operation{ID: "op", Kind: core.OperationDelete, Subject: "c", State: core.OperationPending, Step: core.StepDropRecords}))
	})
}

// step drives once and waits for the view.
func (r *rig) step() core.Operation {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	op, known := r.view.Snapshot().Operation("op")
	if !known {
		r.t.Fatal("no operation")
	}
	if err := (deletion.Driver{Store: r.store, View: r.view}).Step(ctx, r.lead, op); err != nil {
		r.t.Fatal(err)
	}
	head, err := r.store.Head(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := r.view.WaitFor(ctx, head)
	if err != nil {
		r.t.Fatal(err)
	}
	op, _ = s.Operation("op")
	return op
}

// TestWhatIsLeftIsRemoved: every key of the campaign goes, in steps of bounded size, over a change of
// leader, and nothing of another campaign.
func TestWhatIsLeftIsRemoved(t *testing.T) {
	r := newRig(t)
	r.fill("c", 3, 120, core.StateDone)
	r.fill("d", 1, 2, core.StateDone)
	r.begin()
	left := func() int { return len(r.view.Snapshot().Records("c", 0, 1000)) }
	r.step()
	if got := left(); got != 70 {
		t.Fatalf("%d records are left after the first step, want 70", got)
	}
	old := r.lead
	r.elect()
	op, _ := r.view.Snapshot().Operation("op")
	if err := (deletion.Driver{Store: r.store, View: r.view}).Step(testkit.Deadline(t), old, op); !errors.Is(err, core.ErrNotLeader) || left() != 70 {
		t.Fatalf("the old leader: %v, %d left", err, left())
	}
	steps := 0
	for op = r.step(); !op.State.Terminal(); op = r.step() {
		if steps++; steps > 10 {
			t.Fatalf("no end: %+v", op)
		}
	}
	s := r.view.Snapshot()
	_, routed := s.Route("c")
	if op.State != core.OperationDone || left() != 0 || len(s.Books("c")) != 0 || routed {
		t.Errorf("%s: %d records, %d books, route %v", op.State, left(), len(s.Books("c")), routed)
	}
	if _, routed := s.Route("d"); !routed || len(s.Books("d")) != 1 || len(s.Records("d", 0, 10)) != 2 {
		t.Error("something of another campaign is gone")
	}
}

// TestAnOpenRecordIsWaitedFor: nothing is removed while a shard's answer is awaited.
func TestAnOpenRecordIsWaitedFor(t *testing.T) {
	r := newRig(t)
	r.fill("c", 1, 2, core.StateBooked)
	r.begin()
	op := r.step()
	if again := r.step(); again.Version != op.Version || again.Detail == "" || again.State != core.OperationRunning {
		t.Errorf("%+v, then %+v", op, again)
	}
	if n := len(r.view.Snapshot().Records("c", 0, 10)); n != 2 {
		t.Errorf("%d records are left", n)
	}
}
