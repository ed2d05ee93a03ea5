package reclaim_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// takingBack is etcd where a book is taken back in the moment before it is read for the first time.
type takingBack struct {
	clientv3.KV
	book string // its key ends so
	once *sync.Once
	take func()
}

func (k takingBack) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if strings.HasSuffix(key, k.book) {
		k.once.Do(k.take)
	}
	return k.KV.Get(ctx, key, opts...)
}

// A cell is fenced while a campaign is being published; the publish is given up and takes its books back
// while the reclaim walks through them. No cell ever heard of these: the reclaim goes on without them.
func TestABookThatAPublishTookBackIsNotMissed(t *testing.T) {
	w := newWorld(t).publish()
	next := core.BookKey{Campaign: "a-next", SKU: "s"} // sorts before the world's
	cell := w.cell("cell-1")
	q := quantity.Must
	book, steps, err := core.NewBook(next, allocator.Plan{Limit: q(10), Grants: []allocator.Grant{{Cell: "cell-1", Units: q(10)}}},
		map[ids.CellID]core.Cell{"cell-1": cell})
	if err != nil {
		t.Fatal(err)
	}
	record := core.Record{ID: core.PublishRecordID(next), Key: next, Actor: "me", At: time.Now(), Adjustments: []core.Adjustment{{
		ID: core.FirstGrantID(next, "cell-1"), Key: next, Cell: "cell-1", Kind: core.KindGrant, Units: q(10), State: core.StateBooked, Step: steps[0],
	}}}
	w.update(func(tx *store.Tx) error {
		_, _, e1 := tx.Book(next)
		_, _, e2 := tx.Record(record.ID)
		return errors.Join(e1, e2, tx.PutBook(book.Stamp(record.ID)), tx.PutRecord(record))
	})
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true, Force: true})
	take := func() {
		w.update(func(tx *store.Tx) error {
			_, _, e1 := tx.Book(next)
			_, _, e2 := tx.Record(record.ID)
			return errors.Join(e1, e2, tx.DropBook(next), tx.DropRecord(record.ID))
		})
	}
	s := w.openStore(func(kv clientv3.KV) clientv3.KV { return takingBack{kv, "/books/" + next.String(), &sync.Once{}, take} })
	d := reclaim.New(reclaim.Config{RetryInterval: time.Nanosecond}, s, w.view, reclaim.Files{}, clock.System(), nil)
	var op core.Operation
	testkit.Eventually(t, wait, func() error {
		if op, err = w.store.Operation(testkit.Deadline(t), "f1"); err != nil || op.State.Terminal() {
			return err
		}
		return errors.Join(d.Step(testkit.Deadline(t), w.leader, op), errors.New("it runs"))
	})
	if op.State != core.OperationDone || !w.cell("cell-1").Reclaimed {
		t.Fatalf("%s: %s", op.State, op.Detail)
	}
	w.i1()
}
