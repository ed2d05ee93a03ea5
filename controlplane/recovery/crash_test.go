package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/recovery"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// mortal is an etcd that its process can write to once: then the process is dead.
type mortal struct {
	clientv3.KV
	wrote bool
	die   context.CancelFunc
}

func (m *mortal) Txn(ctx context.Context) clientv3.Txn { return &lastTxn{Txn: m.KV.Txn(ctx), of: m} }

type lastTxn struct {
	clientv3.Txn
	of     *mortal
	writes bool
}

func (t *lastTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.Txn = t.Txn.If(cs...); return t }
func (t *lastTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }
func (t *lastTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		t.writes = t.writes || op.IsPut() || op.IsDelete()
	}
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *lastTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.of.wrote {
		return nil, context.Canceled
	}
	resp, err := t.Txn.Commit()
	if err == nil && resp.Succeeded && t.writes {
		t.of.wrote = true
		t.of.die()
	}
	return resp, err
}

// life is one driver's, from its start to its first write.
func (w *world) life(leader core.Leader, op core.Operation) {
	w.t.Helper()
	ctx, die := context.WithCancel(testkit.Deadline(w.t))
	defer die()
	s, err := store.Open(store.Config{Endpoints: w.etcd.Endpoints(), Prefix: "/cellquota"}, store.Deps{
		Clock: clock.System(), KV: func(kv clientv3.KV) clientv3.KV { return &mortal{KV: kv, die: die} },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	d := &recovery.Driver{Store: s, View: w.view, Open: w.open, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)}
	_ = d.Step(ctx, leader, op) // it dies; the records say how far it came
}

// A driver that dies after every single write is followed by one that does what was
// left: the books come out as with one that lives.
func TestARecoveryWhoseDriversDie(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.lead()
	}
	restore := w.backup()
	if err := w.witness(w.lead(), "cell-1"); err != nil {
		t.Fatal(err)
	}
	if err := w.grant("a1", "cell-1", 350); err != nil {
		t.Fatal(err)
	}
	w.apply("cell-1", "a1", 2, 350, "a1")
	restore()
	w.begin()
	w.lead()
	if err := w.store.MarkRestored(testkit.Deadline(t), core.Restored{Why: "a drill", Cell: "cell-1", FoundBy: "here"}); err != nil {
		t.Fatal(err)
	}
	order := recovery.Order{OperationID: "op", Reason: "drill", Limits: []core.ConfirmedLimit{{Key: key, SaleLimit: quantity.Must(1_000)}}}
	if _, err := w.orders.Recover(testkit.Deadline(t), intent.Caller{Name: "me", Method: "test"}, order); err != nil {
		t.Fatal(err)
	}
	lives := 0
	testkit.Eventually(t, 3*wait, func() error {
		op, err := w.store.Operation(testkit.Deadline(t), "op")
		if err != nil {
			return err
		}
		if op.State == core.OperationDone {
			return nil
		}
		if _, stands := w.view.Snapshot().Restored(); !stands {
			t.Fatal("RESTORED is gone before the recovery was done")
		}
		lives++
		w.life(w.lead(), op)
		return fmt.Errorf("life %d: %s at %s: %s", lives, op.State, op.Step, op.Detail)
	})
	if lives < 3 {
		t.Errorf("%d lives: nobody died between two writes", lives)
	}
	book, err := w.store.Book(testkit.Deadline(t), key)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := book.Allocation("cell-1")
	two, _ := book.Allocation("cell-2")
	if one.Granted.Int64() != 650 || one.LastNumber != 2 || two.Granted.Int64() != 300 || book.Reserve.Int64() != 50 {
		t.Errorf("book %+v", book)
	}
	if err := w.grant("a3", "cell-2", 51); !errors.Is(err, core.ErrReserveShort) {
		t.Errorf("more than is left: %v", err)
	}
}
