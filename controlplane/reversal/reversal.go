// Package reversal carries an approved reverse-entry out: it asks the cell of the finding to add the
// opposite of the entry that the finding names, with who asked, why, the incident and who approved.
//
// One step: the cell's verb is idempotent by the finding's id, so that a step whose answer was lost is
// asked again and answers the same. What the cell refuses ends the operation FAILED, by its words; a cell
// that does not answer is asked again at the next tick.
//
// Neighbours: intent begins the operation with its approval, planner hands it over once a second person
// has approved; api has the way to the cells.
package reversal

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Cells repair findings; api.Reconcile is one.
type Cells interface {
	RepairIn(ctx context.Context, in *pb.CellReconcileServiceRepairRequest) (*pb.CellReconcileServiceRepairResponse, error)
}

// Driver is a planner's driver of operations of kind reverse-entry.
type Driver struct {
	Store *store.Store
	View  *view.View
	Cells Cells
}

// Step asks the finding's cell and stores what came of it.
func (d Driver) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	about, ok := op.Reversal()
	approval, found := d.View.Snapshot().Approval(op.ID)
	if !ok || !found || approval.State != core.ApprovalApproved {
		return d.store(ctx, leader, op, func(present core.Operation, _ *store.Tx) core.Operation {
			return present.Waits(core.StepReverse, "its approval cannot be read")
		})
	}
	out, err := d.Cells.RepairIn(ctx, &pb.CellReconcileServiceRepairRequest{
		FindingId: about.Finding, Action: pb.RepairAction_REPAIR_ACTION_REVERSE, Actor: op.Actor, Reason: op.Reason, Incident: about.Incident,
		ApprovalId: approval.ID, Approver: approval.Approver,
	})
	again := errors.Is(err, rpcstatus.ErrUnavailable) || errors.Is(err, rpcstatus.ErrDeadline) || rpcstatus.MayHaveHappened(err)
	return errors.Join(err, d.store(ctx, leader, op, func(present core.Operation, tx *store.Tx) core.Operation {
		switch {
		case again:
			return present.Waits(core.StepReverse, fmt.Sprintf("the cell of %s: %v", about.Finding, err))
		case err != nil:
			return present.End(core.OperationFailed, err.Error(), tx.Now())
		}
		detail := out.GetOutcome() + ": " + out.GetDetail()
		return present.Finished(core.StepReverse, detail, "", tx.Now()).End(core.OperationDone, detail, tx.Now())
	}))
}

// store writes the operation as change makes it, where it still stands as this step found it.
func (d Driver) store(ctx context.Context, leader core.Leader, op core.Operation, change func(core.Operation, *store.Tx) core.Operation) error {
	_, err := d.Store.Update(ctx, "reverse "+op.Subject, func(tx *store.Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		present, known, err := tx.Operation(op.ID)
		if err != nil || !known || present.State.Terminal() {
			return err
		}
		next := change(present, tx)
		if next.Detail == present.Detail && next.State == present.State {
			return nil
		}
		return tx.PutOperation(next)
	})
	return err
}
