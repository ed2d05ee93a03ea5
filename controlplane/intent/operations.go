package intent

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// AbortOperation ends an operation that has done nothing yet; core.Operation.MayAbort
// has the rules. One that waits for a second person is ended by its requester or
// by whoever may decide against anybody (who.Any), and its approval with it.
// core.ErrOperationState says why not.
func (s *Service) AbortOperation(ctx context.Context, who Caller, id, reason string) (core.Operation, error) {
	var out core.Operation
	revision, err := s.Store.Update(ctx, "abort "+id, func(tx *store.Tx) error {
		op, known, err := tx.Operation(id)
		switch {
		case err != nil:
			return err
		case !known:
			return rpcstatus.With(fmt.Errorf("%w: %s", core.ErrUnknownOperation, id), map[string]string{"operation_id": id}, nil, 0)
		case op.State == core.OperationAborted:
			out = op
			return nil
		}
		approval, asked, err := tx.Approval(id)
		if err != nil {
			return err
		}
		if err := op.MayAbort(approval, asked, who.Name, who.Any); err != nil {
			return err
		}
		out = op.End(core.OperationAborted, reason, tx.Now())
		return errors.Join(tx.PutOperation(out), tx.Audit(who.audit(id, "operation "+id, reason)), takeBack(tx, op, approval, asked, who, reason))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}

// takeBack ends what stands beside an operation that did nothing: its approval, or
// its campaign's being published.
func takeBack(tx *store.Tx, op core.Operation, approval core.Approval, asked bool, who Caller, reason string) error {
	if asked && !approval.State.Terminal() {
		rejected, err := approval.Reject(who.Name, "aborted: "+reason, tx.Now())
		return errors.Join(err, tx.PutApproval(rejected))
	}
	if op.Kind != core.OperationPublish {
		return nil
	}
	campaign, known, err := tx.Campaign(ids.CampaignID(op.Subject))
	if err != nil || !known || campaign.OperationID != op.ID {
		return err
	}
	next, _, err := campaign.Step(core.EventGiveUp)
	if err != nil {
		return err
	}
	return tx.PutCampaign(next)
}
