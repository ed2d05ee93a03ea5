package recovery_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/recovery"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

// life is one driver's, from its start to its first write, which happens or not.
func (w *world) life(leader core.Leader, op core.Operation, after bool) {
	w.t.Helper()
	ctx, die := context.WithCancel(testkit.Deadline(w.t))
	defer die()
	s, err := store.Open(store.Config{Endpoints: w.etcd.Endpoints(), Prefix: w.prefix}, store.Deps{
		Clock: clock.System(), KV: fault.Live(1, after, die).KV,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	d := &recovery.Driver{Store: s, View: w.view, Open: w.open, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)}
	_ = d.Step(ctx, leader, op) // it dies; the records say how far it came
}

// A driver that dies at every single write, before it or after it, is followed by one
// that does what was left: the books come out as with one that lives, what a fence
// sealed is booked once, and nothing is granted before the last line.
func TestARecoveryWhoseDriversDie(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.lead()
	}
	w.sell("cell-1", 120)
	w.fence("f1", false) // 180 units are sealed and not booked
	w.carryOn(0, "f1")
	w.update(func(tx *store.Tx) error {
		token := core.Token{ID: "t1", Name: "carl", Role: "sre", ExpiresAt: time.Now().Add(time.Hour), Digest: [32]byte{1}}
		open := core.Operation{ID: "limit", Kind: core.OperationSetLimit, Subject: "c", State: core.OperationPending, Step: "raise", Actor: "ann"}
		_, _, e1 := tx.Token("t1")
		_, _, e2 := tx.Operation("limit")
		return errors.Join(e1, e2, tx.PutToken(token), tx.PutOperation(open))
	})
	restore := w.backup()
	if err := w.witness(w.lead(), "cell-2"); err != nil {
		t.Fatal(err)
	}
	if err := w.grant("a1", "cell-2", 350); err != nil {
		t.Fatal(err)
	}
	w.apply("cell-2", "a1", 2, 350, "a1")
	w.sql("cell-2", "SELECT cellquota.set_cell_switch(true, 7, 'smoke')")
	restore()
	w.marked()
	order := recovery.Order{OperationID: "op", Reason: "drill", Limits: []core.ConfirmedLimit{{Key: key, SaleLimit: quantity.Must(1_000)}}}
	if _, err := w.orders.Recover(testkit.Deadline(t), intent.Caller{Name: "me", Method: "test"}, order); err != nil {
		t.Fatal(err)
	}
	lives := 0
	for op := w.operation("op"); op.State != core.OperationDone; op = w.operation("op") {
		if _, stands := w.now().Restored(); !stands || op.State.Terminal() {
			t.Fatalf("RESTORED stands: %v; the recovery is %s at %s: %s", stands, op.State, op.Step, op.Detail)
		}
		if err := w.grant("early", "cell-2", 1); !errors.Is(err, core.ErrRestored) {
			t.Fatalf("a grant in the middle: %v, want ErrRestored", err)
		}
		if lives++; lives > 100 {
			t.Fatalf("after %d lives it is at %s: %s", lives, op.Step, op.Detail)
		}
		w.life(w.lead(), op, lives%3 > 0)
	}
	if lives < 9 {
		t.Errorf("%d lives: nobody died between two writes", lives)
	}
	w.balanced()
	book, err := w.store.Book(testkit.Deadline(t), key)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := book.Allocation("cell-1")
	two, _ := book.Allocation("cell-2")
	if one.Granted.Int64() != 120 || two.Granted.Int64() != 650 || two.LastNumber != 2 || book.Reserve.Int64() != 230 {
		t.Errorf("book %+v", book)
	}
	if err := w.grant("a3", "cell-2", 231); !errors.Is(err, core.ErrReserveShort) {
		t.Errorf("more than is left: %v", err)
	}
	w.sellsAgain()
}

func (w *world) operation(id string) core.Operation {
	w.t.Helper()
	op, err := w.store.Operation(testkit.Deadline(w.t), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return op
}
