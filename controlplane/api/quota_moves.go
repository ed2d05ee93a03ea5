package api

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ReturnUnits asks a cell for units that it has available; its shard decides later.
func (h *Quota) ReturnUnits(ctx context.Context, req *pb.ReturnUnitsRequest) (*pb.ReturnUnitsResponse, error) {
	var f fields
	in := intent.Return{
		AdjustmentID: f.adjustment(req.GetAdjustmentId()), Key: core.BookKey{Campaign: f.campaign(req.GetCampaignId()), SKU: f.sku(req.GetSkuId())},
		Cell: f.cell(req.GetCellId()), Units: f.units("units", req.GetUnits()), ExpectedVersion: f.version(req.GetExpectedVersion()), Reason: f.reason(req.GetReason(), false),
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	moved, err := h.Intent.ReturnUnits(ctx, caller(ctx), in, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := &pb.ReturnUnitsResponse{Book: convert.Book(moved.Book), OperationId: in.AdjustmentID}
	if at := moved.Record.Find(in.AdjustmentID); at >= 0 {
		out.Adjustment = convert.Adjustment(moved.Record.Adjustments[at])
	}
	return out, nil
}

// TransferUnits returns units from one cell and grants them to another.
func (h *Quota) TransferUnits(ctx context.Context, req *pb.TransferUnitsRequest) (*pb.TransferUnitsResponse, error) {
	var f fields
	in := intent.Transfer{
		ID: f.adjustment(req.GetAdjustmentId()), Key: core.BookKey{Campaign: f.campaign(req.GetCampaignId()), SKU: f.sku(req.GetSkuId())},
		From: f.cellIn("from_cell_id", req.GetFromCellId()), To: f.cellIn("to_cell_id", req.GetToCellId()),
		Units: f.units("units", req.GetUnits()), ExpectedVersion: f.version(req.GetExpectedVersion()), Reason: f.reason(req.GetReason(), false),
	}
	if in.From == in.To && in.From != "" {
		f.add("to_cell_id", "must be another cell than from_cell_id")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	op, moved, err := h.Intent.TransferUnits(ctx, caller(ctx), in, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := &pb.TransferUnitsResponse{Book: convert.Book(moved.Book), OperationId: in.ID}
	if op.ID != "" {
		out.Operation = convert.Operation(op)
	}
	return out, nil
}

// cellIn reads a cell id of a field that has another name than cell_id.
func (f *fields) cellIn(field, s string) ids.CellID {
	var own fields
	id := own.cell(s)
	for _, v := range own.violations {
		f.violations = append(f.violations, rpcstatus.Violation{Field: field, Rule: v.Rule})
	}
	return id
}
