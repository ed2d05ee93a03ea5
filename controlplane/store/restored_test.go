package store_test

import (
	"context"
	"errors"
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
