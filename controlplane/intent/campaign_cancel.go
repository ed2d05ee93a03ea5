package intent

import (
	"context"
	"errors"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
)

// CancelCampaign asks for the end of a campaign with all its money given back. What
// it does waits for a second person: nothing is stopped before. The operation is
// the answer; validate only answers none.
func (s *Service) CancelCampaign(ctx context.Context, who Caller, c Change) (core.Operation, error) {
	parameters := core.Digest("cancel", string(c.Campaign))
	var out core.Operation
	revision, err := s.Store.Update(ctx, "cancel "+string(c.Campaign), func(tx *store.Tx) error {
		op, begun, err := tx.Operation(c.OperationID)
		if err != nil {
			return err
		}
		if begun {
			out = op
			return op.SameParameters(parameters)
		}
		campaign, err := need(tx, c.Campaign)
		if err != nil {
			return err
		}
		if c.ExpectedVersion != 0 && c.ExpectedVersion != campaign.Version {
			return core.VersionConflict(c.ExpectedVersion, campaign.Version)
		}
		if _, _, err := campaign.Cancel(c.OperationID); err != nil || c.ValidateOnly {
			return err
		}
		out, err = s.ask(tx, who, core.Operation{
			ID: c.OperationID, Kind: core.OperationCancel, Subject: string(c.Campaign), State: core.OperationPending, Step: core.StepStopSale,
			Actor: who.Name, Reason: c.Reason, StartedAt: tx.Now(), Parameters: parameters,
		})
		return errors.Join(err, tx.PutOperation(out), tx.Audit(who.audit(c.OperationID, "campaign "+string(c.Campaign), "cancel: "+c.Reason)))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}
