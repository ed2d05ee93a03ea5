package intent

import (
	"context"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// CloseCampaign ends the sale now; payments and closings go on. Closing a closed
// campaign answers it as it is.
func (s *Service) CloseCampaign(ctx context.Context, who Caller, c Change) (core.Campaign, error) {
	return s.change(ctx, who, c.of("close", ""), func(_ *store.Tx, campaign core.Campaign) (core.Campaign, bool, error) {
		return campaign.Step(core.EventClose)
	})
}

// PauseCampaign stops the sale of a campaign, or of one SKU of it (sku not empty),
// until it is resumed: nothing new is admitted; what was admitted goes on.
func (s *Service) PauseCampaign(ctx context.Context, who Caller, c Change, sku ids.SKUID) (core.Campaign, error) {
	return s.change(ctx, who, c.of("pause", string(sku)), func(_ *store.Tx, campaign core.Campaign) (core.Campaign, bool, error) {
		return campaign.Pause(sku, s.Clock.Now())
	})
}

// ResumeCampaign undoes PauseCampaign.
func (s *Service) ResumeCampaign(ctx context.Context, who Caller, c Change, sku ids.SKUID) (core.Campaign, error) {
	return s.change(ctx, who, c.of("resume", string(sku)), func(_ *store.Tx, campaign core.Campaign) (core.Campaign, bool, error) {
		return campaign.Resume(sku, s.Clock.Now())
	})
}

// AddCell lets one more cell take part in a published campaign. No bucket moves.
// The leader's planner gives every book an allocation of 0 for it and sends it the
// rules.
func (s *Service) AddCell(ctx context.Context, who Caller, c Change, cell ids.CellID) (core.Campaign, error) {
	return s.change(ctx, who, c.of("add cell", string(cell)), func(tx *store.Tx, campaign core.Campaign) (core.Campaign, bool, error) {
		record, known, err := tx.Cell(cell)
		if err != nil {
			return core.Campaign{}, false, err
		}
		if !known {
			return core.Campaign{}, false, unknownCell(cell)
		}
		return campaign.WithCell(record, s.Clock.Now())
	})
}

// Amended is what an update came to.
type Amended struct {
	Campaign core.Campaign
	Changed  []string // paths; empty: the file says what was so already, or a repeat
	Split    core.Split
}

// UpdateCampaign replaces a campaign's file; core.Campaign.Amend has the rules. A
// draft is checked as at its creation: cells that exist, a window that is not over,
// a split that works.
func (s *Service) UpdateCampaign(ctx context.Context, who Caller, c Change, spec core.CampaignSpec, text string) (Amended, error) {
	var out Amended
	c = c.of("update", core.Digest(text))
	c.tell = func() string { return strings.Join(out.Changed, " ") }
	campaign, err := s.change(ctx, who, c, func(tx *store.Tx, campaign core.Campaign) (core.Campaign, bool, error) {
		out = Amended{}
		next, changed, err := campaign.Amend(spec, s.Clock.Now())
		if err != nil || next.Version == campaign.Version {
			return next, false, err
		}
		if next.State == core.CampaignDraft {
			if out.Split, err = s.drafted(tx, spec); err != nil {
				return core.Campaign{}, false, err
			}
		}
		out.Changed = changed
		return next, true, nil
	})
	out.Campaign = campaign
	return out, err
}

// drafted checks a draft's spec against the cells and the clock.
func (s *Service) drafted(tx *store.Tx, spec core.CampaignSpec) (core.Split, error) {
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
	return spec.Preview(cells)
}
