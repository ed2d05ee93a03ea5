package intent

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
)

// AbortOperation ends an operation that has done nothing yet. A publish whose
// first step is done, a fence, a reclaim, a restore go on: what they began must
// be finished. core.ErrOperationState says why.
func (s *Service) AbortOperation(ctx context.Context, who Caller, id, reason string) (core.Operation, error) {
	var out core.Operation
	revision, err := s.Store.Update(ctx, "abort "+id, func(tx *store.Tx) error {
		op, known, err := tx.Operation(id)
		switch {
		case err != nil:
			return err
		case !known:
			return fmt.Errorf("%w: %s", core.ErrUnknownOperation, id)
		case op.State == core.OperationAborted:
			out = op
			return nil
		case op.State.Terminal():
			return op.Refuses("it has ended")
		case op.Kind == core.OperationFence:
			return op.Refuses("a fence ends by proof or write-off only")
		case op.Kind != core.OperationPublish || len(op.Steps) > 0:
			return op.Refuses("what it began must be finished")
		}
		campaign, known, err := tx.Campaign(ids.CampaignID(op.Subject))
		if err != nil {
			return err
		}
		out = op.End(core.OperationAborted, reason, tx.Now())
		err = errors.Join(tx.PutOperation(out), tx.Audit(who.audit(id, "operation "+id, reason)))
		if known && campaign.OperationID == id {
			next, _, stepErr := campaign.Step(core.EventGiveUp)
			if stepErr != nil {
				return stepErr
			}
			err = errors.Join(err, tx.PutCampaign(next))
		}
		return err
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}
