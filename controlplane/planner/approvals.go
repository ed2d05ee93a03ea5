package planner

import (
	"context"
	"errors"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
)

// cleared tells whether an operation may be handed to its driver: the second
// person's word is asked here, once for every kind. One that was rejected, or
// that nobody decided in time, is ended ABORTED. A decision is never taken back,
// so that the view, however late, shows none that does not hold.
func (p *Planner) cleared(ctx context.Context, leader core.Leader, s view.Snapshot, op core.Operation) bool {
	approval, found := s.Approval(op.ID)
	clearance, why := op.MayStep(approval, found)
	switch {
	case clearance == core.MayGo:
		return true
	case clearance == core.MustEnd:
		p.note(ctx, p.endOperation(ctx, leader, op.ID, core.OperationAborted, why), "operation was not ended", "operation_id", op.ID, "kind", op.Kind)
	case found && approval.Over(p.clock.Now()):
		p.note(ctx, p.expire(ctx, leader, op.ID), "approval was not expired", "operation_id", op.ID, "kind", op.Kind)
	}
	return false
}

// expire ends an approval that nobody decided in time, and its operation.
func (p *Planner) expire(ctx context.Context, leader core.Leader, id string) error {
	_, err := p.store.Update(ctx, "expire approval "+id, func(tx *store.Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		approval, found, err := tx.Approval(id)
		if err != nil || !found {
			return err
		}
		op, known, err := tx.Operation(id)
		if err != nil || !known || op.State.Terminal() {
			return err
		}
		expired := approval.Expire(tx.Now())
		if expired.State != core.ApprovalExpired {
			return nil // decided meanwhile
		}
		_, why := op.MayStep(expired, true)
		return errors.Join(tx.PutApproval(expired), tx.PutOperation(op.End(core.OperationAborted, why, tx.Now())),
			tx.Audit(core.Audit{Actor: actor, Method: actor, OperationID: id, Subject: "approval " + id, Reason: why}))
	})
	return err
}
