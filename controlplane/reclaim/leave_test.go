package reclaim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/drain"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

// rows reads the shards' rows for a drain.
type rows struct{ w *world }

func (r rows) Stocks(ctx context.Context, spec core.CellSpec) ([]core.StockFacts, error) {
	out := core.StockFacts{Key: key}
	var available, reserved int64
	err := r.w.shards[spec.ID].conn.QueryRow(ctx, "SELECT available, reserved FROM cellquota.stock WHERE sku_id = 's'").Scan(&available, &reserved)
	out.Available, out.Reserved = quantity.Must(available), quantity.Must(reserved)
	return []core.StockFacts{out}, err
}

func (w *world) drainer(s *store.Store) *drain.Driver {
	return drain.New(drain.Deps{Store: s, View: w.view, Shards: rows{w}, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Every: time.Nanosecond})
}

// answer has cell-1 apply what is open of it, and the journal hear of it.
func (w *world) answer() {
	w.t.Helper()
	for _, r := range w.seen().OpenRecords() {
		for _, a := range r.Adjustments {
			if a.Cell != "cell-1" || !a.Open() {
				continue
			}
			w.apply(core.Record{ID: r.ID, Adjustments: []core.Adjustment{a}})
			settled, err := w.store.Settle(testkit.Deadline(w.t), w.leader, r.ID, a.ID, core.OutcomeApplied)
			if err == nil {
				_, err = w.view.WaitFor(testkit.Deadline(w.t), settled.Revision)
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

func leave(id string) reclaim.LeaveOrder {
	return reclaim.LeaveOrder{Cell: "cell-1", OperationID: id, Reason: "its rack is moved"}
}

func (w *world) drain(id string) core.Operation {
	w.t.Helper()
	op, err := w.orders.Drain(testkit.Deadline(w.t), who, leave(id), false)
	if err != nil {
		w.t.Fatal(err)
	}
	return op
}

// stepsTo drives the drain, with the shard's answers, until it is at a step with words.
func (w *world) stepsTo(d planner.Operations, id, step, words string) core.Operation {
	w.t.Helper()
	var op core.Operation
	testkit.Eventually(w.t, wait, func() error {
		var err error
		if op, err = w.store.Operation(testkit.Deadline(w.t), id); err != nil {
			return err
		}
		if (op.Step == step || op.State.String() == step) && strings.Contains(op.Detail, words) {
			return nil
		}
		if err := d.Step(testkit.Deadline(w.t), w.leader, op); err != nil {
			return err
		}
		w.answer()
		return fmt.Errorf("operation %s is %s at %s: %s", id, op.State, op.Step, op.Detail)
	})
	return op
}

// handsOver gives the cell's buckets to the others, as a handover leaves the route.
func (w *world) handsOver() {
	w.t.Helper()
	homes, err := allocator.DealBuckets([]allocator.CellWeight{{Cell: "cell-2", Weight: 1}, {Cell: "cell-3", Weight: 1}}, allocator.Buckets)
	if err != nil {
		w.t.Fatal(err)
	}
	w.update(func(tx *store.Tx) error {
		route, _, err := tx.Route("c")
		route.Version, route.Domains = route.Version+1, []core.DomainRoute{{Homes: homes}}
		return errors.Join(err, tx.PutRoute(route))
	})
	w.seen()
}

// settles ends the campaign, as settle does.
func (w *world) settles() {
	w.t.Helper()
	w.update(func(tx *store.Tx) error {
		c, _, e1 := tx.Campaign("c")
		b, _, e2 := tx.Book(key)
		b, e3 := b.Settle()
		c.State = core.CampaignSettled
		c.Version++
		return errors.Join(e1, e2, e3, tx.PutCampaign(c), tx.PutBook(b.Stamp("settled")))
	})
	w.seen()
}

// seen waits until the view shows everything that was written.
func (w *world) seen() view.Snapshot {
	w.t.Helper()
	head, err := w.store.Head(testkit.Deadline(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := w.view.WaitFor(testkit.Deadline(w.t), head)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// The way out of service of a living cell: units back, orders settled, buckets handed
// over, the sale settled, and the id gone for good. Every step says what it waits for.
func TestDrainThenRetire(t *testing.T) {
	w := newWorld(t).publish()
	w.shards["cell-1"].sell(1, "u", 10, 3)
	w.drain("d1")
	if c := w.cell("cell-1"); c.State != core.CellDraining || c.OperationID != "d1" {
		t.Fatalf("%+v", c)
	}
	_, err := w.store.Move(testkit.Deadline(t), store.Move{RecordID: "g", Key: key, Actor: "me", Edit: func(b core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		next, _, err := b.Grant(cells["cell-1"], quantity.Must(1))
		return next, nil, err
	}})
	if !errors.Is(err, core.ErrCellState) {
		t.Errorf("a grant to a draining cell: %v", err)
	}
	d := w.drainer(w.store)
	op := w.stepsTo(d, "d1", drain.StepOrders, "7 units are in orders")
	if !strings.Contains(op.Detail, "buckets of campaign c") || !op.DoneStep(drain.StepReturns) {
		t.Errorf("%+v", op)
	}
	if got := w.granted("cell-1"); got != 10 {
		t.Fatalf("it is allocated %d, want the 10 that it has sold", got)
	}
	// Two pay although the cell drains; five are closed, and their units go back too.
	for i := 3; i < 5; i++ {
		w.shards["cell-1"].do("SELECT sale.pay(1, 's', $1)", fmt.Sprint("u", i))
	}
	for i := 5; i < 10; i++ {
		w.shards["cell-1"].do("SELECT sale.close(1, 's', $1)", fmt.Sprint("u", i))
	}
	w.stepsTo(d, "d1", drain.StepBuckets, "hand them over")
	if got := w.granted("cell-1"); got != 5 {
		t.Fatalf("it is allocated %d, want the 5 that are paid", got)
	}
	w.handsOver()
	w.stepsTo(d, "d1", "DONE", "")
	if c := w.cell("cell-1"); c.State != core.CellDraining || c.OperationID != "" {
		t.Fatalf("%+v", c)
	}

	if _, err := w.orders.Retire(testkit.Deadline(t), who, leave("r0"), false); !errors.Is(err, fencing.ErrNotEmpty) || !strings.Contains(err.Error(), "5 units of c/s") {
		t.Fatalf("with paid units of a sale that is not settled: %v", err)
	}
	w.settles()
	w.retire("r1")
	w.retired(t)
	w.i1()
}

func (w *world) retire(id string) {
	w.t.Helper()
	if _, err := w.orders.Retire(testkit.Deadline(w.t), who, leave(id), false); err != nil {
		w.t.Fatal(err)
	}
	w.done(id)
}

// retired is what a retirement of a drained cell comes to.
func (w *world) retired(t *testing.T) {
	t.Helper()
	c := w.cell("cell-1")
	if c.State != core.CellRetired || c.FenceVersion != 2 || c.OperationID != "" || c.ProofID != "cell-1/2" {
		t.Fatalf("%+v", c)
	}
	proof, err := w.store.Proof(testkit.Deadline(t), "cell-1", 2)
	if err != nil || proof.Evidence != core.EvidenceStoreFence {
		t.Fatalf("%+v, %v", proof, err)
	}
	var state string
	var version int64
	if err := w.shards["cell-1"].conn.QueryRow(t.Context(), "SELECT state, fence_version FROM cellquota.fence").Scan(&state, &version); err != nil || state != "FENCED" || version != 2 {
		t.Fatalf("fence row %s at %d, %v", state, version, err)
	}
	if _, err := w.shards["cell-1"].conn.Exec(t.Context(), "SELECT sale.sell(1, 's', 'late')"); err == nil {
		t.Error("a process of the retired cell sold")
	}
	for name, call := range map[string]func() error{
		"fence": func() error {
			_, err := w.orders.Fence(testkit.Deadline(t), who, reclaim.FenceOrder{Cell: "cell-1", OperationID: "f", Force: true, Reason: "x"}, false)
			return err
		},
		"restore": func() error {
			_, err := w.orders.Restore(testkit.Deadline(t), who, "cell-1", "r", "", "x", false)
			return err
		},
		"drain": func() error { _, err := w.orders.Drain(testkit.Deadline(t), who, leave("d2"), false); return err },
	} {
		if err := call(); !errors.Is(err, fencing.ErrRetired) {
			t.Errorf("%s of a retired cell: %v", name, err)
		}
	}
	// Its id is never used again, neither with its own spec nor with another.
	for _, file := range []string{w.shards["cell-1"].file, "/elsewhere"} {
		if _, err := w.people.ProvisionCell(testkit.Deadline(t), who, w.spec("cell-1", file), "p", false); !errors.Is(err, core.ErrCellExists) || !strings.Contains(err.Error(), "RETIRED") {
			t.Errorf("provision of a retired id: %v", err)
		}
	}
}

// A cell that has something is not retired, and who asks is told what.
func TestRetireIsRefused(t *testing.T) {
	w := newWorld(t).publish()
	refused := func(want error, words string) {
		t.Helper()
		_, err := w.orders.Retire(testkit.Deadline(t), who, leave("r"), false)
		if !errors.Is(err, want) || errors.Is(want, fencing.ErrNotEmpty) && !errors.Is(err, fencing.ErrTransition) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %v with %q", err, want, words)
		}
		if _, err := w.store.Operation(testkit.Deadline(t), "r"); !errors.Is(err, core.ErrUnknownOperation) {
			t.Errorf("an operation was written: %v", err)
		}
	}
	refused(fencing.ErrDrainFirst, "drain or fence")
	w.drain("d1")
	w.shards["cell-1"].sell(1, "u", 2, 0)
	refused(fencing.ErrNotEmpty, "30 units of c/s, buckets of campaign c, in its shard 28 units available, 2 units reserved, 2 unpaid orders")
	w.shards["cell-1"].reachable(false)
	refused(rpcstatus.ErrUnavailable, "")
	w.shards["cell-1"].reachable(true)
	w.handsOver()
	w.answer()
	w.shards["cell-1"].do("SELECT sale.close(1, 's', 'u0')")
	w.shards["cell-1"].do("SELECT sale.close(1, 's', 'u1')")
	w.stepsTo(w.drainer(w.store), "d1", "DONE", "")
	w.shards["cell-1"].do("INSERT INTO cellquota.payments (payment_id, order_id, amount, currency, state, created_at, updated_at) VALUES ('p', 'o-u0-s', 10, 'CNY', 'PAID_AFTER_CLOSE', now(), now())")
	refused(fencing.ErrNotEmpty, "in its shard 1 refunds under way")

	// What comes between the order and the leader's look ends it, and the cell is as it was.
	w.shards["cell-1"].do("DELETE FROM cellquota.payments")
	if _, err := w.orders.Retire(testkit.Deadline(t), who, leave("r1"), false); err != nil {
		t.Fatal(err)
	}
	refused(core.ErrCellState, "r1") // that one has the cell
	w.shards["cell-1"].do("INSERT INTO cellquota.payments (payment_id, order_id, amount, currency, state, created_at, updated_at) VALUES ('p', 'o-u0-s', 10, 'CNY', 'REFUND_PENDING', now(), now())")
	if op := w.finish(w.driver(), "r1"); op.State != core.OperationFailed || !strings.Contains(op.Detail, "1 refunds under way") {
		t.Errorf("%+v", op)
	}
	if c := w.cell("cell-1"); c.State != core.CellDraining || c.OperationID != "" || c.FenceVersion != 1 {
		t.Errorf("%+v", c)
	}
}

// A cell that buckets are on their way to has users, although the map does not name it
// yet: it is neither drained nor retired before they have arrived and left.
func TestACellThatTakesBucketsStays(t *testing.T) {
	w := newWorld(t).publish()
	w.drain("d1")
	w.handsOver()
	var before core.Route
	put := func(edit func(core.Route) (core.Route, error)) {
		t.Helper()
		w.update(func(tx *store.Tx) error {
			route, _, err := tx.Route("c")
			if err == nil {
				route, err = edit(route)
			}
			return errors.Join(err, tx.PutRoute(route))
		})
		w.seen()
	}
	order := func(route core.Route) (core.Route, error) {
		before = route
		next, _, err := route.Order("", "cell-2", "cell-1", 0, 99, time.Now())
		return next, err
	}
	put(order)
	w.stepsTo(w.drainer(w.store), "d1", drain.StepBuckets, "being handed over to it")
	put(func(core.Route) (core.Route, error) { return before, nil })
	w.stepsTo(w.drainer(w.store), "d1", "DONE", "")
	put(order)
	if _, err := w.orders.Retire(testkit.Deadline(t), who, leave("r"), false); !errors.Is(err, fencing.ErrNotEmpty) || !strings.Contains(err.Error(), "buckets of campaign c") {
		t.Errorf("retired: %v", err)
	}
}

// Drain is refused where it cannot be carried out, and aborted as long as nobody else
// has the cell.
func TestDrainIsRefusedAndAborted(t *testing.T) {
	w := newWorld(t).publish()
	w.dies("cell-2")
	in := leave("d2")
	in.Cell = "cell-2"
	if _, err := w.orders.Drain(testkit.Deadline(t), who, in, false); !errors.Is(err, fencing.ErrNotLive) {
		t.Errorf("a dead cell: %v", err)
	}
	in = leave("d0")
	in.ExpectedVersion = 99
	if _, err := w.orders.Drain(testkit.Deadline(t), who, in, false); !errors.Is(err, core.ErrVersion) {
		t.Errorf("another version: %v", err)
	}
	in = leave("d0")
	in.May = func(core.Cell) error { return rpcstatus.ErrPermissionDenied }
	if _, err := w.orders.Drain(testkit.Deadline(t), who, in, false); !errors.Is(err, rpcstatus.ErrPermissionDenied) {
		t.Errorf("another region: %v", err)
	}
	if _, err := w.orders.Drain(testkit.Deadline(t), who, leave("d0"), true); err != nil || w.cell("cell-1").State != core.CellActive {
		t.Errorf("validate only: %v, %+v", err, w.cell("cell-1"))
	}
	w.update(func(tx *store.Tx) error {
		c, _, err := tx.Campaign("c")
		c.State = core.CampaignPublishing
		return errors.Join(err, tx.PutCampaign(c))
	})
	testkit.Eventually(t, wait, func() error {
		if _, err := w.orders.Drain(testkit.Deadline(t), who, leave("d0"), true); !errors.Is(err, core.ErrCellState) || !strings.Contains(err.Error(), "being published") {
			return fmt.Errorf("in the middle of a publish: %w", err)
		}
		return nil
	})
	w.update(func(tx *store.Tx) error {
		c, _, err := tx.Campaign("c")
		c.State = core.CampaignPublished
		return errors.Join(err, tx.PutCampaign(c))
	})
	testkit.Eventually(t, wait, func() error {
		_, err := w.orders.Drain(testkit.Deadline(t), who, leave("d1"), false)
		return err
	})
	if again := w.drain("d1"); again.ID != "d1" || again.State.Terminal() {
		t.Errorf("a repeat: %+v", again)
	}

	op, cell, err := w.orders.AbortDrain(testkit.Deadline(t), who, leave("a1"), false)
	if err != nil || op.ID != "d1" || op.State != core.OperationAborted || cell.State != core.CellActive || w.cell("cell-1").State != core.CellActive {
		t.Fatalf("%+v, %+v, %v", op, cell, err)
	}
	for _, id := range []string{"a1", "a2"} { // a repeat, and an abort of what does not drain
		if op, cell, err := w.orders.AbortDrain(testkit.Deadline(t), who, leave(id), false); err != nil || op.ID != "" || cell.State != core.CellActive {
			t.Errorf("%s: %+v, %+v, %v", id, op, cell, err)
		}
	}
	if err := w.drainer(w.store).Step(testkit.Deadline(t), w.leader, op); err != nil || w.granted("cell-1") != 30 {
		t.Errorf("an aborted drain went on: %v, %d", err, w.granted("cell-1"))
	}
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Force: true})
	if _, _, err := w.orders.AbortDrain(testkit.Deadline(t), who, leave("a3"), false); !errors.Is(err, fencing.ErrFenced) {
		t.Errorf("abort of a fenced cell: %v", err)
	}
}

// A cell that dies while it drains is fenced: the fence takes it, and the drain ends.
func TestAFenceTakesADrainingCell(t *testing.T) {
	w := newWorld(t).publish()
	w.drain("d1")
	d := w.drainer(w.store)
	op, err := w.store.Operation(testkit.Deadline(t), "d1")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Step(testkit.Deadline(t), w.leader, op); err != nil { // its return is proposed, and never applied
		t.Fatal(err)
	}
	w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Force: true, Reclaim: true})
	w.stepsToEnd(d, "d1", core.OperationFailed, `operation "f1" has it`)
	w.done("f1")
	if got := w.granted("cell-1"); got != 0 {
		t.Errorf("it is allocated %d after its reclaim", got)
	}
	w.handsOver()
	w.retire("r1")
	if c := w.cell("cell-1"); c.State != core.CellRetired || c.FenceVersion != 2 {
		t.Errorf("%+v", c)
	}
	w.i1()
}

func (w *world) stepsToEnd(d planner.Operations, id string, state core.OperationState, words string) {
	w.t.Helper()
	testkit.Eventually(w.t, wait, func() error {
		op, err := w.store.Operation(testkit.Deadline(w.t), id)
		if err == nil && op.State.Terminal() {
			if op.State != state || !strings.Contains(op.Detail, words) {
				w.t.Fatalf("%+v", op)
			}
			return nil
		}
		return errors.Join(err, d.Step(testkit.Deadline(w.t), w.leader, op), fmt.Errorf("%s at %s", op.State, op.Step))
	})
}

// Whoever drives a drain or a retirement may die at each of its effects, before it or
// with the answer lost: the next leader comes to the same end, and no unit is asked for
// twice.
func TestADriverMayDieWhileACellLeaves(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			ok := t.Run(fmt.Sprintf("effect %d, answer lost %v", n, after), func(t *testing.T) {
				w := newWorldIn(t, etcd, false).publish()
				w.handsOver()
				w.drain("d1")
				died = w.drainDies("d1", n, after)
				w.lead()
				w.stepsTo(w.drainer(w.store), "d1", "DONE", "")
				if got := w.shards["cell-1"].levels(); got != (levels{}) || w.granted("cell-1") != 0 {
					t.Fatalf("shard %+v, book %d", got, w.granted("cell-1"))
				}
				if _, err := w.orders.Retire(testkit.Deadline(t), who, leave("r1"), false); err != nil {
					t.Fatal(err)
				}
				diedToo := w.live("r1", n, after)
				w.lead()
				w.done("r1")
				w.retired(t)
				w.i1()
				died = died || diedToo
			})
			if !ok {
				return
			}
			if !died {
				if n < 4 {
					t.Fatalf("only %d effects were found: the test looks at nothing", n-1)
				}
				break
			}
		}
	}
}

// drainDies drives a drain, with the shard's answers, by a driver that dies at its n-th
// effect. It tells whether it died before the drain ended.
func (w *world) drainDies(id string, n int, after bool) bool {
	w.t.Helper()
	ctx, cancel := context.WithCancel(testkit.Deadline(w.t))
	defer cancel()
	l := fault.Live(n, after, cancel)
	d := w.drainer(w.openStore(l.KV))
	for range 100 {
		op, err := w.store.Operation(testkit.Deadline(w.t), id)
		if err != nil {
			w.t.Fatal(err)
		}
		if op.State.Terminal() || l.Dead() {
			return l.Dead()
		}
		if err := d.Step(ctx, w.leader, op); err != nil && !l.Dead() {
			w.t.Fatalf("effect %d: %v", n, err)
		}
		w.answer()
	}
	w.t.Fatalf("effect %d: the drain neither ended nor died", n)
	return false
}
