package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// backup copies a stopped member's data and gives what puts it back.
func backup(t *testing.T, etcd *testkit.EtcdCluster) (restore func()) {
	t.Helper()
	kept := filepath.Join(t.TempDir(), "backup")
	etcd.Stop(t, 0)
	if err := os.CopyFS(kept, os.DirFS(etcd.DataDir(0))); err != nil {
		t.Fatal(err)
	}
	etcd.Start(t, 0)
	return func() {
		t.Helper()
		etcd.Stop(t, 0)
		if err := os.RemoveAll(etcd.DataDir(0)); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(etcd.DataDir(0), os.DirFS(kept)); err != nil {
			t.Fatal(err)
		}
		etcd.Start(t, 0)
	}
}

// run follows etcd as a view does.
func follow(t *testing.T, s *store.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	revision, err := s.List(testkit.Deadline(t), func([]store.Entry) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		_ = s.Watch(ctx, revision+1, func(store.Batch) error { return nil })
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// A backup is restored under a living process: a unit that was granted after the
// backup is in the reserve again, and no transaction gives it away.
func TestARestoredEtcdIsKnownBeforeAUnitIsGrantedTwice(t *testing.T) {
	p := demo(t)
	follow(t, p.Store)
	restore := backup(t, p.etcd)
	ctx := testkit.Deadline(t)
	if _, err := p.Move(ctx, topUp("a1", "cell-1", 400)); err != nil { // the whole reserve
		t.Fatal(err)
	}
	restore()
	for _, id := range []string{"a2", "a1"} { // another grant, and the lost one again
		if _, err := p.Move(testkit.Deadline(t), topUp(id, "cell-2", 400)); !errors.Is(err, core.ErrRestored) {
			t.Fatalf("%s: %v, want ErrRestored", id, err)
		}
	}
	if p.Lost() == "" {
		t.Fatal("the loss is not kept")
	}
	if b := p.book(t); b.Version != 1 || b.Reserve.Int64() != 400 {
		t.Fatalf("book version %d, reserve %s: the backup's was changed", b.Version, b.Reserve)
	}
}

// Other writers brought etcd's revision above what was seen before this process
// asked: counters look contiguous, identities do not.
func TestIdentitiesShowTheLossWhenCountersLookRight(t *testing.T) {
	p := demo(t)
	restore := backup(t, p.etcd)
	if _, err := p.Move(testkit.Deadline(t), topUp("a1", "cell-1", 100)); err != nil {
		t.Fatal(err)
	}
	restore()
	other, err := store.Open(store.Config{Endpoints: p.etcd.Endpoints(), Prefix: prefix}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	for _, id := range []string{"b1", "b2", "b3"} { // it saw nothing of what was lost, so it moves on
		if _, err := other.Move(testkit.Deadline(t), topUp(id, "cell-2", 10)); err != nil {
			t.Fatal(err)
		}
	}
	_, err = p.Move(testkit.Deadline(t), topUp("a2", "cell-1", 100))
	if !errors.Is(err, core.ErrRestored) || !strings.Contains(p.Lost(), "a1") {
		t.Fatalf("%v, lost %q: want ErrRestored that names a1", err, p.Lost())
	}
}

// The mark stops every replica's books and every directive, whoever leads, until
// it is taken away; recovery's own transaction goes on.
func TestMarkedRestoredNothingMoves(t *testing.T) {
	p := demo(t)
	ctx := testkit.Deadline(t)
	other, err := store.Open(store.Config{Endpoints: p.etcd.Endpoints(), Prefix: prefix}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := other.MarkRestored(ctx, core.Restored{Why: "cell-9 knows adjustment x", Cell: "cell-9", FoundBy: "there"}); err != nil {
		t.Fatal(err)
	}
	if err := other.MarkRestored(ctx, core.Restored{Why: "another word", FoundBy: "here"}); err != nil {
		t.Fatal(err)
	}
	_, err = p.Move(ctx, topUp("a1", "cell-1", 100))
	if !errors.Is(err, core.ErrRestored) || !strings.Contains(err.Error(), "cell-9 knows adjustment x") {
		t.Fatalf("%v, want ErrRestored with the first word", err)
	}
	lease, _ := p.GrantLease(ctx, testDeadline)
	leader, err := p.TakeLead(ctx, lease, "here", "t1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ReadForSending(ctx, leader, "", core.BookKey{Campaign: "double-eleven", SKU: "phone-x"}, "cell-1"); !errors.Is(err, core.ErrRestored) {
		t.Fatalf("%v, want ErrRestored", err)
	}
	if _, err := p.Update(ctx, "recover", func(tx *store.Tx) error {
		return errors.Join(tx.Recover(), tx.DropRestored())
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Move(ctx, topUp("a1", "cell-1", 100)); err != nil {
		t.Fatalf("after recovery: %v", err)
	}
}

// recovered ends a standing RESTORED under a leader's term, as recovery does.
func recovered(t *testing.T, s *store.Store, leader core.Leader) {
	t.Helper()
	if _, err := s.Update(testkit.Deadline(t), "confirm", func(tx *store.Tx) error {
		return errors.Join(tx.Recover(), tx.DropRestored(), tx.PutRecovered(leader.Term))
	}); err != nil {
		t.Fatal(err)
	}
}

func lead(t *testing.T, s *store.Store, id string) core.Leader {
	t.Helper()
	lease, err := s.GrantLease(testkit.Deadline(t), testDeadline)
	if err != nil {
		t.Fatal(err)
	}
	leader, err := s.TakeLead(testkit.Deadline(t), lease, "there", id)
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

// A replica that was away while etcd was restored and recovered remembers what was
// given up. When it is back it takes the recovered books over and stops nobody; an
// etcd from before that recovery is a loss, and so it is to a replica that only
// listed.
func TestAReplicaThatWasAwayDuringARecovery(t *testing.T) {
	p := demo(t)
	before := backup(t, p.etcd)
	list(t, p.Store)
	for i := range 8 { // p remembers the book as these left it, at a revision above what follows, and is away from here on
		if _, err := p.Move(testkit.Deadline(t), topUp(fmt.Sprint("a", i), "cell-1", 10)); err != nil {
			t.Fatal(err)
		}
	}
	before()
	other := another(t, p)
	leader := lead(t, other, "t1")
	if err := other.MarkRestored(testkit.Deadline(t), core.Restored{Why: "a drill", FoundBy: "there"}); err != nil {
		t.Fatal(err)
	}
	recovered(t, other, leader)
	late := another(t, p)
	list(t, late)
	after := backup(t, p.etcd)
	if _, err := other.Move(testkit.Deadline(t), topUp("b1", "cell-2", 10)); err != nil {
		t.Fatal(err)
	}
	// p is back. What it holds against etcd is not written down, and a listing ends it.
	_, err := p.Move(testkit.Deadline(t), topUp("c1", "cell-2", 10))
	if !errors.Is(err, core.ErrRestored) {
		t.Fatalf("before it heard of the recovery: %v, want ErrRestored", err)
	}
	if err := p.MarkRestored(testkit.Deadline(t), core.Restored{Why: p.Lost(), FoundBy: "here"}); err != nil {
		t.Fatal(err)
	}
	list(t, p.Store)
	if p.Lost() != "" {
		t.Fatalf("the loss is held against a recovered etcd: %s", p.Lost())
	}
	for _, s := range []*store.Store{p.Store, other} {
		if _, err := s.Move(testkit.Deadline(t), topUp("c2", "cell-2", 10)); err != nil {
			t.Fatal(err)
		}
	}
	after() // what came after the recovery is lost: to both, by the books
	if _, err := p.Move(testkit.Deadline(t), topUp("c3", "cell-2", 10)); !errors.Is(err, core.ErrRestored) {
		t.Fatalf("an etcd from after the recovery, gone back: %v, want ErrRestored", err)
	}
	before() // and an etcd from before the recovery is one to a replica that knows of it, whatever its counters say
	fresh := another(t, p)
	for i := range 12 {
		if _, err := fresh.Move(testkit.Deadline(t), topUp(fmt.Sprint("d", i), "cell-1", 1)); err != nil {
			t.Fatal(err)
		}
	}
	list(t, late)
	if !strings.Contains(late.Lost(), "recovered under term") {
		t.Fatalf("%q: want the loss of a recovery", late.Lost())
	}
}

func another(t *testing.T, p *platform) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Endpoints: p.etcd.Endpoints(), Prefix: prefix}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func list(t *testing.T, s *store.Store) {
	t.Helper()
	if _, err := s.List(testkit.Deadline(t), func([]store.Entry) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// Records that were made in another cluster are a loss to the first listing already,
// before anybody leads: the runbook restores under a token of its own.
func TestAListingKnowsAnotherCluster(t *testing.T) {
	p := demo(t)
	lead(t, p.Store, "t1")
	fresh := another(t, p)
	list(t, fresh)
	if fresh.Lost() != "" {
		t.Fatalf("the cluster that it is: %s", fresh.Lost())
	}
	if _, err := p.etcd.Client(t).Put(testkit.Deadline(t), prefix+"/cluster", "\x01\x08\x07"); err != nil { // schema 1, cluster_id: 7
		t.Fatal(err)
	}
	fresh = another(t, p)
	list(t, fresh)
	if !strings.Contains(fresh.Lost(), "cluster 7") {
		t.Errorf("%q: want the other cluster named", fresh.Lost())
	}
}
