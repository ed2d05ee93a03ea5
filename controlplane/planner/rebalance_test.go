package planner_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/quota"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/supply"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// sold is a report of a shard that has sold so many of what it was granted, and is asked for so many a minute.
func sold(units, perMinute int64) func(*shard, core.BookKey) supply.Report {
	return func(s *shard, key core.BookKey) supply.Report {
		r := soldOut(s, key)
		r.Stock.Available, r.Stock.Confirmed = quantity.Must(s.granted[key]-units), quantity.Must(units)
		r.Rate = supply.Rate{Units: perMinute, Over: time.Minute}
		return r
	}
}

// carriesOut lets the real driver carry rebalances out.
func (r *rig) carriesOut() {
	r.operations.drive(quota.Rebalances{Deps: quota.Deps{Store: r.store, View: r.view, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)}})
}

// holds waits until the book and the shards agree on these allocations.
func (r *rig) holds(reserve int64, granted ...int64) {
	r.t.Helper()
	testkit.Eventually(r.t, wait, func() error {
		b := r.book()
		if b.Reserve.Int64() != reserve || len(b.Allocations) != len(granted) {
			return fmt.Errorf("reserve %s, %+v", b.Reserve, b.Allocations)
		}
		for i, a := range b.Allocations {
			var has int64
			r.cells.read(a.Cell, func(s *shard) { has = s.granted[demoKey] })
			if a.Granted.Int64() != granted[i] || has != granted[i] {
				return fmt.Errorf("%s: %s in the book, %d in the shard, want %d", a.Cell, a.Granted, has, granted[i])
			}
		}
		return nil
	})
}

// AUTO carries its plan out, and a plan that was carried out leaves nothing to plan.
func TestAutoRebalanceIsCarriedOut(t *testing.T) {
	r := autoSale(t, 2, autoRebalance)
	r.carriesOut()
	first := r.book()
	r.tell("cell-1", sold(3_800, 100)) // has 1,000, keeps 125
	r.tell("cell-2", sold(4_750, 600)) // has 50
	r.holds(400, 4_250, 5_350)
	id := planner.AutoRebalanceID(first, 0)
	r.until(id, core.OperationDone)
	if open := r.view.Snapshot().OpenOperations(); len(open) != 0 {
		t.Errorf("it goes on: %+v", open)
	}
}

// refusing ends its first operations without a unit moved, as when every taker is refused, and hands the
// others on.
type refusing struct {
	mu    sync.Mutex
	first int
	ends  func(op core.Operation) error
	then  planner.Operations
}

func (d *refusing) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	d.mu.Lock()
	refuse := d.first > 0
	if refuse {
		d.first--
	}
	d.mu.Unlock()
	if refuse {
		return d.ends(op)
	}
	return d.then.Step(ctx, leader, op)
}

// A rebalance that ended without a unit moved leaves the book at the version that it was decided on. It is
// decided again, later each time, and not never.
func TestARefusedAutoRebalanceIsProposedAgain(t *testing.T) {
	r := newRigWith(t, planner.Config{Interval: 20 * time.Millisecond, RebalanceEvery: 100 * time.Millisecond})
	deps := quota.Deps{Store: r.store, View: r.view, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)}
	r.operations.drive(&refusing{first: 2, then: quota.Rebalances{Deps: deps}, ends: func(op core.Operation) error {
		_, err := r.store.Update(testkit.Deadline(t), "refuse", func(tx *store.Tx) error {
			present, _, err := tx.Operation(op.ID)
			return errors.Join(err, tx.PutOperation(present.End(core.OperationFailed, "refused", tx.Now())))
		})
		return err
	}})
	autoSaleOn(r, 2, autoRebalance)
	first := r.book()
	r.tell("cell-1", sold(3_800, 100)) // has 1,000, keeps 125
	r.tell("cell-2", sold(4_750, 600)) // has 50
	r.holds(400, 4_250, 5_350)
	var ended []core.Operation
	for n, want := range []core.OperationState{core.OperationFailed, core.OperationFailed, core.OperationDone} {
		ended = append(ended, r.until(planner.AutoRebalanceID(first, n), want))
	}
	for n, after := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond} {
		if waited := ended[n+1].StartedAt.Sub(ended[n].EndedAt); waited < after {
			t.Errorf("try %d began %s after the one before, want %s", n+2, waited, after)
		}
	}
}

// What a cell still has that is home to nobody goes back to the reserve, whatever the policy; the other
// cell, which has as much to spare, keeps its own.
func TestUnitsOfACellThatIsHomeToNobodyGoBack(t *testing.T) {
	r := autoSale(t, 2, func(s *core.SKUSpec) { s.Rebalance = core.AutoManual })
	r.carriesOut()
	_, err := r.store.Update(testkit.Deadline(t), "hand over", func(tx *store.Tx) error {
		route, _, err := tx.Route("c")
		if err != nil {
			return err
		}
		homes, err := allocator.DealBuckets([]allocator.CellWeight{{Cell: "cell-1", Weight: 1}}, allocator.Buckets)
		if err != nil {
			return err
		}
		route.Version, route.Domains = route.Version+1, []core.DomainRoute{{Homes: homes}}
		return tx.PutRoute(route)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.tell("cell-1", sold(800, 10))
	r.tell("cell-2", sold(800, 0))
	r.holds(4_400, 4_800, 800)
}

// A rebalance that waits for its giver holds up its own SKU, whose units are on their way, and no other.
func TestARebalanceHoldsItsOwnSKUAlone(t *testing.T) {
	r := newRig(t)
	r.provision(1)
	r.lead()
	r.link("cell-1")
	r.draftAs("c", 1, autoTopUp, "s", "z")
	r.publish("c", "op")
	r.until("op", core.OperationDone)
	revision, err := r.store.Update(testkit.Deadline(t), "rebalance", func(tx *store.Tx) error {
		if _, _, err := tx.Operation("r1"); err != nil {
			return err
		}
		return tx.PutOperation(core.Operation{
			ID: "r1", Kind: core.OperationRebalance, Subject: "c", State: core.OperationRunning, Actor: "ann", StartedAt: tx.Now(),
			Moves: []core.RebalanceMove{{SKU: "s", From: "cell-1", Units: quantity.Must(1)}},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.view.WaitFor(testkit.Deadline(t), revision); err != nil { // a tick decides on what it sees
		t.Fatal(err)
	}
	before := r.book()
	r.tell("cell-1", soldOut)
	testkit.Eventually(t, wait, func() error {
		if n := len(r.rounds()); n < 3 {
			return fmt.Errorf("%d rounds of the other SKU", n)
		}
		return nil
	})
	if after := r.book(); after.Version != before.Version {
		t.Errorf("the SKU whose units are moved was topped up: version %d after %d", after.Version, before.Version)
	}
}
