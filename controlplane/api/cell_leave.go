package api

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Drains previews a drain. drain.Driver implements it.
type Drains interface {
	// Preview gives the units that would be asked back and what else is in the way.
	Preview(ctx context.Context, cell ids.CellID) ([]core.SKUUnits, []string, error)
}

// leave reads an order to take a cell out of service. Whoever operates the cell's
// region may.
func (f *fields) leave(ctx context.Context, cell string, in changingCell) reclaim.LeaveOrder {
	c := f.cellChange(ctx, f.cell(cell), in, true)
	return reclaim.LeaveOrder{Cell: c.Cell, OperationID: c.OperationID, ExpectedVersion: c.ExpectedVersion, Reason: c.Reason, May: c.May}
}

// DrainCell lets a cell sell nothing new and give back what it has, previews that, or
// ends a drain.
func (h *Cells) DrainCell(ctx context.Context, req *pb.DrainCellRequest) (*pb.DrainCellResponse, error) {
	var f fields
	in := f.leave(ctx, req.GetCellId(), req)
	if err := f.err(); err != nil {
		return nil, err
	}
	out := &pb.DrainCellResponse{OperationId: in.OperationID}
	if req.GetAbort() {
		return out, h.abortDrain(ctx, in, req.GetValidateOnly(), out)
	}
	op, err := h.Orders.Drain(ctx, caller(ctx), in, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	s := h.View.Snapshot()
	cell, _ := s.Cell(in.Cell)
	out.Cell = h.render(ctx, s, cell, false)
	if !req.GetValidateOnly() {
		out.Operation = convert.Operation(op)
		return out, nil
	}
	units, blockers, err := h.Drains.Preview(ctx, in.Cell)
	out.Returned, out.Blockers = skuUnits(units), blockers
	return out, err
}

func (h *Cells) abortDrain(ctx context.Context, in reclaim.LeaveOrder, validateOnly bool, out *pb.DrainCellResponse) error {
	op, cell, err := h.Orders.AbortDrain(ctx, caller(ctx), in, validateOnly)
	if err != nil {
		return err
	}
	if out.Cell = h.render(ctx, h.View.Snapshot(), cell, false); op.ID != "" {
		out.Operation = convert.Operation(op)
	}
	return nil
}

// RetireCell takes an empty cell out for good.
func (h *Cells) RetireCell(ctx context.Context, req *pb.RetireCellRequest) (*pb.RetireCellResponse, error) {
	var f fields
	in := f.leave(ctx, req.GetCellId(), req)
	if err := f.err(); err != nil {
		return nil, err
	}
	op, err := h.Orders.Retire(ctx, caller(ctx), in, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := &pb.RetireCellResponse{OperationId: in.OperationID}
	if !req.GetValidateOnly() {
		out.Operation = convert.Operation(op)
	}
	return out, nil
}

// RebuildMirror has a cell make a campaign's mirrors anew.
func (h *Cells) RebuildMirror(ctx context.Context, req *pb.RebuildMirrorRequest) (*pb.RebuildMirrorResponse, error) {
	var f fields
	change := f.cellChange(ctx, f.cell(req.GetCellId()), req, true)
	campaign := f.campaign(req.GetCampaignId())
	var sku ids.SKUID
	if req.GetSkuId() != "" {
		sku = f.sku(req.GetSkuId())
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	op, err := h.Intent.RebuildMirror(ctx, caller(ctx), change, campaign, sku)
	if err != nil {
		return nil, err
	}
	out := &pb.RebuildMirrorResponse{OperationId: change.OperationID}
	if !req.GetValidateOnly() {
		out.Operation = convert.Operation(op)
	}
	return out, nil
}
