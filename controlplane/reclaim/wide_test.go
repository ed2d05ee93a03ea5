package reclaim_test

import (
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

const thousand = 1_000

// inPages runs a change for each of n things, some in one transaction.
func (w *world) inPages(n int, each func(tx *store.Tx, i int) error) {
	w.t.Helper()
	const page = 25
	for from := 0; from < n; from += page {
		w.update(func(tx *store.Tx) error {
			var errs []error
			for i := from; i < min(from+page, n); i++ {
				errs = append(errs, each(tx, i))
			}
			return errors.Join(errs...)
		})
	}
}

// smallEnough checks that nothing that a reclaim wrote comes near what etcd takes.
func (w *world) smallEnough(room string) {
	w.t.Helper()
	got, err := w.client.Get(testkit.Deadline(w.t), w.prefix+room, clientv3.WithPrefix())
	if err != nil || len(got.Kvs) == 0 {
		w.t.Fatalf("%d keys of %s, %v", len(got.Kvs), room, err)
	}
	for _, kv := range got.Kvs {
		if len(kv.Value) > 512<<10 {
			w.t.Errorf("%s has %d bytes", kv.Key, len(kv.Value))
		}
	}
}

// A cell that holds a thousand SKUs is fenced and reclaimed: one transaction per SKU,
// more of them than one call of the driver takes, so that it resumes on the way; the
// proof is one record that etcd takes.
func TestACellOfAThousandSKUsIsFencedAndReclaimed(t *testing.T) {
	w := newWorld(t).publish()
	s := w.shards["cell-1"]
	s.do(fmt.Sprintf(`INSERT INTO cellquota.stock (campaign_id, sku_id, granted, available, confirmed, version, adjustment_version, last_number, last_adjustment_id, book_record_id, updated_at)
		SELECT 'c', 'm' || k, 10, 7, 3, 1, 1, 1, 'm' || k || '.1', 'm' || k, now() FROM generate_series(0, %d) k`, thousand-1))
	s.do(fmt.Sprintf(`INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, asked, outcome, applied_at)
		SELECT 'm' || k || '.1', 'c', 'm' || k, 1, 1, 'GRANT', 10, 10, 'APPLIED', now() FROM generate_series(0, %d) k`, thousand-1))
	q := quantity.Must
	w.inPages(thousand, func(tx *store.Tx, k int) error {
		record := core.Record{ID: fmt.Sprint("m", k), Key: manyKey(k), Actor: "me", BookVersion: 1, Adjustments: []core.Adjustment{{
			ID: fmt.Sprintf("m%d.1", k), Key: manyKey(k), Cell: "cell-1", Kind: core.KindGrant, Units: q(10), State: core.StateDone, Outcome: core.OutcomeApplied,
			Step: core.Step{FenceVersion: 1, Number: 1},
		}}}
		book := core.Book{Key: record.Key, SaleLimit: q(10), Allocations: []core.Allocation{{
			Cell: "cell-1", Granted: q(10), FenceVersion: 1, LastNumber: 1, CellVersion: 1, State: core.CellActive, FirstGrant: q(10),
		}}}
		_, _, e1 := tx.Book(record.Key)
		_, _, e2 := tx.Record(record.ID)
		return errors.Join(e1, e2, tx.PutBook(book.Stamp(record.ID)), tx.PutRecord(record))
	})
	w.dies("cell-1")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
	if op := w.done("f1"); op.State != core.OperationDone {
		t.Fatalf("%+v", op)
	}
	for _, k := range []int{0, 255, 256, thousand - 1} {
		if book, err := w.store.Book(testkit.Deadline(t), manyKey(k)); err != nil || book.Reserve.Int64() != 7 || book.Allocated() != 3 {
			t.Errorf("%s: %+v, %v", manyKey(k), book, err)
		}
	}
	w.smallEnough("/proofs/")
}

// One of a thousand cells that share a SKU is fenced, reclaimed, and what comes back is
// given to the others, in one record that etcd takes.
func TestOneOfAThousandCellsIsFencedAndReclaimed(t *testing.T) {
	w := newWorld(t).publish()
	q, wide := quantity.Must, core.BookKey{Campaign: "c", SKU: "wide"}
	w.inPages(thousand-3, func(tx *store.Tx, i int) error {
		id := ids.CellID(fmt.Sprintf("x-%03d", i))
		_, _, err := tx.Cell(id)
		spec := w.spec(id, fmt.Sprint("/nowhere/", i))
		return errors.Join(err, tx.PutCell(core.Cell{Spec: spec, State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "blue"}))
	})
	book := core.Book{Key: wide, SaleLimit: q(3 * thousand)}
	record := core.Record{ID: "wide", Key: wide, Actor: "me", BookVersion: 1}
	for i := range thousand {
		id := ids.CellID(fmt.Sprintf("x-%03d", i-3))
		if i < 3 {
			id = cells()[i]
		}
		book.Allocations = append(book.Allocations, core.Allocation{
			Cell: id, Granted: q(3), FirstGrant: q(3), FenceVersion: 1, LastNumber: 1, CellVersion: 1, State: core.CellActive,
		})
		record.Adjustments = append(record.Adjustments, core.Adjustment{
			ID: "wide." + string(id), Key: wide, Cell: id, Kind: core.KindGrant, Units: q(3), State: core.StateDone, Outcome: core.OutcomeApplied, Step: core.Step{FenceVersion: 1, Number: 1},
		})
	}
	w.update(func(tx *store.Tx) error {
		_, _, e1 := tx.Book(wide)
		_, _, e2 := tx.Record("wide")
		return errors.Join(e1, e2, tx.PutBook(book.Stamp("wide")), tx.PutRecord(record))
	})
	s := w.shards["cell-1"]
	s.do(`INSERT INTO cellquota.stock (campaign_id, sku_id, granted, available, confirmed, version, adjustment_version, last_number, last_adjustment_id, book_record_id, updated_at)
		VALUES ('c', 'wide', 3, 2, 1, 1, 1, 1, 'wide.cell-1', 'wide', now())`)
	s.do(`INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, asked, outcome, applied_at)
		VALUES ('wide.cell-1', 'c', 'wide', 1, 1, 'GRANT', 3, 3, 'APPLIED', now())`)
	w.dies("cell-1")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true, TopUp: true})
	if op := w.done("f1"); op.State != core.OperationDone {
		t.Fatalf("%+v", op)
	}
	after, err := w.store.Book(testkit.Deadline(t), wide)
	one, _ := after.Allocation("cell-1")
	if err != nil || one.Granted.Int64() != 1 || after.Allocated()+after.Reserve.Int64() != 3*thousand || after.Check() != nil {
		t.Errorf("cell-1 %+v, %d allocated, reserve %s, %v", one, after.Allocated(), after.Reserve, err)
	}
	w.smallEnough("/books/")
	w.smallEnough("/journal/")
}
