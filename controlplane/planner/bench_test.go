package planner_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// The control plane's work for one SKU, on a real etcd, with simulated cells that
// answer at once.

var sizes = []int{10, 100, 1_000}

// linked is a rig that leads n cells, at the pace of a real one.
func linked(b *testing.B, n int) *rig {
	b.Helper()
	r := newPacedRig(b, time.Second)
	r.plant(n)
	r.lead()
	r.linkAll(n)
	return r
}

// large gives a SKU a limit that lasts for every round of a benchmark.
func large(s *core.SKUSpec) {
	s.PhysicalStock, s.SaleLimit, s.Reserve = quantity.Must(500_000_000), quantity.Must(500_000_000), quantity.Must(400_000_000)
}

// shows waits until the view shows what is asked for, without a poll's pause.
func (r *rig) shows(what string, done func(view.Snapshot) bool) {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	for {
		changed := r.view.Changed()
		if done(r.view.Snapshot()) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.t.Fatalf("%s: %v", what, ctx.Err())
		}
	}
}

// published publishes a campaign over n cells to its end.
func (r *rig) published(id string, n int) {
	r.t.Helper()
	r.publish(id, "op-"+id)
	r.shows(id, func(s view.Snapshot) bool {
		op, _ := s.Operation("op-" + id)
		return op.State == core.OperationDone
	})
}

// BenchmarkPublish: split, book, rules, first grants and their answers, on sale.
func BenchmarkPublish(b *testing.B) {
	testkit.Linear(b, "cells", sizes, func(b *testing.B, n int) {
		r := linked(b, n)
		i := 0
		for b.Loop() {
			b.StopTimer()
			id := fmt.Sprint("c", i)
			i++
			r.draftAs(id, n, func(s *core.SKUSpec) { large(s); s.ID = ids.SKUID("s-" + id) }, "s")
			b.StartTimer()
			r.published(id, n)
		}
	})
}

// BenchmarkTopUp: one cell's top-up, booked, sent, applied and settled. The book of
// all the cells is read and written by it.
func BenchmarkTopUp(b *testing.B) {
	testkit.Linear(b, "cells", sizes, func(b *testing.B, n int) {
		r := linked(b, n)
		r.draftAs("c", n, large, "s")
		r.published("c", n)
		i := 0
		for b.Loop() {
			id := fmt.Sprint("top-up-", i)
			i++
			r.topUp(id, ids.CellID(fmt.Sprint("cell-", i%n+1)), 1)
			r.shows(id, func(s view.Snapshot) bool {
				rec, known := s.RecordOf(id)
				return known && !rec.Open()
			})
		}
	})
}

// BenchmarkProposeRebalance: what a pass of the planner makes of the reports of all
// the cells of a SKU.
func BenchmarkProposeRebalance(b *testing.B) {
	testkit.Linear(b, "cells", sizes, func(b *testing.B, n int) {
		r := linked(b, n)
		r.draftAs("c", n, large, "s")
		r.published("c", n)
		for i := range n {
			available, perMinute := int64(i%50), int64(i*7%40)
			r.cells.set(ids.CellID(fmt.Sprint("cell-", i+1)), func(s *shard) { s.tells = has(available, perMinute) })
		}
		s := r.view.Snapshot()
		c, _ := s.Campaign("c")
		for b.Loop() {
			moves, _, _, err := r.planner.ProposeRebalance(s, c, "")
			if err != nil || n > 10 && len(moves) == 0 {
				b.Fatal(len(moves), err)
			}
		}
	})
}
