package planner_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// plant puts n ACTIVE cells, cell-1 to cell-n, into etcd, many in a transaction, and
// gives each a process with a lease: what provisioning and registering n cells
// leaves behind.
func (r *rig) plant(n int) {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	const atOnce = 40
	for first := 1; first <= n; first += atOnce {
		_, err := r.store.Update(ctx, "plant", func(tx *store.Tx) error {
			for i := first; i < min(first+atOnce, n+1); i++ {
				c := core.Cell{Spec: cellSpec(i), State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "a"}
				if _, _, err := tx.Cell(c.Spec.ID); err != nil {
					return err
				}
				if err := tx.PutCell(c); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// linkAll connects the n cells that plant made; one lease holds all their processes.
func (r *rig) linkAll(n int) {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	lease, err := r.store.GrantLease(ctx, 10*time.Minute)
	if err != nil {
		r.t.Fatal(err)
	}
	var all errgroup.Group
	all.SetLimit(16)
	for i := 1; i <= n; i++ {
		all.Go(func() error {
			id := ids.CellID(fmt.Sprint("cell-", i))
			_, err := r.store.Register(ctx, r.leader, core.Instance{Cell: id, ID: "p1", Group: "a", Lease: lease}, func(core.Cell) error { return nil })
			return err
		})
	}
	if err := all.Wait(); err != nil {
		r.t.Fatal(err)
	}
	for i := 1; i <= n; i++ {
		id := ids.CellID(fmt.Sprint("cell-", i))
		s := r.cells.connect(id)
		testkit.Eventually(r.t, wait, func() error { return r.raise(id, s.stream) })
	}
}

// TestThousandCells: a SKU cut over 1,000 cells is published and topped up; every
// cell's shard has exactly what the book allocates, and the answers of the shards,
// which come at once, are all booked.
func TestThousandCells(t *testing.T) {
	const n = 1000
	r := newRig(t)
	r.plant(n)
	r.lead()
	r.linkAll(n)
	r.draft("c", n, "s")
	r.publish("c", "op")
	r.until("op", core.OperationDone)
	r.topUp("t1", "cell-1000", 100)
	if a := r.settled("t1"); a.State != core.StateDone {
		t.Fatalf("the top-up is %s", a.State)
	}
	key := core.BookKey{Campaign: "c", SKU: "s"}
	book, err := r.store.Book(testkit.Deadline(t), key)
	if err != nil || len(book.Allocations) != n || book.Allocated() != 9700 || book.Reserve.Int64() != 300 {
		t.Fatalf("%d allocations of %d units, reserve %s: %v", len(book.Allocations), book.Allocated(), book.Reserve, err)
	}
	for _, a := range book.Allocations {
		r.cells.read(a.Cell, func(s *shard) {
			if s.granted[key] != a.Granted.Int64() {
				t.Errorf("%s: the shard has %d units, the book allocates %s", a.Cell, s.granted[key], a.Granted)
			}
		})
	}
	if record, err := r.store.Record(testkit.Deadline(t), core.PublishRecordID(key)); err != nil || len(record.Adjustments) != n || record.Open() {
		t.Fatalf("the publish's record has %d adjustments, open: %v, %v", len(record.Adjustments), record.Open(), err)
	}
}

// TestThousandSKUs: a campaign of 1,000 SKUs is published, book by book, and what it
// takes grows with the SKUs.
func TestThousandSKUs(t *testing.T) {
	n := 1000
	if raceDetector { // ten times slower, and no other interleavings
		n = 100
	}
	r := newRig(t)
	r.plant(2)
	r.lead()
	r.linkAll(2)
	var skus []string
	for i := range n {
		skus = append(skus, fmt.Sprint("sku-", i))
	}
	r.draft("c", 2, skus...)
	r.publish("c", "op")
	r.untilWithin("op", core.OperationDone, time.Minute)
	for _, sku := range skus {
		book, err := r.store.Book(testkit.Deadline(t), core.BookKey{Campaign: "c", SKU: ids.SKUID(sku)})
		if err != nil || book.Allocated() != 9600 {
			t.Fatalf("%s: %d units: %v", sku, book.Allocated(), err)
		}
	}
	r.cells.read("cell-1", func(s *shard) {
		if len(s.granted) != n {
			t.Errorf("the shard of cell-1 has %d SKUs", len(s.granted))
		}
	})
}
