package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Drain writes the operation, and the cell as DRAINING, in one transaction: from then
// on no book gives it a unit, and its processes sell nothing new. Package drain
// carries it on.
//
// Errors: core.ErrUnknownCell, core.ErrVersion, core.ErrIDReused; core.ErrCellState
// where another operation has the cell, or while a campaign is being published to it;
// fencing.ErrTransition with its reason: fencing.ErrNotLive for a cell without a live
// process, which cannot give anything back, and what the cell's state says.
func (o *Orders) Drain(ctx context.Context, who intent.Caller, in LeaveOrder, validateOnly bool) (core.Operation, error) {
	if err := in.check(); err != nil {
		return core.Operation{}, err
	}
	may := in.May
	in.May = func(cell core.Cell) error {
		if may != nil {
			if err := may(cell); err != nil {
				return err
			}
		}
		return o.noPublish(cell)
	}
	return o.accept(ctx, who, order{
		kind: core.OperationDrain, cell: in.Cell, id: in.OperationID, parameters: core.Digest("drain", string(in.Cell)), expected: in.ExpectedVersion,
		reason: in.Reason, validateOnly: validateOnly, may: in.May, event: fencing.CellEvent{Kind: fencing.Drain},
		edit: func(op core.Operation, cell core.Cell) (core.Operation, core.Cell) { return op, cell },
	})
}

// noPublish refuses a cell that a publish is giving its first units: it waits for
// them to be applied.
func (o *Orders) noPublish(cell core.Cell) error {
	for _, c := range o.View.Snapshot().Campaigns() {
		if c.State == core.CampaignPublishing && slices.Contains(c.Spec.Cells, cell.Spec.ID) {
			return rpcstatus.With(fmt.Errorf("%w: campaign %s is being published to cell %s; drain it afterwards", core.ErrCellState, c.Spec.ID, cell.Spec.ID),
				map[string]string{"cell_id": string(cell.Spec.ID), "state": cell.State.String(), "campaign_id": string(c.Spec.ID)}, nil, 0)
		}
	}
	return nil
}

// AbortDrain lets a draining cell sell again, and ends its drain where that is still
// under way; the operation is that one, zero where it had ended. What the cell gave
// back stays in the reserve. A repeat finds the cell ACTIVE and changes nothing.
//
// Errors: as of Drain; fencing.ErrNotDraining.
func (o *Orders) AbortDrain(ctx context.Context, who intent.Caller, in LeaveOrder, validateOnly bool) (core.Operation, core.Cell, error) {
	if err := in.check(); err != nil {
		return core.Operation{}, core.Cell{}, err
	}
	var ended core.Operation
	var cell core.Cell
	revision, err := o.Store.Update(ctx, "abort drain "+string(in.Cell), func(tx *store.Tx) (err error) {
		ended, cell, err = o.tryAbortDrain(tx, who, in, validateOnly)
		return err
	})
	if err == nil && revision > 0 {
		_, _ = o.View.WaitFor(ctx, revision) // so that the caller's next read sees it
	}
	return ended, cell, err
}

func (o *Orders) tryAbortDrain(tx *store.Tx, who intent.Caller, in LeaveOrder, validateOnly bool) (core.Operation, core.Cell, error) {
	cell, known, err := tx.Cell(in.Cell)
	if err != nil || !known {
		return core.Operation{}, core.Cell{}, orUnknown(err, in.Cell)
	}
	if in.May != nil {
		if err := in.May(cell); err != nil {
			return core.Operation{}, core.Cell{}, err
		}
	}
	digest := core.Digest("abort drain", string(in.Cell))
	if repeat, err := cell.Repeats(in.OperationID, digest); repeat || err != nil {
		return core.Operation{}, cell, err
	}
	live := len(o.View.Snapshot().Instances(in.Cell)) > 0
	next, _, err := fencing.StepCell(cellOf(cell, live), fencing.CellEvent{Kind: fencing.AbortDrain, ExpectedRecord: in.ExpectedVersion})
	switch {
	case errors.Is(err, fencing.ErrStaleRecord):
		return core.Operation{}, cell, core.VersionConflict(in.ExpectedVersion, cell.Version)
	case err != nil:
		return core.Operation{}, cell, rpcstatus.With(refusalOf(err), map[string]string{"cell_id": string(in.Cell), "state": cell.State.String()}, nil, 0)
	case cell.State == core.CellState(next.State.Stored()):
		return core.Operation{}, cell, nil
	}
	op, begun, err := tx.Operation(cell.OperationID)
	if err != nil {
		return core.Operation{}, cell, err
	}
	if begun && !op.State.Terminal() && op.Kind != core.OperationDrain {
		return core.Operation{}, cell, free(tx, cell, core.OperationDrain)
	}
	cell.State, cell.OperationID = core.CellState(next.State.Stored()), ""
	cell.Version++
	cell = cell.Stamped(in.OperationID, digest)
	if validateOnly {
		return core.Operation{}, cell, nil
	}
	var ends error
	if begun && !op.State.Terminal() {
		op = op.End(core.OperationAborted, in.Reason, tx.Now())
		ends = tx.PutOperation(op)
	} else {
		op = core.Operation{}
	}
	return op, cell, errors.Join(ends, tx.PutCell(cell), tx.Audit(core.Audit{
		Actor: who.Name, Method: who.Method, OperationID: in.OperationID, Subject: "cell " + string(in.Cell), Reason: "abort drain: " + in.Reason,
	}))
}
