package core

import "slices"

// MayBegin is nil while steps may be begun on the book; ErrSettled after.
func (b Book) MayBegin() error {
	if !b.Settled {
		return nil
	}
	return numbered(ErrSettled, "campaign_id", b.Key.Campaign, "sku_id", b.Key.SKU)
}

// Settle closes the book for good: its account was taken.
func (b Book) Settle() (Book, error) {
	next := b.clone()
	next.Settled = true
	return next, next.Check()
}

// WithReport gives the campaign whose account was taken: the report stands in the
// archive. Its version does not grow: cells and edges need not know.
func (c Campaign) WithReport(report ArchiveObject) Campaign {
	next := c.clone()
	next.Archive = []ArchiveObject{report}
	return next
}

// Report gives the archived final report; false before the account was taken.
func (c Campaign) Report() (ArchiveObject, bool) {
	if len(c.Archive) == 0 {
		return ArchiveObject{}, false
	}
	return c.Archive[0], true
}

// Journal gives the archived journal; empty before SETTLED.
func (c Campaign) Journal() []ArchiveObject {
	if len(c.Archive) == 0 {
		return nil
	}
	return slices.Clone(c.Archive[1:])
}

// Cancel ends the sale for good, by an operation that a second person approved:
// unpaid orders are closed and paid ones refunded. A campaign that is closed already
// may be cancelled until its account is taken. changed is false for a repeat.
// ErrCampaignState: a draft is deleted, a publish aborted, a settled campaign is over.
func (c Campaign) Cancel(operation string) (next Campaign, changed bool, err error) {
	if c.CancelledBy == operation {
		return c, false, nil
	}
	_, reported := c.Report()
	if _, ends := campaignTable[c.State][EventClose]; !ends || reported || c.Cancelled() {
		return Campaign{}, false, numbered(ErrCampaignState, "campaign_id", c.Spec.ID, "state", c.State, "wanted", "cancel", "cancelled_by", c.CancelledBy)
	}
	next = c.clone()
	next.State, next.CancelledBy = CampaignClosed, operation
	next.Version++
	return next, true, nil
}
