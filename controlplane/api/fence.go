package api

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Fences is FenceService.
type Fences struct {
	pb.UnimplementedFenceServiceServer
	Orders *reclaim.Orders
}

// FenceCell takes the right to write from a cell, or previews what that would
// seal.
func (h *Fences) FenceCell(ctx context.Context, req *pb.FenceCellRequest) (*pb.FenceCellResponse, error) {
	var f fields
	in := reclaim.FenceOrder{
		Cell: f.cell(req.GetCellId()), OperationID: f.order(req.GetOperationId(), req.GetValidateOnly()), ExpectedVersion: f.version(req.GetExpectedVersion()),
		Force: req.GetForce(), Reclaim: req.GetReclaim(), TopUp: req.GetTopUp(), Reason: f.reason(req.GetReason(), true),
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	op, err := h.Orders.Fence(ctx, caller(ctx), in, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := &pb.FenceCellResponse{OperationId: req.GetOperationId()}
	if !req.GetValidateOnly() {
		out.Operation = convert.Operation(op)
		return out, nil
	}
	sealed, err := h.Orders.PreviewFence(ctx, in.Cell)
	out.Sealed = skuUnits(sealed)
	return out, err
}

// ReclaimCell books what the proof of a fenced cell names, or previews it. With
// write_off it gives the cell up.
func (h *Fences) ReclaimCell(ctx context.Context, req *pb.ReclaimCellRequest) (*pb.ReclaimCellResponse, error) {
	var f fields
	cell, id := f.cell(req.GetCellId()), f.order(req.GetOperationId(), req.GetValidateOnly())
	reason := f.reason(req.GetReason(), true)
	if req.GetWriteOff() && req.GetTopUp() {
		f.add("top_up", "must not be set with write_off: what is written off is never given to anyone")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	if req.GetWriteOff() {
		return h.writeOff(ctx, cell, id, reason, req)
	}
	out := &pb.ReclaimCellResponse{OperationId: req.GetOperationId()}
	if req.GetValidateOnly() {
		units, err := h.Orders.PreviewReclaim(ctx, cell)
		out.Reclaimed = skuUnits(units)
		return out, err
	}
	op, err := h.Orders.Reclaim(ctx, caller(ctx), cell, id, req.GetTopUp(), reason)
	if err != nil {
		return nil, err
	}
	out.Operation = convert.Operation(op)
	return out, nil
}

func (h *Fences) writeOff(ctx context.Context, cell ids.CellID, id, reason string, req *pb.ReclaimCellRequest) (*pb.ReclaimCellResponse, error) {
	op, err := h.Orders.WriteOff(ctx, caller(ctx), cell, id, reason, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := &pb.ReclaimCellResponse{OperationId: req.GetOperationId()}
	if !req.GetValidateOnly() {
		out.Operation = convert.Operation(op)
		return out, nil
	}
	units, err := h.Orders.PreviewWriteOff(ctx, cell)
	out.WrittenOff = skuUnits(units)
	return out, err
}

// RestoreCell gives a fenced cell's shard the next version.
func (h *Fences) RestoreCell(ctx context.Context, req *pb.RestoreCellRequest) (*pb.RestoreCellResponse, error) {
	var f fields
	cell, id := f.cell(req.GetCellId()), f.order(req.GetOperationId(), req.GetValidateOnly())
	group, reason := f.group(req.GetInstanceGroup()), f.reason(req.GetReason(), true)
	if err := f.err(); err != nil {
		return nil, err
	}
	op, err := h.Orders.Restore(ctx, caller(ctx), cell, id, group, reason, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	out := &pb.RestoreCellResponse{OperationId: req.GetOperationId()}
	if !req.GetValidateOnly() {
		out.Operation = convert.Operation(op)
	}
	return out, nil
}

// order reads the id of an operation; who only validates need not have one.
func (f *fields) order(id string, validateOnly bool) string {
	if validateOnly && id == "" {
		return "validate-only"
	}
	return f.operation("operation_id", id)
}

// group reads an instance group; empty: the cell's own.
func (f *fields) group(s string) string {
	if s != "" && !core.ValidGroup(s) {
		f.add("instance_group", "must be 1 to 64 of A-Z, a-z, 0-9, ., _ and -")
	}
	return s
}

func skuUnits(units []core.SKUUnits) []*pb.SkuUnits {
	out := make([]*pb.SkuUnits, 0, len(units))
	for _, u := range units {
		out = append(out, convert.Units(u))
	}
	return out
}
