package api

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/campaigns"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Gates tell why a gate stands as it does.
type Gates interface {
	// Inputs of a SKU's gate as this process last judged it; false: it judges none.
	Inputs(campaign ids.CampaignID, sku ids.SKUID) (cause string, consumeRate float64, ok bool)
}

// GetGate implements CellFactsService.
func (s *Server) GetGate(ctx context.Context, _ *pb.GetGateRequest) (*pb.GetGateResponse, error) {
	out := &pb.GetGateResponse{InstanceId: s.set.Instance, Faults: s.Faults()}
	for _, c := range s.Rules.Current().All() {
		for _, sku := range c.SKUs() {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			out.Gates = append(out.Gates, s.gate(ctx, c, sku.ID))
		}
	}
	return out, nil
}

func (s *Server) gate(ctx context.Context, c *campaigns.Campaign, sku ids.SKUID) *pb.SkuGate {
	if c.Direct {
		return s.directGate(ctx, c, sku)
	}
	g := &pb.SkuGate{CampaignId: string(c.ID), SkuId: string(sku), State: pb.GateState_GATE_STATE_PAUSED}
	if cause, rate, ok := s.Gates.Inputs(c.ID, sku); ok {
		g.Cause, g.ConsumeRate = cause, rate
	}
	f, err := s.Mirror.Facts(ctx, scope(c, sku), sku)
	switch {
	case err != nil:
		g.Cause = "the mirror does not answer: " + err.Error()
		return g
	case !f.Present || f.State != admission.Ready:
		g.Cause = "the mirror is being built"
		return g
	}
	g.State, g.Bound, g.Outstanding = f.Gate, f.Bound, f.Outstanding
	g.OldestUnsettledAgeMs, g.MirrorStock, g.Build = f.OldestAgeMS(), f.Stock, protoBuild(f.Build)
	return g
}

// directGate is the gate of a SKU that the shard alone sells: it has no bound, and its stock is the
// shard's own.
func (s *Server) directGate(ctx context.Context, c *campaigns.Campaign, sku ids.SKUID) *pb.SkuGate {
	g := &pb.SkuGate{CampaignId: string(c.ID), SkuId: string(sku), State: pb.GateState_GATE_STATE_PAUSED}
	rules := s.Rules.Current()
	one, _ := c.SKU(sku)
	stock, err := s.Stocks.Stock(ctx, c.ID, sku)
	why, paused := rules.Paused()
	switch {
	case err != nil:
		g.Cause = "the shard does not answer: " + err.Error()
		return g
	case one.Final:
		g.State, g.Cause = pb.GateState_GATE_STATE_FINAL_SOLD_OUT, "declared final by the control plane"
	case paused:
		g.Cause = "paused by an operator: " + why
	case one.Paused, !c.Sells():
		g.Cause = "the campaign does not sell"
	case stock.Available == 0:
		g.State, g.Cause = pb.GateState_GATE_STATE_TEMP_SOLD_OUT, "the shard has no stock"
	default:
		g.State, g.Cause = pb.GateState_GATE_STATE_OPEN, "sold by the shard alone"
	}
	g.MirrorStock = int64(stock.Available)
	return g
}

// GetMirror implements CellFactsService.
func (s *Server) GetMirror(ctx context.Context, in *pb.GetMirrorRequest) (*pb.GetMirrorResponse, error) {
	c, sku, err := s.readStock(in.GetCampaignId(), in.GetSkuId())
	if err != nil {
		return nil, err
	}
	f, err := s.Mirror.Facts(ctx, scope(c, sku), sku)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rpcstatus.ErrUnavailable, err)
	}
	return &pb.GetMirrorResponse{
		Present: f.Present, Build: protoBuild(f.Build), FenceVersion: f.Fence, Stock: f.Stock, Outstanding: f.Outstanding,
		OutstandingUnits: f.OutstandingUnits, StreamLength: f.StreamLength,
	}, nil
}

// LookupMirrorRequest implements CellFactsService.
func (s *Server) LookupMirrorRequest(ctx context.Context, in *pb.LookupMirrorRequestRequest) (*pb.LookupMirrorRequestResponse, error) {
	var bad violations
	user, request := parse(&bad, ids.ParseUserID, in.GetUserId()), parse(&bad, ids.ParseRequestID, in.GetRequestId())
	if err := bad.err(); err != nil {
		return nil, err
	}
	c, sku, err := s.readStock(in.GetCampaignId(), in.GetSkuId())
	if err != nil {
		return nil, err
	}
	r := s.Mirror.Lookup(ctx, []admission.LookupAsk{{Scope: scope(c, sku), SKU: sku, User: user, Request: request}})[0]
	switch r.Outcome {
	case admission.Replayed:
		return &pb.LookupMirrorRequestResponse{
			Present: true, Fields: fields(r), InStream: r.State == pb.RequestState_REQUEST_STATE_ADMITTED,
		}, nil
	case admission.Clear:
		return &pb.LookupMirrorRequestResponse{}, nil
	default:
		return nil, fmt.Errorf("%w: the mirror answers %s", rpcstatus.ErrUnavailable, r.Outcome)
	}
}

// fields is a record for people.
func fields(r admission.Result) map[string]string {
	out := map[string]string{
		"state": r.State.String(), "reservation_id": string(r.Reservation), "build": r.Build.String(), "quantity": strconv.Itoa(int(r.Quantity)),
		"admitted_at_ms": strconv.FormatInt(r.AdmittedAtMS, 10),
	}
	if r.Reason != pb.Reason_REASON_UNSPECIFIED {
		out["reason"] = r.Reason.String()
	}
	if r.Order != "" {
		out["order_id"], out["expires_at_ms"] = string(r.Order), strconv.FormatInt(r.ExpiresAtMS, 10)
	}
	return out
}

func (s *Server) readStock(campaignID, skuID string) (*campaigns.Campaign, ids.SKUID, error) {
	var bad violations
	campaign, sku := parse(&bad, ids.ParseCampaignID, campaignID), parse(&bad, ids.ParseSKUID, skuID)
	if err := bad.err(); err != nil {
		return nil, "", err
	}
	c, ok := s.Rules.Current().Campaign(campaign)
	if !ok {
		return nil, "", fmt.Errorf("%w: campaign %s is not known to this cell", rpcstatus.ErrNotFound, campaign)
	}
	if _, ok := c.SKU(sku); !ok {
		return nil, "", fmt.Errorf("%w: SKU %s is not in campaign %s", rpcstatus.ErrNotFound, sku, campaign)
	}
	return c, sku, nil
}

func protoBuild(b ids.Build) *pb.Build {
	if b == (ids.Build{}) {
		return nil
	}
	return &pb.Build{FenceVersion: b.Fence, Count: b.Count}
}
