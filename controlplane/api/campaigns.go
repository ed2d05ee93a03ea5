package api

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/campaignfile"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/preflight"
	"github.com/cellquota/cellquota/controlplane/quota"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Campaigns is CampaignService.
type Campaigns struct {
	pb.UnimplementedCampaignServiceServer
	Intent   *intent.Service
	View     *view.View
	Clock    clock.Clock
	Shards   quota.Shards // for the floor of a limit
	Settling Settling     // nil: nobody tells what a closed campaign waits for
	// Archive keeps evidence of lotteries; nil: none is drawn.
	Archive archive.Archive
	// Preflight asks processes and edges.
	Preflight preflight.Preflight
}

// ValidateCampaign reports every fault of a file at once, unknown cells and a
// window in the past included.
func (h *Campaigns) ValidateCampaign(_ context.Context, req *pb.ValidateCampaignRequest) (*pb.ValidateCampaignResponse, error) {
	s := h.View.Snapshot()
	var split core.Split
	spec, warnings, faults := campaignfile.ParseCampaign(req.GetYaml(), h.window, cellsOf(s), func(spec core.CampaignSpec) (v []rpcstatus.Violation) {
		split, v = preview(spec, s)
		return v
	})
	out := &pb.ValidateCampaignResponse{Warnings: warnings}
	for _, f := range faults {
		out.Faults = append(out.Faults, &pb.FileFault{Path: f.Path, Line: int32(f.Line), Column: int32(f.Column), Rule: f.Rule})
	}
	if len(faults) == 0 {
		out.Spec, out.Warnings = convert.Spec(spec), append(out.Warnings, split.Warnings...)
	}
	return out, nil
}

// preview gives the split, or what is wrong with it, of a file that has no other
// fault: a broken one has nothing to be cut.
func preview(spec core.CampaignSpec, s view.Snapshot) (core.Split, []rpcstatus.Violation) {
	if len(spec.Check()) > 0 || len(cellsOf(s)(spec)) > 0 {
		return core.Split{}, nil
	}
	split, err := spec.Preview(s.CellsByID())
	if v := rpcstatus.Violations(err); len(v) > 0 {
		return core.Split{}, v
	}
	if err != nil {
		return core.Split{}, []rpcstatus.Violation{{Field: "cells", Rule: err.Error()}}
	}
	return split, nil
}

func (h *Campaigns) window(s core.CampaignSpec) []rpcstatus.Violation {
	return s.CheckWindow(h.Clock.Now())
}

// cellsOf refuses cells that are not provisioned.
func cellsOf(s view.Snapshot) func(core.CampaignSpec) []rpcstatus.Violation {
	return func(spec core.CampaignSpec) (v []rpcstatus.Violation) {
		for i, id := range spec.Cells {
			if c, known := s.Cell(id); id != "" && (!known || c.State == core.CellRetired) {
				v = append(v, rpcstatus.Violation{Field: fmt.Sprintf("cells[%d]", i), Rule: fmt.Sprintf("no cell %s is provisioned", id)})
			}
		}
		return v
	}
}

// CreateCampaign stores a draft.
func (h *Campaigns) CreateCampaign(ctx context.Context, req *pb.CreateCampaignRequest) (*pb.CreateCampaignResponse, error) {
	var f fields
	op := f.operation("operation_id", req.GetOperationId())
	spec, warnings, faults := campaignfile.ParseCampaign(req.GetYaml(), h.window, cellsOf(h.View.Snapshot()))
	for _, v := range rpcstatus.Violations(campaignfile.Error(faults)) {
		f.add(v.Field, v.Rule)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	campaign, split, err := h.Intent.CreateCampaign(ctx, caller(ctx), spec, op, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := h.render(campaign)
	out.Warnings = append(warnings, split.Warnings...)
	return &pb.CreateCampaignResponse{Campaign: out, OperationId: op}, nil
}

// GetCampaign answers one campaign.
func (h *Campaigns) GetCampaign(ctx context.Context, req *pb.GetCampaignRequest) (*pb.GetCampaignResponse, error) {
	var f fields
	id := f.campaign(req.GetCampaignId())
	if err := f.err(); err != nil {
		return nil, err
	}
	campaign, known := h.View.Snapshot().Campaign(id)
	if !known {
		return nil, unknownCampaign(id)
	}
	out := h.render(campaign)
	h.blockedBy(ctx, campaign, out)
	return &pb.GetCampaignResponse{Campaign: out}, nil
}

// ListCampaigns answers a page of campaigns.
func (h *Campaigns) ListCampaigns(_ context.Context, req *pb.ListCampaignsRequest) (*pb.ListCampaignsResponse, error) {
	var f fields
	size, after := f.pageSize(req.GetPageSize()), f.after(req.GetPageToken())
	if err := f.err(); err != nil {
		return nil, err
	}
	campaigns, next := page(h.View.Snapshot().Campaigns(), func(c core.Campaign) string { return string(c.Spec.ID) }, after, size)
	out := &pb.ListCampaignsResponse{NextPageToken: next}
	for _, c := range campaigns {
		out.Campaigns = append(out.Campaigns, h.render(c))
	}
	return out, nil
}

// PublishCampaign begins a publish; the answer's operation tells how it goes on.
func (h *Campaigns) PublishCampaign(ctx context.Context, req *pb.PublishCampaignRequest) (*pb.PublishCampaignResponse, error) {
	var f fields
	id, op, version := f.campaign(req.GetCampaignId()), f.operation("operation_id", req.GetOperationId()), f.version(req.GetExpectedVersion())
	if err := f.err(); err != nil {
		return nil, err
	}
	begun, err := h.Intent.PublishCampaign(ctx, caller(ctx), id, op, version, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := &pb.PublishCampaignResponse{Campaign: h.render(begun.Campaign), OperationId: op}
	out.Campaign.Warnings = begun.Split.Warnings
	if begun.Operation.ID != "" {
		out.Operation = convert.Operation(begun.Operation)
	}
	return out, nil
}

func (h *Campaigns) render(c core.Campaign) *pb.Campaign {
	out := &pb.Campaign{
		Spec: convert.Spec(c.Spec), State: pb.CampaignState(c.ReadState(h.Clock.Now())), Version: c.Version, Owner: c.Owner,
		PausedSkus: convert.Texts(c.PausedSKUs), FinalSkus: convert.Texts(c.FinalSKUs), Cancelled: c.Cancelled(), SettledAt: convert.Time(c.SettledAt),
		Lottery: convert.Lottery(c),
	}
	if c.State == core.CampaignPublishing {
		if op, known := h.View.Snapshot().Operation(c.OperationID); known && op.Detail != "" {
			out.BlockedBy = []string{op.Step + ": " + op.Detail}
		}
	}
	return out
}
