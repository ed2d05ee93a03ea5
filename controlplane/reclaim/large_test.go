package reclaim_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

const (
	manySKUs  = 100
	manySteps = 500
)

func manyKey(k int) core.BookKey {
	return core.BookKey{Campaign: "c", SKU: ids.SKUID(fmt.Sprint("m", k))}
}

// many gives cell-1 a long life: 100 more SKUs, of each 499 grants of one unit that
// arrived and one that did not, and 99 units sold.
func (w *world) many() {
	w.t.Helper()
	q := quantity.Must
	s := w.shards["cell-1"]
	s.do(fmt.Sprintf(`INSERT INTO cellquota.stock (campaign_id, sku_id, granted, available, confirmed, version, adjustment_version, last_number, last_adjustment_id, book_record_id, updated_at)
		SELECT 'c', 'm' || k, %d, %d, 99, 1, 1, %d, 'm' || k || '.%d', 'm' || k, now() FROM generate_series(0, %d) k`,
		manySteps-1, manySteps-100, manySteps-1, manySteps-1, manySKUs-1))
	s.do(fmt.Sprintf(`INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, asked, outcome, applied_at)
		SELECT 'm' || k || '.' || n, 'c', 'm' || k, 1, n, 'GRANT', 1, 1, 'APPLIED', now() FROM generate_series(0, %d) k, generate_series(1, %d) n`, manySKUs-1, manySteps-1))
	for k := range manySKUs {
		record := core.Record{ID: fmt.Sprint("m", k), Key: manyKey(k), Actor: "me", BookVersion: 1}
		for n := 1; n <= manySteps; n++ {
			a := core.Adjustment{
				ID: fmt.Sprintf("m%d.%d", k, n), Key: record.Key, Cell: "cell-1", Kind: core.KindGrant, Units: q(1),
				State: core.StateDone, Outcome: core.OutcomeApplied, Step: core.Step{FenceVersion: 1, Number: int64(n)},
			}
			if n == manySteps {
				a.State, a.Outcome = core.StateBooked, 0
			}
			record.Adjustments = append(record.Adjustments, a)
		}
		book := core.Book{Key: record.Key, SaleLimit: q(manySteps), LimitTarget: q(manySteps), Allocations: []core.Allocation{{
			Cell: "cell-1", Granted: q(manySteps), FenceVersion: 1, LastNumber: manySteps, CellVersion: 1, State: core.CellActive, FirstGrant: q(1),
		}}}
		w.update(func(tx *store.Tx) error {
			_, _, e1 := tx.Book(record.Key)
			_, _, e2 := tx.Record(record.ID)
			return errors.Join(e1, e2, tx.PutBook(book.Stamp(record.ID)), tx.PutRecord(record))
		})
	}
}

// A cell that took 500 adjustments of each of 100 SKUs is fenced and reclaimed: its
// proof in etcd holds what a reclaim needs, not the cell's life.
func TestACellWithALongLifeIsFencedAndReclaimed(t *testing.T) {
	w := newWorld(t).publish()
	w.many()
	w.dies("cell-1")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
	if op := w.done("f1"); op.State != core.OperationDone {
		t.Fatalf("%+v", op)
	}
	proof, err := w.store.Proof(testkit.Deadline(t), "cell-1", 2)
	if err != nil || len(proof.Adjustments) != 0 || len(proof.Settled) != manySKUs+1 || len(proof.Stocks) != manySKUs+1 {
		t.Fatalf("%d by name, %d sums, %d stocks, %v", len(proof.Adjustments), len(proof.Settled), len(proof.Stocks), err)
	}
	got, err := w.client.Get(testkit.Deadline(t), w.prefix+"/proofs/", clientv3.WithPrefix())
	if err != nil || len(got.Kvs) != 1 || len(got.Kvs[0].Value) > 64<<10 {
		t.Fatalf("%d proofs, %v: the first of %d bytes", len(got.Kvs), err, len(got.Kvs[0].Value))
	}
	for _, k := range []int{0, manySKUs / 2, manySKUs - 1} {
		book, err := w.store.Book(testkit.Deadline(t), manyKey(k))
		if err != nil || book.Reserve.Int64() != manySteps-99 || book.Allocated() != 99 {
			t.Errorf("%s: %+v, %v", manyKey(k), book, err)
		}
	}
}

const longSKUs = 700

func longKey(k int) core.BookKey {
	return core.BookKey{Campaign: "c", SKU: ids.SKUID(fmt.Sprintf("%064d", k))}
}

// Hundreds of SKUs whose names and adjustment ids are as long as may be, each with a grant that the journal does not
// know as answered: the proof stands in parts, and the cell is fenced and reclaimed by it. (A thousand and more are
// the store's test: here each is a transaction of its own.)
func TestACellOfLongNamesIsFencedAndReclaimed(t *testing.T) {
	w := newWorld(t).publish()
	s := w.shards["cell-1"]
	id := func(k int) string { return fmt.Sprintf("%0128d", k) }
	s.do(fmt.Sprintf(`INSERT INTO cellquota.stock (campaign_id, sku_id, granted, available, confirmed, version, adjustment_version, last_number, last_adjustment_id, book_record_id, updated_at)
		SELECT 'c', lpad(k::text, 64, '0'), 3, 2, 1, 1, 1, 1, lpad(k::text, 128, '0'), lpad(k::text, 128, '0'), now() FROM generate_series(0, %d) k`, longSKUs-1))
	s.do(fmt.Sprintf(`INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, asked, outcome, applied_at)
		SELECT lpad(k::text, 128, '0'), 'c', lpad(k::text, 64, '0'), 1, 1, 'GRANT', 3, 3, 'APPLIED', now() FROM generate_series(0, %d) k`, longSKUs-1))
	q := quantity.Must
	for k := range longSKUs {
		key := longKey(k)
		record := core.Record{ID: id(k), Key: key, Actor: "me", BookVersion: 1, Adjustments: []core.Adjustment{{
			ID: id(k), Key: key, Cell: "cell-1", Kind: core.KindGrant, Units: q(3), State: core.StateBooked, Step: core.Step{FenceVersion: 1, Number: 1},
		}}}
		book := core.Book{Key: key, SaleLimit: q(3), Allocations: []core.Allocation{{
			Cell: "cell-1", Granted: q(3), FenceVersion: 1, LastNumber: 1, CellVersion: 1, State: core.CellActive, FirstGrant: q(3),
		}}}
		w.update(func(tx *store.Tx) error {
			_, _, e1 := tx.Book(key)
			_, _, e2 := tx.Record(record.ID)
			return errors.Join(e1, e2, tx.PutBook(book.Stamp(record.ID)), tx.PutRecord(record))
		})
	}
	w.dies("cell-1")
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true})
	w.done("f1")
	proof, err := w.store.Proof(testkit.Deadline(t), "cell-1", 2)
	seen, known := w.view.Snapshot().Proof("cell-1", 2)
	if err != nil || !known || len(proof.Stocks) != longSKUs+1 || !reflect.DeepEqual(seen, proof) {
		t.Fatalf("%d stocks in etcd, %d in the view: %v", len(proof.Stocks), len(seen.Stocks), err)
	}
	parts, err := w.client.Get(testkit.Deadline(t), w.prefix+"/proofparts/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || parts.Count < 2 {
		t.Fatalf("%d parts, %v", parts.Count, err)
	}
	for k := 0; k < longSKUs; k += 50 {
		if book, err := w.store.Book(testkit.Deadline(t), longKey(k)); err != nil || book.Reserve.Int64() != 2 || book.Allocated() != 1 {
			t.Errorf("%s: %+v, %v", longKey(k), book, err)
		}
	}
}
