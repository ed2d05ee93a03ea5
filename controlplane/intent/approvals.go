package intent

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Ask is ask for operations that other rooms begin.
func (s *Service) Ask(tx *store.Tx, who Caller, op core.Operation) (core.Operation, error) {
	return s.ask(tx, who, op)
}

// ask puts the approval of an operation that is about to be put, and gives the
// operation as it has to be put: it waits for a second person's word. The planner
// hands it to no driver before.
func (s *Service) ask(tx *store.Tx, who Caller, op core.Operation) (core.Operation, error) {
	if _, _, err := tx.Approval(op.ID); err != nil {
		return op, err
	}
	op, approval := op.AskApproval(s.ApprovalTTL, tx.Now())
	approval.RequesterIssuers = who.Issuers
	return op, tx.PutApproval(approval)
}

// Approve lets an operation go on. core.ErrSelfApproval for whoever asked for it,
// or stands behind who did; core.ErrApprovalState when it was decided otherwise
// or expired; core.ErrUnknownApproval.
func (s *Service) Approve(ctx context.Context, who Caller, id, reason string) (core.Approval, error) {
	return s.decide(ctx, who, id, "approved: "+reason, func(tx *store.Tx, a core.Approval) (core.Approval, error) {
		next, err := a.Approve(who.Name, reason, tx.Now())
		if err != nil || next.State == a.State {
			return next, err
		}
		return next, s.secondPerson(who, a)
	})
}

// Reject refuses an operation and ends it ABORTED in the same transaction; the
// requester may. core.ErrApprovalState, core.ErrUnknownApproval.
func (s *Service) Reject(ctx context.Context, who Caller, id, reason string) (core.Approval, error) {
	return s.decide(ctx, who, id, "rejected: "+reason, func(tx *store.Tx, a core.Approval) (core.Approval, error) {
		return a.Reject(who.Name, reason, tx.Now())
	})
}

func (s *Service) decide(ctx context.Context, who Caller, id, audit string, decision func(*store.Tx, core.Approval) (core.Approval, error)) (core.Approval, error) {
	var out core.Approval
	revision, err := s.Store.Update(ctx, "decide "+id, func(tx *store.Tx) error {
		approval, found, err := tx.Approval(id)
		switch {
		case err != nil:
			return err
		case !found:
			return rpcstatus.With(fmt.Errorf("%w: %s", core.ErrUnknownApproval, id), map[string]string{"approval_id": id}, nil, 0)
		}
		if out, err = decision(tx, approval); err != nil || out.State == approval.State { // every decision changes the state
			return err
		}
		op, known, err := tx.Operation(id)
		if err != nil {
			return err
		}
		if clearance, why := op.MayStep(out, true); known && clearance == core.MustEnd && !op.State.Terminal() {
			err = tx.PutOperation(op.End(core.OperationAborted, why, tx.Now()))
		}
		return errors.Join(err, tx.PutApproval(out), tx.Audit(who.audit(id, "approval "+id, audit)))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}
