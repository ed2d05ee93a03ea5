package core

import (
	"slices"
	"time"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// What operators do to a campaign that is on sale, or is about to be. Each verb
// gives a changed copy with the next version; changed is false where the campaign
// is so already. They need the time: a campaign whose close_at has passed is over,
// whether the planner has closed it yet or not.

// Running is nil for a campaign that is published or paused and whose window is
// not over; else ErrCampaignState with what was wanted.
func (c Campaign) Running(now time.Time, wanted string) error {
	state := c.State
	if (state == CampaignPublished || state == CampaignPaused) && !now.Before(c.Spec.CloseAt) {
		state = CampaignClosed
	}
	if state != CampaignPublished && state != CampaignPaused {
		return numbered(ErrCampaignState, "campaign_id", c.Spec.ID, "state", state, "wanted", wanted)
	}
	return nil
}

// Pause stops the sale of the campaign, or of one SKU of it. ErrCampaignState,
// ErrUnknownSKU.
func (c Campaign) Pause(sku ids.SKUID, now time.Time) (next Campaign, changed bool, err error) {
	if err := c.Running(now, "pause"); err != nil {
		return Campaign{}, false, err
	}
	if sku == "" {
		return c.Step(EventPause)
	}
	if !c.Sells(sku) {
		return Campaign{}, false, c.unknownSKU(sku)
	}
	if slices.Contains(c.PausedSKUs, sku) {
		return c, false, nil
	}
	next = c.clone()
	next.PausedSKUs = append(next.PausedSKUs, sku)
	slices.Sort(next.PausedSKUs)
	next.Version++
	return next, true, nil
}

// Resume undoes Pause; SKUs that were paused by name stay paused when the
// campaign is resumed. ErrCampaignState also when close_at has passed meanwhile.
func (c Campaign) Resume(sku ids.SKUID, now time.Time) (next Campaign, changed bool, err error) {
	if err := c.Running(now, "resume"); err != nil {
		return Campaign{}, false, err
	}
	if sku == "" {
		return c.Step(EventResume)
	}
	if !c.Sells(sku) {
		return Campaign{}, false, c.unknownSKU(sku)
	}
	at := slices.Index(c.PausedSKUs, sku)
	if at < 0 {
		return c, false, nil
	}
	next = c.clone()
	next.PausedSKUs = slices.Delete(next.PausedSKUs, at, at+1)
	next.Version++
	return next, true, nil
}

// WithCell lets one more cell take part. It owns no bucket and is granted nothing:
// the map of buckets was frozen at publish, and units follow the buckets. A cell
// joins a draft by its file. ErrCampaignState, ErrCellState, and field faults where
// the campaign would be too large.
func (c Campaign) WithCell(cell Cell, now time.Time) (next Campaign, changed bool, err error) {
	if err := c.Running(now, "add a cell"); err != nil {
		return Campaign{}, false, err
	}
	if slices.Contains(c.Spec.Cells, cell.Spec.ID) {
		return c, false, nil
	}
	if cell.State != CellActive {
		return Campaign{}, false, cell.refuses("add to a campaign")
	}
	next = c.clone()
	next.Spec.Cells = append(slices.Clone(c.Spec.Cells), cell.Spec.ID)
	next.Version++
	var f faults
	next.Spec.checkCells(&f)
	next.Spec.checkPairs(&f)
	if len(f) > 0 {
		return Campaign{}, false, rpcstatus.Invalid(f...)
	}
	return next, true, nil
}

// Sells tells whether the SKU is one of the campaign's.
func (c Campaign) Sells(sku ids.SKUID) bool {
	return slices.ContainsFunc(c.Spec.SKUs, func(s SKUSpec) bool { return s.ID == sku })
}

func (c Campaign) unknownSKU(sku ids.SKUID) error {
	return numbered(ErrUnknownSKU, "campaign_id", c.Spec.ID, "sku_id", sku)
}
