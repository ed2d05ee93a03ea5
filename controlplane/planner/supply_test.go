package planner_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/supply"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

func autoTopUp(s *core.SKUSpec) {
	s.TopUp = core.TopUpRules{Policy: core.AutoAuto, LowWaterPermille: 100, TranchePermille: 50}
}

func autoRebalance(s *core.SKUSpec) { s.Rebalance = core.AutoAuto }

// autoSale is a campaign on sale over n live cells, none of which reports yet.
func autoSale(t *testing.T, n int, change func(*core.SKUSpec)) *rig {
	t.Helper()
	return autoSaleOn(newRig(t), n, change)
}

func autoSaleOn(r *rig, n int, change func(*core.SKUSpec)) *rig {
	r.t.Helper()
	r.provision(n)
	r.lead()
	for i := range n {
		r.link(ids.CellID(fmt.Sprintf("cell-%d", i+1)))
	}
	r.draftAs("c", n, change, "s")
	r.publish("c", "op")
	r.until("op", core.OperationDone)
	return r
}

func (r *rig) tell(id ids.CellID, report func(*shard, core.BookKey) supply.Report) {
	r.cells.set(id, func(s *shard) { s.tells = report })
}

func (r *rig) book() core.Book {
	r.t.Helper()
	b, err := r.store.Book(testkit.Deadline(r.t), demoKey)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// rounds gives the records of AUTO top-ups, oldest first.
func (r *rig) rounds() []core.Record {
	all := r.view.Snapshot().Records("c", 0, 1000)
	slices.Reverse(all)
	return slices.DeleteFunc(all, func(rec core.Record) bool { return !strings.HasPrefix(rec.ID, "auto.") })
}

func sum(rec core.Record) (units int64) {
	for _, a := range rec.Adjustments {
		units += a.Units.Int64()
	}
	return units
}

// G-06, R-071: three cells that sell whatever they get empty the reserve to its last unit, in rounds that
// never grow, nobody more than a unit ahead in a round, every grant once in its shard.
func TestAutoTopUpsShrinkToTheLastUnit(t *testing.T) {
	r := autoSale(t, 3, autoTopUp)
	for i := range 3 {
		r.tell(ids.CellID(fmt.Sprintf("cell-%d", i+1)), soldOut)
	}
	testkit.Eventually(t, wait, func() error {
		if left := r.book().Reserve; !left.IsZero() {
			return fmt.Errorf("the reserve still has %s", left)
		}
		return nil
	})
	book := r.book()
	testkit.Eventually(t, wait, func() error { // the last round's grants arrive
		for _, a := range book.Allocations {
			var granted int64
			r.cells.read(a.Cell, func(s *shard) { granted = s.granted[demoKey] })
			if granted != a.Granted.Int64() {
				return fmt.Errorf("%s: the book allocates %s, its shard has %d", a.Cell, a.Granted, granted)
			}
		}
		return nil
	})
	rounds := r.rounds()
	if len(rounds) < 10 {
		t.Fatalf("only %d rounds: tranches do not shrink", len(rounds))
	}
	last, total := int64(400), int64(0)
	for _, rec := range rounds {
		units, least, most := sum(rec), int64(400), int64(0)
		for _, a := range rec.Adjustments {
			least, most = min(least, a.Units.Int64()), max(most, a.Units.Int64())
		}
		// A round may have fewer cells than the one before: those whose last grant has
		// arrived. Per cell it never grows by more than the odd unit.
		if per := (units + int64(len(rec.Adjustments)) - 1) / int64(len(rec.Adjustments)); per > last || most-least > 1 {
			t.Errorf("round %s: %d units for %d cells after %d each, from %d to %d", rec.ID, units, len(rec.Adjustments), last, least, most)
		} else {
			last = per + 1
		}
		total += units
	}
	if total != 400 {
		t.Errorf("the rounds come to %d of the reserve's 400", total)
	}
}

// A cell that may not be given units gets none, while its neighbour does: SUSPECT, an old report, a report
// of another fence version, an unapplied grant, no comparison under this leader over its present stream.
func TestAutoTopUpLeavesAlone(t *testing.T) {
	for name, spoil := range map[string]func(*rig){
		"a SKU that a finding holds": func(r *rig) { r.held.Store(ids.CellID("cell-2"), "FROZEN: finding f is open") },
		"a suspect cell": func(r *rig) {
			c, _ := r.view.Snapshot().Cell("cell-2")
			for _, in := range r.view.Snapshot().Instances(c.Spec.ID) {
				if err := r.store.RevokeLease(testkit.Deadline(r.t), in.Lease); err != nil {
					r.t.Fatal(err)
				}
			}
			testkit.Eventually(r.t, wait, func() error {
				if state := r.view.Snapshot().CellState(c); state != core.CellSuspect {
					return fmt.Errorf("cell-2 is %s", state)
				}
				return nil
			})
			r.tell("cell-2", soldOut)
		},
		"a report older than stale": func(r *rig) {
			r.tell("cell-2", func(s *shard, key core.BookKey) supply.Report {
				rep := soldOut(s, key)
				rep.At = time.Now().Add(-6 * time.Second)
				return rep
			})
		},
		"no report": func(r *rig) {},
		"a report of another fence version": func(r *rig) {
			r.tell("cell-2", func(s *shard, key core.BookKey) supply.Report {
				rep := soldOut(s, key)
				rep.FenceVersion = 2
				return rep
			})
		},
		"a report from before its last grant": func(r *rig) {
			r.tell("cell-2", func(s *shard, key core.BookKey) supply.Report {
				rep := soldOut(s, key)
				rep.Stock.LastNumber--
				return rep
			})
		},
		"a stream that was not compared": func(r *rig) {
			r.tell("cell-2", soldOut)
			r.cells.connect("cell-2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := autoSale(t, 2, autoTopUp)
			spoil(r)
			r.tell("cell-1", soldOut)
			testkit.Eventually(t, wait, func() error {
				if n := len(r.rounds()); n < 3 {
					return fmt.Errorf("%d rounds", n)
				}
				return nil
			})
			for _, rec := range r.rounds() {
				for _, a := range rec.Adjustments {
					if a.Cell != "cell-1" {
						t.Fatalf("%s was granted %s", a.Cell, a.Units)
					}
				}
			}
		})
	}
}

// Nothing is topped up by itself where nobody asked for it or somebody holds it: another SKU of the same
// campaign, which the same passes look at, is.
func TestAutoTopUpNotNow(t *testing.T) {
	for name, row := range map[string]struct {
		policy core.Auto
		change func(*core.Campaign, *core.Book)
	}{
		"MANUAL":                        {core.AutoManual, func(*core.Campaign, *core.Book) {}},
		"a paused SKU":                  {core.AutoAuto, func(c *core.Campaign, _ *core.Book) { c.PausedSKUs = []ids.SKUID{"s"} }},
		"a final SKU":                   {core.AutoAuto, func(c *core.Campaign, _ *core.Book) { c.FinalSKUs = []ids.SKUID{"s"} }},
		"a limit that is being lowered": {core.AutoAuto, func(_ *core.Campaign, b *core.Book) { b.LimitTarget = quantity.Must(9_000) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.provision(1)
			r.lead()
			r.link("cell-1")
			r.draftAs("c", 1, func(s *core.SKUSpec) {
				autoTopUp(s)
				if s.ID == "s" {
					s.TopUp.Policy = row.policy
				}
			}, "s", "z")
			r.publish("c", "op")
			r.until("op", core.OperationDone)
			_, err := r.store.Update(testkit.Deadline(t), "change", func(tx *store.Tx) error {
				c, _, err := tx.Campaign("c")
				if err != nil {
					return err
				}
				b, _, err := tx.Book(demoKey)
				if err != nil {
					return err
				}
				row.change(&c, &b)
				c.Version++
				if err := tx.PutCampaign(c); err != nil {
					return err
				}
				return tx.PutBook(b)
			})
			if err != nil {
				t.Fatal(err)
			}
			before := r.book()
			r.tell("cell-1", soldOut)
			testkit.Eventually(t, wait, func() error {
				n := 0
				for _, rec := range r.rounds() {
					if rec.Key.SKU == "z" {
						n++
					}
				}
				if n < 3 {
					return fmt.Errorf("%d rounds of the other SKU", n)
				}
				return nil
			})
			if after := r.book(); after.Version != before.Version {
				t.Fatalf("the book moved from version %d to %d", before.Version, after.Version)
			}
		})
	}
}

// A leader that was held between its decision and its transaction, while another took over and booked on
// the same version of the book, books nothing: the tranche exists once.
func TestAPausedLeadersTrancheIsNotBookedTwice(t *testing.T) {
	r := autoSale(t, 2, autoTopUp)
	held, let := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(let) })
	t.Cleanup(release)
	first := r.book()
	var once atomic.Bool
	r.cells.hold(func() {
		if once.CompareAndSwap(false, true) {
			close(held)
			<-let
		}
	})
	for _, id := range []ids.CellID{"cell-1", "cell-2"} {
		r.tell(id, soldOut)
	}
	<-held // the old leader decides, and stops in the middle
	ctx := testkit.Deadline(t)
	old := r.leader
	if err := r.store.RevokeLease(ctx, r.lease); err != nil {
		t.Fatal(err)
	}
	lease, err := r.store.GrantLease(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	next, err := r.store.TakeLead(ctx, lease, "there", ids.NewOperationID())
	if err != nil {
		t.Fatal(err)
	}
	other := planner.New(planner.Config{Interval: 20 * time.Millisecond, ResendAfter: time.Hour}, planner.Deps{
		Store: r.store, View: r.view, Cells: r.cells, Edges: r.edges, Operations: r.operations, Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
	})
	loop, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = other.Lead(loop, next) }()
	defer func() { stop(); <-done }()
	r.leader, r.planner = next, other
	r.cells.answerTo(other)
	for _, id := range []ids.CellID{"cell-1", "cell-2"} {
		var stream uint64
		r.cells.read(id, func(s *shard) { stream = s.stream })
		testkit.Eventually(t, wait, func() error { return r.raise(id, stream) })
	}
	testkit.Eventually(t, wait, func() error {
		if _, booked := r.view.Snapshot().Record(planner.AutoTopUpID(first)); !booked {
			return fmt.Errorf("the next leader has not booked the tranche of version %d", first.Version)
		}
		return nil
	})
	release()
	testkit.Eventually(t, wait, func() error {
		if left := r.book().Reserve; !left.IsZero() {
			return fmt.Errorf("the reserve still has %s", left)
		}
		return nil
	})
	testkit.Eventually(t, wait, func() error { // the view follows the store
		var total int64
		for _, rec := range r.rounds() {
			total += sum(rec)
		}
		if total != 400 {
			return fmt.Errorf("the rounds come to %d of the reserve's 400", total)
		}
		return nil
	})
	// And by hand, as the old leader would have: refused, whatever it read.
	_, err = r.store.Move(ctx, store.Move{RecordID: "auto.late", Key: demoKey, Leader: &old, Actor: "planner", Method: "test"})
	if err == nil || !strings.Contains(err.Error(), core.ErrNotLeader.Error()) {
		t.Fatalf("the old leader's move: %v", err)
	}
}

// A leader dies after a round was booked and before any shard heard of it: the next one sends the same
// grants, once.
func TestAutoTopUpGoesOnUnderTheNextLeader(t *testing.T) {
	r := autoSale(t, 2, autoTopUp)
	for _, id := range []ids.CellID{"cell-1", "cell-2"} {
		r.cells.set(id, func(s *shard) { s.deaf, s.tells = true, soldOut })
	}
	testkit.Eventually(t, wait, func() error {
		if len(r.rounds()) == 0 {
			return fmt.Errorf("no round yet")
		}
		return nil
	})
	r.lead()
	for _, id := range []ids.CellID{"cell-1", "cell-2"} {
		r.cells.set(id, func(s *shard) { s.deaf = false })
		r.link(id)
	}
	testkit.Eventually(t, wait, func() error {
		if left := r.book().Reserve; !left.IsZero() {
			return fmt.Errorf("the reserve still has %s", left)
		}
		return nil
	})
	for _, rec := range r.rounds() {
		for _, a := range rec.Adjustments {
			if a := r.settled(a.ID); a.Outcome != core.OutcomeApplied {
				t.Errorf("%s is %s", a.ID, a.Outcome)
			}
		}
	}
	testkit.Eventually(t, wait, func() (err error) { // the last grants are booked before they are sent
		for _, a := range r.book().Allocations {
			r.cells.read(a.Cell, func(s *shard) {
				if s.granted[demoKey] != a.Granted.Int64() {
					err = fmt.Errorf("%s: the book allocates %s, its shard has %d", a.Cell, a.Granted, s.granted[demoKey])
				}
			})
		}
		return err
	})
}

// what is idle in one cell goes to another that lacks it, as one operation with its moves; MANUAL
// does nothing; and what was proposed is not proposed again before it was carried out.
func TestAutoRebalanceIsProposedOnce(t *testing.T) {
	r := autoSale(t, 2, autoRebalance)
	r.tell("cell-1", has(1_000, 100)) // keeps 125
	r.tell("cell-2", has(50, 600))
	id := planner.AutoRebalanceID(r.book(), 0)
	var op core.Operation
	testkit.Eventually(t, wait, func() error {
		var known bool
		if op, known = r.view.Snapshot().Operation(id); !known {
			return fmt.Errorf("no operation %s", id)
		}
		return nil
	})
	if len(op.Moves) != 1 || op.Kind != core.OperationRebalance {
		t.Fatalf("%s with moves %+v", op.Kind, op.Moves)
	}
	if m := op.Moves[0]; m.From != "cell-1" || m.To != "cell-2" || m.Units.Int64() != 550 || m.SKU != "s" {
		t.Errorf("moves %+v, want 550 from cell-1 to cell-2", m)
	}
	testkit.Eventually(t, wait, func() error {
		if r.driven(id) < 3 {
			return fmt.Errorf("driven %d times", r.driven(id))
		}
		return nil
	})
	if open := r.view.Snapshot().OpenOperations(); len(open) != 1 {
		t.Errorf("%d open operations", len(open))
	}
}

func TestManualRebalanceIsNotProposed(t *testing.T) {
	r := autoSale(t, 2, autoTopUp)
	r.tell("cell-1", has(1_000, 100))
	r.tell("cell-2", soldOut)
	testkit.Eventually(t, wait, func() error {
		if n := len(r.rounds()); n < 3 {
			return fmt.Errorf("%d rounds of top-ups", n)
		}
		return nil
	})
	if open := r.view.Snapshot().OpenOperations(); len(open) != 0 {
		t.Errorf("operations %+v", open)
	}
	if _, _, _, err := r.planner.ProposeRebalance(r.view.Snapshot(), core.Campaign{}, ""); err != nil {
		t.Errorf("a leader refuses to plan: %v", err)
	}
}
