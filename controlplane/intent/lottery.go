package intent

import (
	"context"
	"errors"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/lottery"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
)

// DrawLottery asks for the draw of a campaign.
type DrawLottery struct {
	OperationID     string
	Campaign        ids.CampaignID
	Beacon          string // a public value nobody knew before entry ended, or empty
	ExpectedVersion int64  // 0: any
	Reason          string
}

// Parameters is the digest that a repeat must match.
func (d DrawLottery) Parameters() string {
	return core.Digest("draw", string(d.Campaign), d.Beacon)
}

// DrawLottery begins the draw; the leader's driver carries it out. A campaign is drawn by one operation,
// once. The operation is zero where validateOnly. core.ErrCampaignState: entry is still open, the campaign
// does not draw, is over, or another operation draws it.
func (s *Service) DrawLottery(ctx context.Context, who Caller, d DrawLottery, validateOnly bool) (core.Campaign, core.Operation, error) {
	var campaign core.Campaign
	var op core.Operation
	revision, err := s.Store.Update(ctx, "draw "+string(d.Campaign), func(tx *store.Tx) (err error) {
		campaign, op, err = s.beginDraw(tx, who, d, validateOnly)
		return err
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return campaign, op, err
}

func (s *Service) beginDraw(tx *store.Tx, who Caller, d DrawLottery, validateOnly bool) (core.Campaign, core.Operation, error) {
	campaign, err := need(tx, d.Campaign)
	if err != nil {
		return campaign, core.Operation{}, err
	}
	op, begun, err := tx.Operation(d.OperationID)
	if err != nil {
		return campaign, op, err
	}
	if begun {
		return campaign, op, op.SameParameters(d.Parameters())
	}
	if d.ExpectedVersion != 0 && d.ExpectedVersion != campaign.Version {
		return campaign, op, core.VersionConflict(d.ExpectedVersion, campaign.Version)
	}
	next, err := campaign.DrawnBy(d.OperationID)
	if err := errors.Join(err, campaign.MayDraw(tx.Now())); err != nil {
		return campaign, op, err
	}
	if validateOnly {
		return campaign, core.Operation{}, nil
	}
	op = core.Operation{
		ID: d.OperationID, Kind: core.OperationDraw, Subject: string(d.Campaign), State: core.OperationPending, Step: lottery.StepDraw,
		Actor: who.Name, Reason: d.Reason, StartedAt: tx.Now(), Parameters: d.Parameters(), Beacon: d.Beacon,
	}
	return next, op, errors.Join(tx.PutCampaign(next), tx.PutOperation(op), tx.Audit(who.audit(d.OperationID, "campaign "+string(d.Campaign), d.Reason)))
}
