package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

const testDeadline = 20 * time.Second

// A cell that is fenced between a move's reads and its commit: the ranged compare
// is lost, the retry sees FENCING and grants nothing.
func TestAFenceBetweenReadAndCommitWins(t *testing.T) {
	p := demo(t)
	m := topUp("a1", "cell-1", 100)
	edit, runs := m.Edit, 0
	m.Edit = func(b core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		if runs++; runs == 1 {
			c := cells["cell-1"]
			c.State, c.FenceVersion, c.Version = core.CellFencing, 2, 2
			p.putCell(t, c)
		}
		return edit(b, cells)
	}
	if _, err := p.Move(testkit.Deadline(t), m); !errors.Is(err, core.ErrCellState) || runs != 2 {
		t.Fatalf("%v after %d runs, want ErrCellState after 2", err, runs)
	}
	if p.granted(t, "cell-1") != 2_400 {
		t.Fatal("units were granted across a fence")
	}
}

// The same for a cell that did not exist when the cells were read.
func TestANewCellIsAChangeOfTheRange(t *testing.T) {
	p := demo(t)
	m := topUp("a1", "cell-1", 100)
	edit, runs := m.Edit, 0
	m.Edit = func(b core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		if runs++; runs == 1 {
			c := cells["cell-1"]
			c.Spec.ID = "cell-9"
			p.putCell(t, c)
		}
		return edit(b, cells)
	}
	if _, err := p.Move(testkit.Deadline(t), m); err != nil || runs != 2 {
		t.Fatalf("%v after %d runs, want success after 2", err, runs)
	}
}

func TestWriteWithoutReadIsRefused(t *testing.T) {
	p := demo(t)
	_, err := p.Update(testkit.Deadline(t), "blind", func(tx *store.Tx) error {
		return tx.PutBook(p.book(t))
	})
	if !errors.Is(err, core.ErrBroken) {
		t.Fatalf("%v, want ErrBroken", err)
	}
}

func TestABrokenBookIsNotStored(t *testing.T) {
	p := demo(t)
	m := topUp("a1", "cell-1", 100)
	m.Edit = func(b core.Book, _ map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		b.Reserve = quantity.Must(1)
		return b, nil, nil
	}
	if _, err := p.Move(testkit.Deadline(t), m); !errors.Is(err, core.ErrBroken) || p.book(t).Reserve.Int64() != 400 {
		t.Fatalf("%v, want ErrBroken and the book as it was", err)
	}
}

func TestTooManyOperationsAreRefusedWithTheNumber(t *testing.T) {
	p := demo(t)
	_, err := p.Update(testkit.Deadline(t), "wide", func(tx *store.Tx) error {
		for i := range 65 {
			r := core.Record{ID: fmt.Sprint("r", i), Key: key}
			if _, _, err := tx.Record(r.ID); err != nil {
				return err
			}
			if err := tx.PutRecord(r); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, core.ErrTooLarge) {
		t.Fatalf("%v, want ErrTooLarge", err)
	}
}

// What etcd would refuse is refused before, by the record's name and with both
// numbers: one value, and what a transaction writes together.
func TestTooLargeIsRefusedByNameWithTheNumbers(t *testing.T) {
	p := demo(t)
	for _, c := range []struct {
		name          string
		records, each int
		want          []string
	}{
		{"one value", 1, 1 << 20, []string{"/journal/big0", "Record of 10486", "at most 1048576"}},
		{"together", 3, 500 << 10, []string{"153", "of 3 writes", "at most 1310720"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := p.Update(testkit.Deadline(t), "large", func(tx *store.Tx) error {
				for i := range c.records {
					r := core.Record{ID: fmt.Sprint("big", i), Key: key, Reason: strings.Repeat("x", c.each)}
					if _, _, err := tx.Record(r.ID); err != nil {
						return err
					}
					if err := tx.PutRecord(r); err != nil {
						return err
					}
				}
				return nil
			})
			if !errors.Is(err, core.ErrTooLarge) {
				t.Fatalf("%v, want ErrTooLarge", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v: lacks %q", err, want)
				}
			}
		})
	}
}

// Terms grow by one with every leader; a leader that lost its key writes nothing.
func TestLeadership(t *testing.T) {
	p := demo(t)
	ctx := testkit.Deadline(t)
	lease, err := p.GrantLease(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	first, err := p.TakeLead(ctx, lease, "a:1", "one")
	if err != nil || first.Term.Count != 1 || first.CreateRevision == 0 {
		t.Fatalf("first leader: %+v, %v", first, err)
	}
	other, err := p.GrantLease(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.TakeLead(ctx, other, "b:1", "two"); !errors.Is(err, core.ErrNotLeader) {
		t.Fatalf("a second leader: %v", err)
	}
	m := topUp("a1", "cell-1", 100)
	m.Leader = &first
	if _, err := p.Move(ctx, m); err != nil {
		t.Fatalf("the leader's move: %v", err)
	}
	if err := p.RevokeLease(ctx, lease); err != nil {
		t.Fatal(err)
	}
	second, err := p.TakeLead(ctx, other, "b:1", "two")
	if err != nil || second.Term.Count != 2 {
		t.Fatalf("second leader: %+v, %v", second, err)
	}
	m = topUp("a2", "cell-1", 100)
	m.Leader = &first
	if _, err := p.Move(ctx, m); !errors.Is(err, core.ErrNotLeader) {
		t.Fatalf("the old leader's move: %v, want ErrNotLeader", err)
	}
	if _, err := p.ReadForSending(ctx, first, "a1", key, "cell-1"); !errors.Is(err, core.ErrNotLeader) {
		t.Fatalf("the old leader's read: %v, want ErrNotLeader", err)
	}
	facts, err := p.ReadForSending(ctx, second, "a1", key, "cell-1")
	if err != nil || facts.Record.ID != "a1" || facts.Book.Key != key || facts.Cell.Spec.ID != "cell-1" || facts.Campaign.Version != 0 {
		t.Fatalf("the leader's read: %+v, %v", facts, err)
	}
	if _, err := p.KeepLease(ctx, lease); !errors.Is(err, store.ErrLeaseGone) {
		t.Fatalf("keeping a revoked lease: %v", err)
	}
}

// The leader loses its key between a move's reads and its commit.
func TestLeadershipLostOnTheWay(t *testing.T) {
	p := demo(t)
	ctx := testkit.Deadline(t)
	lease, _ := p.GrantLease(ctx, time.Minute)
	leader, err := p.TakeLead(ctx, lease, "a:1", "one")
	if err != nil {
		t.Fatal(err)
	}
	m := topUp("a1", "cell-1", 100)
	m.Leader = &leader
	edit := m.Edit
	m.Edit = func(b core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		if err := p.RevokeLease(ctx, lease); err != nil {
			return core.Book{}, nil, err
		}
		return edit(b, cells)
	}
	if _, err := p.Move(ctx, m); !errors.Is(err, core.ErrNotLeader) || p.book(t).Version != 1 {
		t.Fatalf("%v, want ErrNotLeader and an unchanged book", err)
	}
}

func TestTheAnswerOfTakingTheLeadIsLost(t *testing.T) {
	p := demo(t)
	ctx := testkit.Deadline(t)
	lease, _ := p.GrantLease(ctx, time.Minute)
	p.loser.commits.Store(1)
	leader, err := p.TakeLead(ctx, lease, "a:1", "one")
	if err != nil || leader.Term.Count != 1 || leader.CreateRevision == 0 {
		t.Fatalf("%+v, %v", leader, err)
	}
	m := topUp("a1", "cell-1", 100)
	m.Leader = &leader
	if _, err := p.Move(ctx, m); err != nil {
		t.Fatalf("the leader cannot write: %v", err)
	}
}

func TestSettle(t *testing.T) {
	p := demo(t)
	ctx := testkit.Deadline(t)
	lease, _ := p.GrantLease(ctx, time.Minute)
	leader, err := p.TakeLead(ctx, lease, "a:1", "one")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"applied", "voided"} {
		if _, err := p.Move(ctx, topUp(id, "cell-1", 100)); err != nil {
			t.Fatal(err)
		}
	}
	p.loser.commits.Store(1) // the answer of the first settling is lost
	done, err := p.Settle(ctx, leader, "applied", "applied", core.OutcomeApplied)
	if err != nil || done.Adjustment.State != core.StateDone {
		t.Fatalf("applied: %+v, %v", done, err)
	}
	if again, err := p.Settle(ctx, leader, "applied", "applied", core.OutcomeApplied); err != nil || again.Changed {
		t.Fatalf("applied again: %+v, %v", again, err)
	}
	if _, err := p.Settle(ctx, leader, "applied", "applied", core.OutcomeVoided); !errors.Is(err, core.ErrContradiction) {
		t.Fatalf("applied, then voided: %v", err)
	}
	voided, err := p.Settle(ctx, leader, "voided", "voided", core.OutcomeVoided)
	if err != nil || !voided.Changed || voided.Book.Reserve.Int64() != 300 || voided.Adjustment.State != core.StateVoided {
		t.Fatalf("voided: %+v, %v", voided, err)
	}
	if _, err := p.Settle(ctx, leader, "nobody", "nobody", core.OutcomeApplied); !errors.Is(err, core.ErrUnknownRecord) {
		t.Fatalf("unknown record: %v", err)
	}
	if got := p.counted("GRANT", "VOIDED"); got != 1 {
		t.Errorf("voided grants counted: %v", got)
	}
	if b := p.book(t); b.Reserve.Int64() != 300 || b.Version != 4 {
		t.Errorf("book has reserve %s in version %d", b.Reserve, b.Version)
	}
}

func TestRegister(t *testing.T) {
	p := demo(t)
	ctx := testkit.Deadline(t)
	lead, _ := p.GrantLease(ctx, time.Minute)
	leader, err := p.TakeLead(ctx, lead, "a:1", "one")
	if err != nil {
		t.Fatal(err)
	}
	lease, _ := p.GrantLease(ctx, time.Minute)
	in := core.Instance{Cell: "cell-1", ID: "p1", Group: "a", Address: "127.0.0.1:9", Lease: lease}
	refused := errors.New("fenced")
	if _, err := p.Register(ctx, leader, in, func(core.Cell) error { return refused }); !errors.Is(err, refused) {
		t.Fatalf("refused by the caller: %v", err)
	}
	cell, err := p.Register(ctx, leader, in, func(core.Cell) error { return nil })
	if err != nil || cell.FenceVersion != 1 {
		t.Fatalf("registered: %+v, %v", cell, err)
	}
	if _, err := p.Register(ctx, leader, core.Instance{Cell: "nobody", ID: "x", Lease: lease}, func(core.Cell) error { return nil }); !errors.Is(err, core.ErrUnknownCell) {
		t.Fatalf("unknown cell: %v", err)
	}
	count := func() int64 {
		got, err := p.client.Get(ctx, prefix+"/instances/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return got.Count
	}
	if count() != 1 {
		t.Fatalf("%d instances", count())
	}
	if err := p.RevokeLease(ctx, lease); err != nil || count() != 0 {
		t.Fatalf("the instance outlived its lease: %v", err)
	}
}
