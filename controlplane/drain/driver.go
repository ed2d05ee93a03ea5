package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/operation"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Shards reads what a cell's shard says, as cellquota_reader, whether or not the
// cell's processes are alive.
type Shards interface {
	// Stocks gives every stock row. An error means that the shard could not be read.
	Stocks(ctx context.Context, spec core.CellSpec) ([]core.StockFacts, error)
}

// Deps are what a driver is given; all are required but Every.
type Deps struct {
	Store  *store.Store
	View   *view.View
	Shards Shards
	Clock  clock.Clock
	Log    *slog.Logger
	// Every is how often the shard of one drain is read; 0: 500 ms.
	Every time.Duration
}

// Driver drives operations of kind drain-cell for the leader. Make it with New.
type Driver struct {
	Deps
	pace *operation.Pace
}

var _ planner.Operations = (*Driver)(nil)

// New makes a driver.
func New(d Deps) *Driver {
	if d.Every <= 0 {
		d.Every = 500 * time.Millisecond
	}
	return &Driver{Deps: d, pace: operation.NewPace(d.Clock, d.Every)}
}

// Step implements planner.Operations.
func (d *Driver) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	if !d.pace.Take(op.ID) {
		return nil
	}
	s := d.View.Snapshot()
	op, found := s.Operation(op.ID)
	cell, known := s.Cell(ids.CellID(op.Subject))
	switch {
	case !found || op.State.Terminal():
		return nil
	case !known || cell.OperationID != op.ID || cell.State != core.CellDraining:
		return d.change(ctx, leader, op.ID, "", d.lost)
	}
	facts := d.look(ctx, s, cell)
	todo := step(facts)
	if todo.Done {
		return d.change(ctx, leader, op.ID, cell.Spec.ID, func(tx *store.Tx, op core.Operation, cell core.Cell) (core.Operation, core.Cell, error) {
			cell.OperationID = ""
			op = op.Finished(op.Step, d.progress(s, op), "", tx.Now())
			return op.End(core.OperationDone, "", tx.Now()), cell, nil
		})
	}
	for _, ask := range todo.Asks {
		if err := d.ask(ctx, leader, op, cell.Spec.ID, ask); err != nil && !movedOn(err) {
			return err
		}
	}
	if op.Step == todo.Step && op.Detail == todo.Detail {
		return nil
	}
	return d.change(ctx, leader, op.ID, "", func(tx *store.Tx, op core.Operation, cell core.Cell) (core.Operation, core.Cell, error) {
		if later(op.Step, todo.Step) {
			op = op.Finished(op.Step, d.progress(s, op), todo.Step, tx.Now())
		}
		return op.Waits(todo.Step, todo.Detail), cell, nil
	})
}

// later tells whether a drain got on from one of its steps to another.
func later(from, to string) bool {
	order := map[string]int{StepReturns: 1, StepOrders: 2, StepBuckets: 3}
	return order[from] > 0 && order[from] < order[to]
}

// movedOn: the book is not what the ask was decided on any more; the next look
// decides again.
func movedOn(err error) bool {
	for _, sentinel := range []error{core.ErrVersion, core.ErrFinal, core.ErrSettled, core.ErrAllocationShort, core.ErrOperationState, core.ErrCellState} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// lost ends a drain whose cell another operation took: a fence.
func (d *Driver) lost(tx *store.Tx, op core.Operation, cell core.Cell) (core.Operation, core.Cell, error) {
	return op.End(core.OperationFailed, fmt.Sprintf("cell %s is %s and operation %q has it", op.Subject, cell.State, cell.OperationID), tx.Now()), cell, nil
}

// change stores what edit makes of an open operation, under this leader. owns names
// the cell whose record is written too, which must still be the drain's.
func (d *Driver) change(ctx context.Context, leader core.Leader, id string, owns ids.CellID, edit func(*store.Tx, core.Operation, core.Cell) (core.Operation, core.Cell, error)) error {
	var next core.Operation
	_, err := d.Store.Update(ctx, "drain "+id, func(tx *store.Tx) error {
		op, cell, err := mine(tx, leader, id)
		if err != nil {
			return err
		}
		if owns != "" && cell.OperationID != id {
			return op.Refuses("another operation has its cell")
		}
		if next, cell, err = edit(tx, op, cell); err != nil {
			return err
		}
		errs := []error{tx.PutOperation(next)}
		if owns != "" {
			cell.Version++
			errs = append(errs, tx.PutCell(cell))
		}
		return errors.Join(errs...)
	})
	if errors.Is(err, core.ErrOperationState) {
		return nil // it ended, or lost its cell, since the view was taken
	}
	if err == nil && next.State.Terminal() {
		d.Log.InfoContext(ctx, "drain ended", telemetry.Event, "drain_ended", "operation_id", id, telemetry.CellID, next.Subject, telemetry.NewState, next.State.String(), "detail", next.Detail)
	}
	return err
}

// mine reads the operation under this leader's lead, and its cell.
func mine(tx *store.Tx, leader core.Leader, id string) (core.Operation, core.Cell, error) {
	if err := tx.Lead(leader); err != nil {
		return core.Operation{}, core.Cell{}, err
	}
	op, found, err := tx.Operation(id)
	if err == nil && (!found || op.State.Terminal()) {
		err = op.Refuses("it has ended")
	}
	if err != nil {
		return core.Operation{}, core.Cell{}, err
	}
	cell, _, err := tx.Cell(ids.CellID(op.Subject))
	return op, cell, err
}

// ask proposes the return of one SKU.
func (d *Driver) ask(ctx context.Context, leader core.Leader, op core.Operation, cell ids.CellID, ask Ask) error {
	id := returnID(op, ask.Book)
	_, err := d.Store.Move(ctx, store.Move{
		RecordID: id, Parameters: core.Digest("drain", op.ID), Key: ask.Book.Key, ExpectedVersion: ask.Book.Version,
		Actor: op.Actor, Method: op.Kind, Reason: op.Reason, OperationID: op.ID, Leader: &leader,
		Also: func(tx *store.Tx) error {
			open, present, err := mine(tx, leader, op.ID)
			if err == nil && (present.OperationID != op.ID || present.State != core.CellDraining) {
				err = open.Refuses("another operation has its cell")
			}
			return err
		},
		Edit: func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			next, at, err := book.ProposeReturn(cells[cell], ask.Units)
			return next, []core.Adjustment{{
				ID: id, Key: book.Key, Cell: cell, Kind: core.KindReturn, Units: ask.Units, State: core.StateProposed, Step: at,
				Actor: op.Actor, Reason: op.Reason, CreatedAt: d.Clock.Now().UTC(),
			}}, err
		},
	})
	return err
}

// returnID names the return that a drain decided on one version of a book. An
// operation is forgotten before its journal is, so its birth is part of it.
func returnID(op core.Operation, b core.Book) string {
	return "drain." + core.Digest(op.ID, strconv.FormatInt(op.StartedAt.UnixNano(), 10), b.Key.String(), strconv.FormatInt(b.Version, 10))
}

// progress says what the drain has given back so far.
func (d *Driver) progress(s view.Snapshot, op core.Operation) string {
	var units quantity.Quantity
	skus := map[core.BookKey]bool{}
	for _, c := range s.Campaigns() {
		for _, r := range s.Records(c.Spec.ID, 0, everything) {
			if r.OperationID != op.ID {
				continue
			}
			for _, a := range r.Adjustments {
				if sum, err := units.Add(a.Units); err == nil && a.Outcome == core.OutcomeApplied {
					units, skus[r.Key] = sum, true
				}
			}
		}
	}
	return fmt.Sprintf("%s units of %d SKUs given back", units, len(skus))
}

// everything is the bound of a listing that must be whole.
const everything = 1 << 30
