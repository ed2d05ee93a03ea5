package api

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/campaignfile"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// changing is what every mutation of a campaign carries on the wire.
type changing interface {
	GetCampaignId() string
	GetOperationId() string
	GetValidateOnly() bool
	GetExpectedVersion() int64
	GetReason() string
}

func (f *fields) change(in changing, reason bool) intent.Change {
	return intent.Change{
		Campaign: f.campaign(in.GetCampaignId()), OperationID: f.operation("operation_id", in.GetOperationId()), ExpectedVersion: f.version(in.GetExpectedVersion()),
		ValidateOnly: in.GetValidateOnly(), Reason: f.reason(in.GetReason(), reason),
	}
}

// skuOrAll reads a SKU's id; empty is the whole campaign.
func (f *fields) skuOrAll(s string) ids.SKUID {
	if s == "" {
		return ""
	}
	return f.sku(s)
}

// CloseCampaign ends the sale now.
func (h *Campaigns) CloseCampaign(ctx context.Context, req *pb.CloseCampaignRequest) (*pb.CloseCampaignResponse, error) {
	var f fields
	change := f.change(req, true)
	if err := f.err(); err != nil {
		return nil, err
	}
	campaign, err := h.Intent.CloseCampaign(ctx, caller(ctx), change)
	if err != nil {
		return nil, err
	}
	return &pb.CloseCampaignResponse{Campaign: h.render(campaign), OperationId: change.OperationID}, nil
}

// PauseCampaign stops the sale of a campaign or of one SKU.
func (h *Campaigns) PauseCampaign(ctx context.Context, req *pb.PauseCampaignRequest) (*pb.PauseCampaignResponse, error) {
	var f fields
	change, sku := f.change(req, true), f.skuOrAll(req.GetSkuId())
	if err := f.err(); err != nil {
		return nil, err
	}
	campaign, err := h.Intent.PauseCampaign(ctx, caller(ctx), change, sku)
	if err != nil {
		return nil, err
	}
	return &pb.PauseCampaignResponse{Campaign: h.render(campaign), OperationId: change.OperationID}, nil
}

// ResumeCampaign undoes PauseCampaign.
func (h *Campaigns) ResumeCampaign(ctx context.Context, req *pb.ResumeCampaignRequest) (*pb.ResumeCampaignResponse, error) {
	var f fields
	change, sku := f.change(req, false), f.skuOrAll(req.GetSkuId())
	if err := f.err(); err != nil {
		return nil, err
	}
	campaign, err := h.Intent.ResumeCampaign(ctx, caller(ctx), change, sku)
	if err != nil {
		return nil, err
	}
	return &pb.ResumeCampaignResponse{Campaign: h.render(campaign), OperationId: change.OperationID}, nil
}

// AddCell lets one more cell take part.
func (h *Campaigns) AddCell(ctx context.Context, req *pb.AddCellRequest) (*pb.AddCellResponse, error) {
	var f fields
	change, cell := f.change(req, false), f.cell(req.GetCellId())
	if err := f.err(); err != nil {
		return nil, err
	}
	campaign, err := h.Intent.AddCell(ctx, caller(ctx), change, cell)
	if err != nil {
		return nil, err
	}
	return &pb.AddCellResponse{Campaign: h.render(campaign), OperationId: change.OperationID}, nil
}

// UpdateCampaign replaces the file. Whether its window may lie in the past depends
// on the campaign's state, so that is not asked of the file here.
func (h *Campaigns) UpdateCampaign(ctx context.Context, req *pb.UpdateCampaignRequest) (*pb.UpdateCampaignResponse, error) {
	var f fields
	change := intent.Change{
		OperationID: f.operation("operation_id", req.GetOperationId()), ExpectedVersion: f.version(req.GetExpectedVersion()),
		ValidateOnly: req.GetValidateOnly(), Reason: f.reason(req.GetReason(), false),
	}
	spec, warnings, faults := campaignfile.ParseCampaign(req.GetYaml(), cellsOf(h.View.Snapshot()))
	for _, v := range rpcstatus.Violations(campaignfile.Error(faults)) {
		f.add(v.Field, v.Rule)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	change.Campaign = spec.ID
	amended, err := h.Intent.UpdateCampaign(ctx, caller(ctx), change, spec, req.GetYaml())
	if err != nil {
		return nil, err
	}
	out := h.render(amended.Campaign)
	out.Warnings = append(warnings, amended.Split.Warnings...)
	return &pb.UpdateCampaignResponse{Campaign: out, OperationId: change.OperationID, Changed: amended.Changed}, nil
}

// DeleteCampaign removes a draft, or a settled campaign whose archive stands.
func (h *Campaigns) DeleteCampaign(ctx context.Context, req *pb.DeleteCampaignRequest) (*pb.DeleteCampaignResponse, error) {
	var f fields
	change := f.change(req, true)
	if err := f.err(); err != nil {
		return nil, err
	}
	op, err := h.Intent.DeleteCampaign(ctx, caller(ctx), change)
	if err != nil {
		return nil, err
	}
	out := &pb.DeleteCampaignResponse{OperationId: change.OperationID}
	if op.ID != "" {
		out.Operation = convert.Operation(op)
	}
	return out, nil
}
