package intent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// CreateCampaign keeps a draft. The same spec again is the same campaign, also
// when it is past its draft; another one under the id is core.ErrCampaignExists.
func (s *Service) CreateCampaign(ctx context.Context, who Caller, spec core.CampaignSpec, operationID string, validateOnly bool) (core.Campaign, core.Split, error) {
	if v := spec.CheckWindow(s.Clock.Now()); len(v) > 0 {
		return core.Campaign{}, core.Split{}, rpcstatus.Invalid(v...)
	}
	var out core.Campaign
	var split core.Split
	revision, err := s.Store.Update(ctx, "create "+string(spec.ID), func(tx *store.Tx) error {
		cells, err := tx.Cells()
		if err != nil {
			return err
		}
		if err := unburied(tx, spec.ID); err != nil {
			return err
		}
		present, known, err := tx.Campaign(spec.ID)
		if err != nil {
			return err
		}
		if err := cellsKnown(spec, cells); err != nil {
			return err
		}
		if split, err = spec.Preview(cells); err != nil {
			return err
		}
		if known {
			out = present
			if !present.Spec.Equal(spec) {
				return rpcstatus.With(fmt.Errorf("%w: %s in %s", core.ErrCampaignExists, spec.ID, present.State),
					map[string]string{"campaign_id": string(spec.ID), "state": present.State.String()}, nil, 0)
			}
			return nil
		}
		out = core.Campaign{Spec: spec, State: core.CampaignDraft, Version: 1, Owner: who.Name, CreatedBy: operationID}
		out = out.Stamped(operationID, core.Digest("create", string(spec.ID)))
		if validateOnly {
			return nil
		}
		return errors.Join(tx.PutCampaign(out), tx.Audit(who.audit(operationID, "campaign "+string(spec.ID), "create")))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, split, err
}

// unburied refuses the id of a campaign that was sold and deleted: its buyers'
// marks in the shards would meet the new one's customers.
func unburied(tx *store.Tx, id ids.CampaignID) error {
	t, buried, err := tx.Tombstone(id)
	if err != nil || !buried {
		return err
	}
	return rpcstatus.With(fmt.Errorf("%w: %s, at %s; take another id", core.ErrCampaignDeleted, id, t.DeletedAt.Format(time.RFC3339)),
		map[string]string{"campaign_id": string(id), "deleted_at": t.DeletedAt.Format(time.RFC3339)}, nil, 0)
}

// cellsKnown refuses cells that are not provisioned.
func cellsKnown(spec core.CampaignSpec, cells map[ids.CellID]core.Cell) error {
	var v []rpcstatus.Violation
	for i, id := range spec.Cells {
		if c, ok := cells[id]; !ok || c.State == core.CellRetired {
			v = append(v, rpcstatus.Violation{Field: fmt.Sprintf("cells[%d]", i), Rule: fmt.Sprintf("no cell %s is provisioned", id)})
		}
	}
	return rpcstatus.Invalid(v...)
}

// Publish is what the begin of a publish came to.
type Publish struct {
	Campaign  core.Campaign
	Operation core.Operation // zero for validate only
	Split     core.Split
}

// PublishCampaign begins a publish: the campaign is PUBLISHING and the leader's
// planner goes on. Refused, with nothing changed, when a cell cannot be granted
// units, a SKU does not fit its physical stock, or the window is over.
func (s *Service) PublishCampaign(ctx context.Context, who Caller, id ids.CampaignID, operationID string, expectedVersion int64, validateOnly bool) (Publish, error) {
	var out Publish
	revision, err := s.Store.Update(ctx, "publish "+string(id), func(tx *store.Tx) (err error) {
		out, err = s.beginPublish(tx, who, id, operationID, expectedVersion, validateOnly)
		return err
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}

func (s *Service) beginPublish(tx *store.Tx, who Caller, id ids.CampaignID, operationID string, expectedVersion int64, validateOnly bool) (Publish, error) {
	parameters := core.Digest("publish", string(id))
	op, begun, err := tx.Operation(operationID)
	if err != nil {
		return Publish{}, err
	}
	campaign, err := need(tx, id)
	if err != nil {
		return Publish{}, err
	}
	if begun {
		return Publish{Campaign: campaign, Operation: op}, op.SameParameters(parameters)
	}
	if expectedVersion != 0 && expectedVersion != campaign.Version {
		return Publish{}, core.VersionConflict(expectedVersion, campaign.Version)
	}
	next, changed, err := campaign.Step(core.EventPublish)
	if err != nil {
		return Publish{}, err
	}
	if !changed {
		return Publish{}, rpcstatus.With(fmt.Errorf("%w: operation %s publishes %s already", core.ErrCampaignState, campaign.OperationID, id),
			map[string]string{"campaign_id": string(id), "operation_id": campaign.OperationID}, nil, 0)
	}
	split, err := s.fits(tx, campaign)
	if err != nil {
		return Publish{}, err
	}
	next.OperationID = operationID
	if next, err = next.Sealed(rand.Read); err != nil {
		return Publish{}, err
	}
	if validateOnly {
		return Publish{Campaign: campaign, Split: split}, nil
	}
	op = core.Operation{
		ID: operationID, Kind: core.OperationPublish, Subject: string(id), State: core.OperationPending, Step: core.StepRoute,
		Actor: who.Name, StartedAt: tx.Now(), Parameters: parameters,
	}
	return Publish{Campaign: next, Operation: op, Split: split},
		errors.Join(tx.PutCampaign(next), tx.PutOperation(op), tx.Audit(who.audit(operationID, "campaign "+string(id), "publish")))
}

// fits decides whether a publish could go through as things are now: the planner
// decides again, SKU by SKU, when it writes the books.
func (s *Service) fits(tx *store.Tx, campaign core.Campaign) (core.Split, error) {
	spec := campaign.Spec
	if v := spec.CheckWindow(s.Clock.Now()); len(v) > 0 {
		return core.Split{}, rpcstatus.Invalid(v...)
	}
	cells, err := tx.Cells()
	if err != nil {
		return core.Split{}, err
	}
	if err := cellsKnown(spec, cells); err != nil {
		return core.Split{}, err
	}
	split, err := spec.Preview(cells)
	if err != nil {
		return core.Split{}, err
	}
	// A publish of very many SKUs would read too many stock keys for one
	// transaction; the planner finds what does not fit either way.
	for i, sku := range spec.SKUs[:min(len(spec.SKUs), 32)] {
		if _, _, err := core.NewBook(campaign.Key(sku.ID), split.Plans[i], cells); err != nil {
			return core.Split{}, err
		}
		stock, _, err := tx.Stock(sku.ID)
		if err != nil {
			return core.Split{}, err
		}
		if _, _, err := stock.Take(sku.ID, spec.ID, sku.PhysicalStock, sku.SaleLimit); err != nil {
			return core.Split{}, err
		}
	}
	return split, nil
}

func need(tx *store.Tx, id ids.CampaignID) (core.Campaign, error) {
	campaign, known, err := tx.Campaign(id)
	if err == nil && !known {
		err = rpcstatus.With(fmt.Errorf("%w: %s", core.ErrUnknownCampaign, id), map[string]string{"campaign_id": string(id)}, nil, 0)
	}
	return campaign, err
}
