package settle_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/testkit"
)

// R-066, G-09: what is sold out for good is declared, in the book and in what cells
// and edges are told, at once.
func TestSoldOutForGoodIsDeclared(t *testing.T) {
	w := newWorld(t)
	w.reported("cell-1", 40, 40)
	w.reported("cell-2", 40, 40)
	w.tick()
	if w.book().Final {
		t.Fatal("final with a reserve")
	}
	w.soldOut()
	before := w.now()
	w.tick()
	book, campaign := w.book(), w.now()
	if !book.Final || !slices.Contains(campaign.FinalSKUs, "s") || campaign.Version != before.Version+1 {
		t.Fatalf("final %v, campaign %v of version %d after %d", book.Final, campaign.FinalSKUs, campaign.Version, before.Version)
	}
	if book.ModRevision != campaign.ModRevision {
		t.Errorf("book at revision %d, campaign at %d: two transactions", book.ModRevision, campaign.ModRevision)
	}
	w.tick()
	if again := w.now(); again.Version != campaign.Version {
		t.Errorf("declared twice: version %d", again.Version)
	}
}

// One unit that is not confirmed, or a cell that nothing is known of, keeps it TEMP.
func TestAUnitThatMayComeBackKeepsItTemp(t *testing.T) {
	w := newWorld(t)
	w.soldOut()
	w.reported("cell-2", 40, 39) // reserved: it may expire, and be sold again
	w.tick()
	if w.book().Final {
		t.Error("final while a unit is reserved")
	}
	w.cells.mu.Lock()
	delete(w.cells.held, "cell-2")
	w.cells.mu.Unlock()
	w.tick()
	if w.book().Final {
		t.Error("final without a word from cell-2")
	}
}

// A grant, a return or a refund's fence lands between decision and write: the
// book's version is another one, and nothing is declared.
func TestABookThatMovesMeanwhileIsNotDeclared(t *testing.T) {
	q := quantity.Must
	for name, change := range map[string]func(core.Book) (core.Book, []core.Adjustment, error){
		"raise and grant": func(b core.Book) (core.Book, []core.Adjustment, error) {
			b.SaleLimit, b.Allocations[0].Granted = q(101), q(61)
			return b, nil, nil
		},
		"a return is proposed": func(b core.Book) (core.Book, []core.Adjustment, error) {
			next, step, err := b.ProposeReturn(core.Cell{Spec: core.CellSpec{ID: "cell-1"}, State: core.CellActive, Version: 1, FenceVersion: 1}, q(1))
			return next, []core.Adjustment{{ID: "r", Key: key, Cell: "cell-1", Kind: core.KindReturn, Units: q(1), State: core.StateProposed, Step: step}}, err
		},
		"a refund came home by a fence": func(b core.Book) (core.Book, []core.Adjustment, error) {
			next, err := b.SealBack("cell-1", q(1))
			return next, nil, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.soldOut()
			version := w.now().Version
			s := w.openStore(func(kv clientv3.KV) clientv3.KV {
				return &before{KV: kv, run: func() { w.edit("meanwhile", change) }}
			})
			w.driver(s, w.archive).Tick(testkit.Deadline(t), w.leader)
			if w.book().Final || w.now().Version != version {
				t.Errorf("declared on a book that had moved: %+v", w.book())
			}
		})
	}
}

// A leader that lost its key declares nothing.
func TestAnOldLeaderDeclaresNothing(t *testing.T) {
	w := newWorld(t)
	w.soldOut()
	old := w.leader
	w.lead()
	w.driver(w.store, w.archive).Tick(testkit.Deadline(t), old)
	if w.book().Final {
		t.Error("declared under an old term")
	}
}

// before runs something once, before the first commit: after the decision.
type before struct {
	clientv3.KV
	once sync.Once
	run  func()
}

func (b *before) Txn(ctx context.Context) clientv3.Txn { return &beforeTxn{b.KV.Txn(ctx), b} }

type beforeTxn struct {
	clientv3.Txn
	b *before
}

func (t *beforeTxn) If(c ...clientv3.Cmp) clientv3.Txn  { t.Txn = t.Txn.If(c...); return t }
func (t *beforeTxn) Then(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(o...); return t }
func (t *beforeTxn) Commit() (*clientv3.TxnResponse, error) {
	t.b.once.Do(t.b.run)
	return t.Txn.Commit()
}

// RESTOCK: a refund may bring a unit back on sale until the end, and not after.
func TestUnderRestockFinalWaitsForTheEnd(t *testing.T) {
	w := newWorld(t)
	w.soldOut()
	w.setRefund(core.RefundRestock)
	w.tick()
	if w.book().Final {
		t.Fatal("final on sale under RESTOCK")
	}
	w.after = time.Hour // finality alone
	w.close()
	w.tick()
	if !w.book().Final {
		t.Error("not final after the end")
	}
}
