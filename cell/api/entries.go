package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Desk takes lotteries' entries; *entries.Desk is one.
type Desk interface {
	Enter(ctx context.Context, ask shard.EntryAsk) (shard.EntryResult, error)
}

// Entries read them; *shard.Store is one.
type Entries interface {
	GetEntry(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID, user ids.UserID) (shard.Entry, error)
}

var errNoEntry = fmt.Errorf("%w: no such entry", rpcstatus.ErrNotFound)

// Enter implements EntryService.
func (s *Server) Enter(ctx context.Context, in *pb.EnterRequest) (*pb.EnterResponse, error) {
	var bad violations
	ask := shard.EntryAsk{
		Campaign: parse(&bad, ids.ParseCampaignID, in.GetCampaignId()), SKU: parse(&bad, ids.ParseSKUID, in.GetSkuId()),
		User: parse(&bad, ids.ParseUserID, in.GetUserId()), Tier: in.GetTier(),
	}
	if len(ask.Tier) > maxTier {
		bad.add("tier", "must be at most 64 bytes")
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	result, err := s.Desk.Enter(ctx, ask)
	if err != nil {
		return nil, translate(err)
	}
	out := &pb.EnterResponse{Outcome: pb.EntryOutcome(result.Outcome), OpensInMs: result.Opens.Milliseconds()}
	if result.Entry.ID != "" {
		out.Entry = renderEntry(ask.Campaign, ask.SKU, result.Entry)
	}
	return out, nil
}

// GetEntry implements EntryService.
func (s *Server) GetEntry(ctx context.Context, in *pb.GetEntryRequest) (*pb.GetEntryResponse, error) {
	var bad violations
	campaign, sku, user := parse(&bad, ids.ParseCampaignID, in.GetCampaignId()), parse(&bad, ids.ParseSKUID, in.GetSkuId()), parse(&bad, ids.ParseUserID, in.GetUserId())
	if err := bad.err(); err != nil {
		return nil, err
	}
	entry, err := s.Entries.GetEntry(ctx, campaign, sku, user)
	switch {
	case errors.Is(err, shard.ErrNotFound), err == nil && in.GetEntryId() != "" && in.GetEntryId() != string(entry.ID):
		return nil, errNoEntry
	case err != nil:
		return nil, translate(err)
	}
	return &pb.GetEntryResponse{Entry: renderEntry(campaign, sku, entry)}, nil
}

var entryStates = map[shard.EntryState]pb.EntryState{
	shard.Entered: pb.EntryState_ENTRY_STATE_ENTERED, shard.Won: pb.EntryState_ENTRY_STATE_WON, shard.Lost: pb.EntryState_ENTRY_STATE_LOST,
}

func renderEntry(campaign ids.CampaignID, sku ids.SKUID, e shard.Entry) *pb.Entry {
	return &pb.Entry{
		EntryId: string(e.ID), CampaignId: string(campaign), SkuId: string(sku), State: entryStates[e.State], Tickets: e.Tickets, EnteredAtMs: e.EnteredAt.UnixMilli(),
	}
}
