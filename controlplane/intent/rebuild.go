package intent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// RebuildMirror asks a cell to make the mirrors of a campaign anew, or the one that
// holds a SKU ("" : all). The leader tells the cell; the operation ends when they may be
// admitted into. The same operation id answers the operation.
//
// Errors: core.ErrUnknownCell, core.ErrUnknownCampaign, core.ErrUnknownSKU,
// core.ErrVersion, core.ErrIDReused; core.ErrCellState for a cell that no process may
// hold; core.ErrCampaignState for a campaign that has no mirror there: it is not on
// sale, sells by the shard alone, or not in this cell.
func (s *Service) RebuildMirror(ctx context.Context, who Caller, c CellChange, campaign ids.CampaignID, sku ids.SKUID) (core.Operation, error) {
	parameters := core.Digest("rebuild mirror", string(c.Cell), string(campaign), string(sku))
	var out core.Operation
	revision, err := s.Store.Update(ctx, "rebuild mirror "+string(c.Cell), func(tx *store.Tx) error {
		op, begun, err := tx.Operation(c.OperationID)
		if err != nil {
			return err
		}
		if out = op; begun {
			return op.SameParameters(parameters)
		}
		cell, known, err := tx.Cell(c.Cell)
		if err != nil {
			return err
		}
		if !known {
			return unknownCell(c.Cell)
		}
		if c.May != nil {
			if err := c.May(cell); err != nil {
				return err
			}
		}
		if c.ExpectedVersion != 0 && c.ExpectedVersion != cell.Version {
			return core.VersionConflict(c.ExpectedVersion, cell.Version)
		}
		if err := s.hasMirror(tx, cell, campaign, sku); err != nil {
			return err
		}
		out = core.Operation{
			ID: c.OperationID, Kind: core.OperationRebuild, Subject: core.MirrorsOf(c.Cell, campaign, sku), State: core.OperationPending,
			Actor: who.Name, Reason: c.Reason, StartedAt: tx.Now(), Parameters: parameters,
		}
		if c.ValidateOnly {
			return nil
		}
		return errors.Join(tx.PutOperation(out), tx.Audit(who.audit(c.OperationID, "cell "+string(c.Cell), "rebuild the mirrors of "+out.Subject+": "+c.Reason)))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}

// hasMirror refuses a campaign that the cell keeps no mirror of.
func (s *Service) hasMirror(tx *store.Tx, cell core.Cell, id ids.CampaignID, sku ids.SKUID) error {
	facts := map[string]string{"cell_id": string(cell.Spec.ID), "campaign_id": string(id)}
	if !cell.State.MayRegister() {
		return rpcstatus.With(fmt.Errorf("%w: cell %s is %s", core.ErrCellState, cell.Spec.ID, cell.State), facts, nil, 0)
	}
	campaign, known, err := tx.Campaign(id)
	switch {
	case err != nil:
		return err
	case !known:
		return rpcstatus.With(fmt.Errorf("%w: %s", core.ErrUnknownCampaign, id), facts, nil, 0)
	case sku != "" && !slices.ContainsFunc(campaign.Spec.SKUs, func(s core.SKUSpec) bool { return s.ID == sku }):
		return rpcstatus.With(fmt.Errorf("%w: %s of campaign %s", core.ErrUnknownSKU, sku, id), facts, nil, 0)
	case campaign.Spec.Admission != core.AdmissionMirror, !slices.Contains(campaign.Spec.Cells, cell.Spec.ID):
		return rpcstatus.With(fmt.Errorf("%w: campaign %s has no mirror in cell %s", core.ErrCampaignState, id, cell.Spec.ID), facts, nil, 0)
	}
	switch campaign.State {
	case core.CampaignPublished, core.CampaignPaused, core.CampaignClosed:
		return nil
	default:
		return rpcstatus.With(fmt.Errorf("%w: campaign %s is %s and has no mirror yet, or none any more", core.ErrCampaignState, id, campaign.State), facts, nil, 0)
	}
}
