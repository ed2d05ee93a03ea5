package celltest

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Drawn ends the draw of a SKU: the named users' entries won, all others lost, and no more are taken.
func (c *Cell) Drawn(winners ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drawn = true
	for _, e := range c.entries {
		e.State = cq.EntryState_ENTRY_STATE_LOST
	}
	for _, user := range winners {
		c.entries[user].State = cq.EntryState_ENTRY_STATE_WON
	}
}

// Enter implements EntryService.
func (c *Cell) Enter(_ context.Context, in *cq.EnterRequest) (*cq.EnterResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.callErr != nil {
		return nil, c.callErr
	}
	if e := c.entries[in.GetUserId()]; e != nil {
		return &cq.EnterResponse{Outcome: cq.EntryOutcome_ENTRY_OUTCOME_REPLAYED, Entry: e}, nil
	}
	if c.drawn {
		return &cq.EnterResponse{Outcome: cq.EntryOutcome_ENTRY_OUTCOME_ENDED}, nil
	}
	tickets := map[string]int32{"gold": 3}[in.GetTier()]
	e := &cq.Entry{
		EntryId:    string(ids.DeriveEntry(ids.CampaignID(in.GetCampaignId()), ids.SKUID(in.GetSkuId()), ids.UserID(in.GetUserId()), c.ID)),
		CampaignId: in.GetCampaignId(), SkuId: in.GetSkuId(), State: cq.EntryState_ENTRY_STATE_ENTERED, Tickets: max(tickets, 1), EnteredAtMs: 1_794_000_000_000,
	}
	c.entries[in.GetUserId()] = e
	return &cq.EnterResponse{Outcome: cq.EntryOutcome_ENTRY_OUTCOME_ENTERED, Entry: e}, nil
}

// GetEntry implements EntryService.
func (c *Cell) GetEntry(_ context.Context, in *cq.GetEntryRequest) (*cq.GetEntryResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.callErr != nil {
		return nil, c.callErr
	}
	e := c.entries[in.GetUserId()]
	if e == nil || in.GetEntryId() != "" && in.GetEntryId() != e.GetEntryId() {
		return nil, fmt.Errorf("%w: no such entry", rpcstatus.ErrNotFound)
	}
	return &cq.GetEntryResponse{Entry: e}, nil
}
