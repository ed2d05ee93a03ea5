package api

import (
	"context"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// changingCell is what every mutation of a cell's record carries on the wire beside
// the cell.
type changingCell interface {
	GetOperationId() string
	GetValidateOnly() bool
	GetExpectedVersion() int64
	GetReason() string
}

// cellChange reads a mutation of a cell. A region-operator may change the cells
// that are in its regions when the change is made.
func (f *fields) cellChange(ctx context.Context, cell ids.CellID, in changingCell, reason bool) intent.CellChange {
	return intent.CellChange{
		Cell: cell, OperationID: f.operation("operation_id", in.GetOperationId()), ExpectedVersion: f.version(in.GetExpectedVersion()),
		ValidateOnly: in.GetValidateOnly(), Reason: f.reason(in.GetReason(), reason),
		May: func(c core.Cell) error { return access.Region(ctx, c.Spec.Region) },
	}
}

// UpdateCell replaces a cell's spec. Who moves it to another region operates both.
func (h *Cells) UpdateCell(ctx context.Context, req *pb.UpdateCellRequest) (*pb.UpdateCellResponse, error) {
	var f fields
	spec := convert.FromCellSpec(req.GetSpec())
	change := f.cellChange(ctx, spec.ID, req, false)
	for _, v := range h.Intent.CellFaults(spec) {
		f.add("spec."+v.Field, v.Rule)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	if err := access.Region(ctx, spec.Region); err != nil {
		return nil, err
	}
	may := change.May
	change.May = func(c core.Cell) error {
		if err := may(c); err != nil {
			return err
		}
		return h.mayName(ctx, spec, c.Spec, false)
	}
	cell, changed, err := h.Intent.UpdateCell(ctx, caller(ctx), change, spec)
	if err != nil {
		return nil, err
	}
	return &pb.UpdateCellResponse{Cell: h.render(ctx, h.View.Snapshot(), cell, false), OperationId: change.OperationID, Changed: changed}, nil
}

// PauseCell stops a cell's sales.
func (h *Cells) PauseCell(ctx context.Context, req *pb.PauseCellRequest) (*pb.PauseCellResponse, error) {
	var f fields
	change := f.cellChange(ctx, f.cell(req.GetCellId()), req, true)
	if err := f.err(); err != nil {
		return nil, err
	}
	cell, err := h.Intent.PauseCell(ctx, caller(ctx), change)
	if err != nil {
		return nil, err
	}
	return &pb.PauseCellResponse{Cell: h.render(ctx, h.View.Snapshot(), cell, false), OperationId: change.OperationID}, nil
}

// ResumeCell lets a paused cell sell again.
func (h *Cells) ResumeCell(ctx context.Context, req *pb.ResumeCellRequest) (*pb.ResumeCellResponse, error) {
	var f fields
	change := f.cellChange(ctx, f.cell(req.GetCellId()), req, false)
	if err := f.err(); err != nil {
		return nil, err
	}
	cell, err := h.Intent.ResumeCell(ctx, caller(ctx), change)
	if err != nil {
		return nil, err
	}
	return &pb.ResumeCellResponse{Cell: h.render(ctx, h.View.Snapshot(), cell, false), OperationId: change.OperationID}, nil
}
