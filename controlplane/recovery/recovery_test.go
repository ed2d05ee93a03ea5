package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/recovery"
	"github.com/cellquota/cellquota/internal/testkit"
)

// A backup of etcd is restored, and a replica that remembers nothing leads. What
// was granted after the backup is in a shard and in the reserve too; it is found
// before a unit is granted, the books are taken from the shards, and grants go on
// from their numbers.
func TestBooksAreTakenFromTheShards(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.lead() // terms 1 to 3, of which the backup has the first three
	}
	restore := w.backup()
	old := w.lead()
	if err := w.witness(old, "cell-1"); err != nil {
		t.Fatal(err)
	}
	if err := w.grant("a1", "cell-1", 350); err != nil {
		t.Fatal(err)
	}
	w.apply("cell-1", "a1", 2, 350, "a1")
	restore()
	leader := w.lead()
	if leader.Term.Count != old.Term.Count || leader.Term.ID == old.Term.ID {
		t.Fatalf("terms %v and %v: the restored etcd gives the count a second time", old.Term, leader.Term)
	}
	// Two leaders of one count: the shard refuses the second, by its id.
	if err := w.witness(leader, "cell-1"); !errors.Is(err, planner.ErrTermAhead) {
		t.Fatalf("%v, want ErrTermAhead", err)
	}
	leader = w.lead() // a higher count gets through, and the facts show the loss
	err := w.witness(leader, "cell-1")
	if !errors.Is(err, core.ErrRestored) {
		t.Fatalf("%v, want ErrRestored", err)
	}
	if err := w.store.MarkRestored(testkit.Deadline(t), core.Restored{Why: err.Error(), Cell: "cell-1", FoundBy: "here"}); err != nil {
		t.Fatal(err)
	}
	if err := w.grant("a2", "cell-2", 400); !errors.Is(err, core.ErrRestored) { // units that cell-1 has
		t.Fatalf("%v, want ErrRestored", err)
	}
	w.dryRun()
	w.recover("op-1", 600, func(op core.Operation) error { // below the 950 that are held
		if op.State != core.OperationFailed || !strings.Contains(op.Detail, "floor=950") {
			return fmt.Errorf("operation is %s: %s", op.State, op.Detail)
		}
		return nil
	})
	w.recover("op-2", 1_000, func(op core.Operation) error {
		if op.State != core.OperationDone {
			return fmt.Errorf("operation is %s: %s", op.State, op.Detail)
		}
		return nil
	})
	book, err := w.store.Book(testkit.Deadline(t), key)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := book.Allocation("cell-1")
	two, _ := book.Allocation("cell-2")
	if one.Granted.Int64() != 650 || one.LastNumber != 2 || two.Granted.Int64() != 300 || book.Reserve.Int64() != 50 || book.SaleLimit.Int64() != 1_000 {
		t.Fatalf("book %+v", book)
	}
	if err := w.witness(w.lead(), "cell-1"); err != nil {
		t.Fatalf("after recovery: %v", err)
	}
	if err := w.grant("a1", "cell-1", 350); !errors.Is(err, core.ErrIDReused) {
		t.Fatalf("the lost grant under its id again: %v, want ErrIDReused", err)
	}
	if err := w.grant("a3", "cell-2", 51); !errors.Is(err, core.ErrReserveShort) {
		t.Fatalf("%v, want ErrReserveShort", err)
	}
	if err := w.grant("a4", "cell-1", 50); err != nil {
		t.Fatal(err)
	}
	if r, err := w.store.Record(testkit.Deadline(t), "a4"); err != nil || r.Adjustments[0].Number != 3 {
		t.Fatalf("a4 %+v, %v: want number 3", r, err)
	}
}

func (w *world) dryRun() {
	w.t.Helper()
	books, cells, err := w.orders.Preview(testkit.Deadline(w.t), nil)
	if err != nil || len(books) != 1 || len(cells) != 2 || books[0].Floor != 950 || books[0].BlockedBy == "" || cells[0].BlockedBy != "" {
		w.t.Fatalf("dry run: %+v, %+v, %v", books, cells, err)
	}
}

// recover begins a recovery, and drives it under as many leaders as it takes.
func (w *world) recover(id string, limit int64, ended func(core.Operation) error) {
	w.t.Helper()
	w.recoverTo(id, []core.ConfirmedLimit{{Key: key, SaleLimit: quantity.Must(limit)}}, ended)
}

func (w *world) recoverTo(id string, limits []core.ConfirmedLimit, ended func(core.Operation) error) {
	w.t.Helper()
	order := recovery.Order{OperationID: id, Reason: "drill", Limits: limits}
	op, err := w.orders.Recover(testkit.Deadline(w.t), intent.Caller{Name: "me", Method: "test", Issuers: []string{"root"}}, order)
	if err != nil || !op.NeedsApproval {
		w.t.Fatalf("%+v, %v: want an operation that waits for a second person", op, err)
	}
	if a, err := w.store.Approval(testkit.Deadline(w.t), id); err != nil || !slices.Equal(a.RequesterIssuers, []string{"root"}) {
		w.t.Fatalf("%+v, %v: want who minted the requester's token", a, err)
	}
	w.driveTo(id, ended)
}

func (w *world) driveTo(id string, ended func(core.Operation) error) {
	w.t.Helper()
	leader := w.lead()
	testkit.Eventually(w.t, wait, func() error {
		ctx := testkit.Deadline(w.t)
		op, err := w.store.Operation(ctx, id)
		if err != nil {
			return err
		}
		if op.State.Terminal() {
			return ended(op)
		}
		if err := w.driver.Step(ctx, leader, op); err != nil {
			return err
		}
		if w.view.Snapshot().Term().Count > leader.Term.Count {
			leader = w.lead() // as the planner does
		}
		return fmt.Errorf("operation is at %s: %s", op.Step, op.Detail)
	})
}
