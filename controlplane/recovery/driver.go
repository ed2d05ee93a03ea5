package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// actor names recovery in records.
const actor = "recovery"

// Steps of a recover-store, in their order.
const (
	StepTerms     = "terms"
	StepCells     = "cells"
	StepCampaigns = "campaigns"
	StepBooks     = "books"
	StepOrders    = "operations"
	StepTokens    = "tokens"
	StepConfirm   = "confirm"
)

const (
	atOnce    = 16
	shardTime = 10 * time.Second
	// retryEvery is the pause after a pass that had to wait.
	retryEvery = time.Second
)

// Driver carries recover-store on for the leader.
type Driver struct {
	Store *store.Store
	View  *view.View
	Open  Open
	Clock clock.Clock
	Log   *slog.Logger

	mu    sync.Mutex
	again time.Time // not before; only spares work
}

var _ planner.Operations = (*Driver)(nil)

// errWaits: the step has to wait; the text says for what.
var errWaits = errors.New("recovery waits")

// Step implements planner.Operations.
func (d *Driver) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	d.mu.Lock()
	early := d.Clock.Now().Before(d.again)
	d.mu.Unlock()
	if early {
		return nil
	}
	step, err := d.run(ctx, leader, op)
	if err == nil {
		return nil
	}
	d.mu.Lock()
	d.again = d.Clock.Now().Add(retryEvery)
	d.mu.Unlock()
	if !errors.Is(err, errWaits) || ctx.Err() != nil {
		return err
	}
	text := strings.TrimPrefix(err.Error(), errWaits.Error()+": ")
	if op.Step == step && op.Detail == text {
		return nil
	}
	return d.operation(ctx, leader, op.ID, func(op core.Operation, _ time.Time) core.Operation { return op.Waits(step, text) })
}

func waits(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errWaits, fmt.Sprintf(format, args...))
}

// run takes every step from the beginning: what a step finds done it leaves.
func (d *Driver) run(ctx context.Context, leader core.Leader, op core.Operation) (step string, err error) {
	s, err := d.head(ctx)
	if err != nil {
		return op.Step, err
	}
	// 1. terms: from here on only this leader's adjustments could move granted.
	shards, err := d.readAll(ctx, leader, s)
	if err != nil {
		return StepTerms, err
	}
	// 2. cells
	if err := d.cells(ctx, leader, op, s, shards); err != nil {
		return StepCells, err
	}
	// 3. campaigns
	if s, err = d.head(ctx); err != nil {
		return StepCampaigns, err
	}
	if err := d.campaigns(ctx, leader, op, s, shards); err != nil {
		return StepCampaigns, err
	}
	if err := d.routes(ctx, leader, op, s, shards); err != nil {
		return StepCampaigns, err
	}
	// 4. books
	if s, err = d.head(ctx); err != nil {
		return StepBooks, err
	}
	in := storedBy(s, shards)
	plans := planBooks(in, shards, op.Limits)
	if blocked := blockedBy(plans); len(blocked) > 0 {
		text := strings.Join(blocked, "; ") + ": no book was changed; begin again with other limits"
		return StepBooks, d.operation(ctx, leader, op.ID, func(op core.Operation, now time.Time) core.Operation { return op.End(core.OperationFailed, text, now) })
	}
	if err := d.journals(ctx, leader, op, s, plans, shards); err != nil {
		return StepBooks, err
	}
	if err := d.stocks(ctx, leader, op, planStocks(in, plans)); err != nil {
		return StepBooks, err
	}
	for _, p := range plans {
		if p.Stored.LastRecordID == RecordID(op.ID, p.Key) {
			continue // done by an earlier pass of this operation
		}
		if err := d.book(ctx, leader, op, p); err != nil {
			return StepBooks, err
		}
	}
	// 5. operations: what was under way is not carried on as if nothing had been lost.
	if err := d.operations(ctx, leader, op, s); err != nil {
		return StepOrders, err
	}
	// 6. tokens: which of them were revoked is lost.
	if err := d.tokens(ctx, leader, op, s); err != nil {
		return StepTokens, err
	}
	// 7. confirm
	_, err = d.Store.Update(ctx, "confirm "+op.ID, func(tx *store.Tx) error {
		present, err := d.mine(tx, leader, op.ID)
		if err != nil {
			return err
		}
		present = present.Finished(StepConfirm, fmt.Sprintf("%d books taken from %d shards", len(plans), len(shards)), "", tx.Now())
		return errors.Join(tx.DropRestored(), tx.PutRecovered(leader.Term), tx.PutOperation(present.End(core.OperationDone, "", tx.Now())),
			tx.Audit(core.Audit{Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "etcd", Reason: op.Reason}))
	})
	if err == nil {
		d.Log.InfoContext(ctx, "the books were taken from the shards", telemetry.Event, "store_recovered", "operation_id", op.ID, "books", len(plans), "cells", len(shards))
	}
	return StepConfirm, err
}

// head is the view as etcd is now.
func (d *Driver) head(ctx context.Context) (view.Snapshot, error) {
	head, err := d.Store.Head(ctx)
	if err != nil {
		return view.Snapshot{}, err
	}
	return d.View.WaitFor(ctx, head)
}

func settled(s view.Snapshot) func(ids.CampaignID) bool {
	return func(id ids.CampaignID) bool {
		c, known := s.Campaign(id)
		_, deleted := s.Tombstone(id)
		return deleted || known && c.State == core.CampaignSettled
	}
}

func blockedBy(plans []BookPlan) []string {
	const most = 5
	var out []string
	for _, p := range plans {
		if p.BlockedBy != "" && len(out) < most {
			out = append(out, p.Key.String()+": "+p.BlockedBy)
		}
	}
	return out
}

// counted are the cells whose shards must be read: all but those that hold nothing
// that counts any more. One that is only PROVISIONED may have been installed, and
// granted units, in the past that was lost.
func counted(s view.Snapshot) []core.Cell {
	return slices.DeleteFunc(s.Cells(), func(c core.Cell) bool {
		proof, _ := s.Proof(c.Spec.ID, c.FenceVersion)
		return c.State == core.CellRetired || c.State == core.CellFenced && proof.Evidence == core.EvidenceAttestedLoss
	})
}

// readAll raises every shard's term and reads it. A shard that knows a higher term
// makes /term grow above it: this leader steps down, and the next one goes on.
func (d *Driver) readAll(ctx context.Context, leader core.Leader, s view.Snapshot) ([]facts, error) {
	cells := counted(s)
	found, errs := d.gather(ctx, cells, &leader.Term)
	var silent []string
	var highest int64
	for i, err := range errs {
		switch {
		case errors.Is(err, fencer.ErrTermRefused):
			highest = max(highest, found[i].row.Term.Count)
		case err != nil:
			silent = append(silent, fmt.Sprintf("%s (%v)", cells[i].Spec.ID, err))
		}
	}
	if highest > 0 {
		_, err := d.Store.Update(ctx, "raise the term record", func(tx *store.Tx) error {
			return errors.Join(tx.Lead(leader), tx.RaiseTermRecord(highest+1))
		})
		return nil, errors.Join(err, waits("a shard knows term %d: a leader above it goes on", highest))
	}
	if len(silent) > 0 {
		return nil, waits("shards that do not answer: %s; start them; one that is gone for good has to come back from its own backup, for nothing is written off while a recovery stands", strings.Join(silent[:min(5, len(silent))], ", "))
	}
	found = slices.DeleteFunc(found, empty)
	if names := unknownCells(s, found); len(names) > 0 {
		return nil, waits("cells that etcd does not know and that may hold units: %s; provision them again, each with its own file", strings.Join(names[:min(5, len(names))], ", "))
	}
	return found, nil
}

// gather reads the shards of cells, several at once; errors stand beside them.
func (d *Driver) gather(ctx context.Context, cells []core.Cell, term *core.Term) ([]facts, []error) {
	found, errs := make([]facts, len(cells)), make([]error, len(cells))
	var readings errgroup.Group
	readings.SetLimit(atOnce)
	for i, cell := range cells {
		readings.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, shardTime)
			defer cancel()
			shard, err := d.Open(ctx, cell.Spec)
			if err != nil {
				errs[i] = err
				return nil
			}
			defer func() { _ = shard.Close(context.WithoutCancel(ctx)) }()
			found[i], errs[i] = read(ctx, shard, cell.Spec.ID, term)
			if cell.State == core.CellProvisioned && errors.Is(errs[i], fencer.ErrOtherCell) && empty(found[i]) {
				errs[i] = nil // never installed: it holds nothing
			}
			return nil
		})
	}
	_ = readings.Wait() // each error stands in its place
	return found, errs
}

// mine reads the operation under this leader's lead, while etcd is RESTORED.
func (d *Driver) mine(tx *store.Tx, leader core.Leader, id string) (core.Operation, error) {
	if err := tx.Lead(leader); err != nil {
		return core.Operation{}, err
	}
	if err := tx.Recover(); err != nil {
		return core.Operation{}, err
	}
	op, known, err := tx.Operation(id)
	if err == nil && (!known || op.State.Terminal()) {
		err = op.Refuses("it has ended meanwhile")
	}
	return op, err
}

func (d *Driver) operation(ctx context.Context, leader core.Leader, id string, change func(core.Operation, time.Time) core.Operation) error {
	_, err := d.Store.Update(ctx, "step "+id, func(tx *store.Tx) error {
		op, err := d.mine(tx, leader, id)
		if err != nil {
			return err
		}
		return tx.PutOperation(change(op, tx.Now()))
	})
	return err
}
