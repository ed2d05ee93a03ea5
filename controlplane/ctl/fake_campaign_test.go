package ctl

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/controlplane/campaignfile"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// The life of the fake's campaign: each call answers what it was asked for, over is refused.

func (f *fake) UpdateCampaign(_ context.Context, in *pb.UpdateCampaignRequest) (*pb.UpdateCampaignResponse, error) {
	f.note(in)
	spec, _, faults := campaignfile.ParseCampaign(in.GetYaml())
	if len(faults) > 0 {
		return nil, campaignfile.Error(faults)
	}
	if len(spec.Cells) == 1 {
		return nil, rpcstatus.With(fmt.Errorf("%w: the campaign keeps its rules", rpcstatus.ErrFailedPrecondition), nil, []rpcstatus.Violation{{Field: "cells", Rule: "must stay as it was published"}}, 0)
	}
	return &pb.UpdateCampaignResponse{OperationId: in.GetOperationId(), Campaign: campaign(string(spec.ID)), Changed: []string{"close_at", "display"}}, nil
}

func (f *fake) PauseCampaign(_ context.Context, in *pb.PauseCampaignRequest) (*pb.PauseCampaignResponse, error) {
	f.note(in)
	c := campaign(in.GetCampaignId())
	c.State = pb.CampaignState_CAMPAIGN_STATE_PAUSED
	if sku := in.GetSkuId(); sku != "" {
		c.State, c.PausedSkus = pb.CampaignState_CAMPAIGN_STATE_OPEN, []string{sku}
	}
	return &pb.PauseCampaignResponse{OperationId: in.GetOperationId(), Campaign: c}, nil
}

func (f *fake) ResumeCampaign(_ context.Context, in *pb.ResumeCampaignRequest) (*pb.ResumeCampaignResponse, error) {
	f.note(in)
	if in.GetCampaignId() == "over" {
		return nil, fmt.Errorf("%w: over is CLOSED", rpcstatus.ErrFailedPrecondition)
	}
	return &pb.ResumeCampaignResponse{OperationId: in.GetOperationId(), Campaign: campaign(in.GetCampaignId())}, nil
}

func (f *fake) AddCell(_ context.Context, in *pb.AddCellRequest) (*pb.AddCellResponse, error) {
	f.note(in)
	c := campaign(in.GetCampaignId())
	c.Spec.Cells = []string{"cell-1", in.GetCellId()}
	return &pb.AddCellResponse{OperationId: in.GetOperationId(), Campaign: c}, nil
}

func (f *fake) DeleteCampaign(_ context.Context, in *pb.DeleteCampaignRequest) (*pb.DeleteCampaignResponse, error) {
	f.note(in)
	if in.GetCampaignId() == "alive" {
		return nil, fmt.Errorf("%w: alive is CLOSED; its shards hold 3 reserved and 2 paid units", rpcstatus.ErrFailedPrecondition)
	}
	if in.GetValidateOnly() {
		return &pb.DeleteCampaignResponse{OperationId: in.GetOperationId()}, nil
	}
	return &pb.DeleteCampaignResponse{OperationId: in.GetOperationId(), Operation: f.run(in.GetOperationId(), "delete-campaign", in.GetCampaignId())}, nil
}

func (f *fake) PreflightCampaign(_ context.Context, in *pb.PreflightCampaignRequest) (*pb.PreflightCampaignResponse, error) {
	out := &pb.PreflightCampaignResponse{Ready: true, Version: 3, Rows: []*pb.PreflightRow{
		{Kind: "cell", CellId: "cell-1", InstanceId: "i-1", Ready: true, Version: 3, Library: "cellquota_v2"}, {Kind: "edge", InstanceId: "edge-1", Ready: true, Version: 3},
	}}
	if in.GetCampaignId() == "late" {
		out.Ready, out.Rows[1].Ready, out.Rows[1].Version, out.Rows[1].Faults = false, false, 0, []string{"acknowledged revision 4"}
	}
	return out, nil
}

func (f *fake) CancelCampaign(_ context.Context, in *pb.CancelCampaignRequest) (*pb.CancelCampaignResponse, error) {
	f.note(in)
	if in.GetValidateOnly() {
		return &pb.CancelCampaignResponse{OperationId: in.GetOperationId(), UnpaidOrders: 3, PaidOrders: 12}, nil
	}
	return &pb.CancelCampaignResponse{OperationId: in.GetOperationId(), Operation: f.run(in.GetOperationId(), "cancel-campaign", in.GetCampaignId())}, nil
}

func (f *fake) GetUndersell(_ context.Context, in *pb.GetUndersellRequest) (*pb.GetUndersellResponse, error) {
	f.note(in)
	left, out := pb.UndersellCause_UNDERSELL_CAUSE_LEFT_IN_CELL, pb.UndersellCause_UNDERSELL_CAUSE_UNALLOCATED
	return &pb.GetUndersellResponse{
		Skus: []*pb.SkuUndersell{{
			SkuId: "phone-x", SaleLimit: 100, Confirmed: 60, Causes: []*pb.CauseUnits{{Cause: out, Units: 10}, {Cause: left, Units: 30}},
			Cells: []*pb.CauseUnits{{Cause: out, Units: 10}, {Cause: left, Units: 20, CellId: "cell-1"}, {Cause: left, Units: 10, CellId: "cell-2"}},
		}},
		Unreachable: map[string]string{},
	}, nil
}

func (f *fake) GetCampaignReport(_ context.Context, in *pb.GetCampaignReportRequest) (*pb.GetCampaignReportResponse, error) {
	f.note(in)
	counts := &pb.ReportCounts{
		Requests:  []*pb.RequestCount{{Outcome: "REJECTED", Reason: "SOLD_OUT", Requests: 7, Units: 7}},
		Orders:    []*pb.OrderCount{{State: pb.OrderState_ORDER_STATE_PAID, Orders: 60, Units: 60, Amount: &pb.Money{Amount: "299940.0000", Currency: "CNY"}}},
		Refunds:   []*pb.RefundCount{{State: "REFUNDED", Cause: "REQUESTED", Refunds: 2, Restocked: 1, Amount: &pb.Money{Amount: "9998.0000", Currency: "CNY"}}},
		Findings:  []*pb.FindingCount{{Kind: "OVERDUE", State: "REPAIRED", Action: "release", Findings: 1, Units: 1}},
		Reversals: 1,
	}
	out := &pb.GetCampaignReportResponse{
		CampaignId: in.GetCampaignId(), State: pb.CampaignState_CAMPAIGN_STATE_SETTLED, TakenAt: timestamppb.New(eleventh),
		Archived: &pb.ArchivedObject{Name: "campaigns/c/report-1.json", Sha256: "ab", Size: 3},
		Check:    &pb.Check{Invariant: "I10", Verdict: pb.Verdict_VERDICT_OK, Detail: "sums"},
		Skus: []*pb.SkuReport{{
			SkuId: "phone-x", SaleLimit: 100, Confirmed: 60, Counts: counts,
			Cells: []*pb.CauseUnits{{Cause: pb.UndersellCause_UNDERSELL_CAUSE_UNALLOCATED, Units: 10}, {Cause: pb.UndersellCause_UNDERSELL_CAUSE_LEFT_IN_CELL, Units: 30, CellId: "cell-1"}},
		}},
		Cells: []*pb.CellReport{{CellId: "cell-1", SkuId: "phone-x", Allocated: 90, Granted: 90, Available: 30, Confirmed: 60, Counts: counts}},
	}
	switch in.GetCampaignId() {
	case "off":
		out.Check.Verdict = pb.Verdict_VERDICT_BROKEN
		out.Breaches = []*pb.Breach{{Invariant: "I10", SkuId: "phone-x", CellId: "cell-1", Detail: "59 units in PAID orders"}}
	case "half":
		out.Archived, out.Check.Verdict = nil, pb.Verdict_VERDICT_UNCHECKED
		out.Unchecked = []*pb.Unchecked{{Invariant: "I10", What: "cell cell-2", Why: "it does not answer"}}
	}
	return out, nil
}
