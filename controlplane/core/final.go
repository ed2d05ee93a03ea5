package core

import (
	"slices"
	"strconv"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/internal/ids"
)

// HeldFacts is what a cell's shard was last known to hold of one SKU, and under
// which fence version: from a report of its present version, or from the proof of
// its fence.
type HeldFacts struct {
	FenceVersion       int64
	Granted, Confirmed quantity.Quantity
}

// FinalInputs is what is looked at before FINAL_SOLD_OUT, beside the book (R-066, G-09).
type FinalInputs struct {
	Campaign Campaign
	// Ended: the sale is over, by the clock or by hand.
	Ended bool
	// Open: an adjustment of the SKU has no answer yet.
	Open  bool
	Cells map[ids.CellID]Cell
	Facts map[ids.CellID]HeldFacts
}

// WhyNotFinal names the first thing that could still bring a unit back on sale, or
// "" when there is none: then every unit is confirmed and stays so, and the SKU may
// be declared FINAL_SOLD_OUT. Anything less is TEMP_SOLD_OUT, which costs a
// customer a retry; a FINAL that was wrong would leave units unsold.
//
// Facts may be old: what is granted and confirmed stays confirmed, but for a
// refund that restocks, which is why such a campaign is not final before its end.
// The book may not be old: who declares compares its version.
func (b Book) WhyNotFinal(in FinalInputs) string {
	spec := in.Campaign.Spec
	switch {
	case b.Final:
		return "it is already"
	case b.Settled || in.Campaign.Cancelled() || !in.Campaign.State.sells(in.Ended):
		return "the campaign does not sell"
	case spec.Refund == RefundRestock && !in.Ended:
		return "a refund may bring a unit back before the end"
	case !b.Reserve.IsZero():
		return "the reserve holds " + b.Reserve.String()
	case !b.LimitTarget.IsZero():
		return "the limit is being lowered"
	case in.Open:
		return "an adjustment has no answer"
	}
	for _, a := range b.Allocations {
		if why := a.mayReturn(in); why != "" {
			return "cell " + string(a.Cell) + ": " + why
		}
	}
	return ""
}

// sells: published, paused, or over; a paused sale may go on.
func (s CampaignState) sells(ended bool) bool {
	return s == CampaignPublished || s == CampaignPaused || s == CampaignClosed && ended
}

// mayReturn says how units of one allocation could be sold yet, or "". Units that
// are written off are nobody's any more, and where nothing is allocated a shard
// holds nothing (I2).
func (a Allocation) mayReturn(in FinalInputs) string {
	if a.Granted == a.WrittenOff {
		return ""
	}
	cell, known := in.Cells[a.Cell]
	facts, told := in.Facts[a.Cell]
	switch {
	case !known:
		return "it is unknown"
	case cell.State == CellFenced && !cell.Reclaimed, cell.State == CellFencing, cell.State == CellRestoring, cell.State == CellRegressed:
		return "it is " + cell.State.String() + ", its units are frozen"
	case cell.State == CellSuspect:
		return "no process of it is alive"
	case !told || facts.FenceVersion != cell.FenceVersion:
		return "nothing is known of it under fence version " + strconv.FormatInt(cell.FenceVersion, 10)
	case facts.Granted != a.Granted:
		return "it was granted " + facts.Granted.String() + " of " + a.Granted.String()
	case facts.Confirmed != facts.Granted:
		return "it sold " + facts.Confirmed.String() + " of " + facts.Granted.String()
	}
	return ""
}

// BecomeFinal declares FINAL_SOLD_OUT. ErrNotFinal with the reason.
func (b Book) BecomeFinal(in FinalInputs) (Book, error) {
	if why := b.WhyNotFinal(in); why != "" {
		return Book{}, numbered(ErrNotFinal, "campaign_id", b.Key.Campaign, "sku_id", b.Key.SKU, "why", why)
	}
	next := b.clone()
	next.Final = true
	return next, next.Check()
}

// WithFinal gives the campaign that tells cells and edges of one more SKU that is
// final.
func (c Campaign) WithFinal(sku ids.SKUID) Campaign {
	next := c.clone()
	if !slices.Contains(next.FinalSKUs, sku) {
		next.FinalSKUs = append(next.FinalSKUs, sku)
	}
	next.Version++
	return next
}
