package ctl

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func (f *fake) UpdateCell(_ context.Context, in *pb.UpdateCellRequest) (*pb.UpdateCellResponse, error) {
	f.note(in)
	c := cell(in.GetSpec().GetCellId(), pb.CellState_CELL_STATE_ACTIVE)
	c.Spec = in.GetSpec()
	return &pb.UpdateCellResponse{OperationId: in.GetOperationId(), Cell: c, Changed: []string{"weight", "redis.addrs"}}, nil
}

func (f *fake) PauseCell(_ context.Context, in *pb.PauseCellRequest) (*pb.PauseCellResponse, error) {
	f.note(in)
	c := cell(in.GetCellId(), pb.CellState_CELL_STATE_ACTIVE)
	c.Paused, c.PauseReason = true, in.GetReason()
	return &pb.PauseCellResponse{OperationId: in.GetOperationId(), Cell: c}, nil
}

func (f *fake) ResumeCell(_ context.Context, in *pb.ResumeCellRequest) (*pb.ResumeCellResponse, error) {
	f.note(in)
	return &pb.ResumeCellResponse{OperationId: in.GetOperationId(), Cell: cell(in.GetCellId(), pb.CellState_CELL_STATE_ACTIVE)}, nil
}

// DrainCell gives 1,200 units back; cell-3 never ends.
func (f *fake) DrainCell(_ context.Context, in *pb.DrainCellRequest) (*pb.DrainCellResponse, error) {
	f.note(in)
	out := &pb.DrainCellResponse{OperationId: in.GetOperationId(), Cell: cell(in.GetCellId(), pb.CellState_CELL_STATE_DRAINING)}
	switch {
	case in.GetAbort():
		out.Cell.State = pb.CellState_CELL_STATE_ACTIVE
	case in.GetValidateOnly():
		out.Returned = []*pb.SkuUnits{{CampaignId: "demo", SkuId: "phone-x", Units: 1200}}
		out.Blockers = []string{"it is home to 1024 buckets of campaign demo"}
	default:
		out.Operation = f.run(in.GetOperationId(), "drain-cell", in.GetCellId())
	}
	return out, nil
}

// RetireCell refuses cell-1, which still sells.
func (f *fake) RetireCell(_ context.Context, in *pb.RetireCellRequest) (*pb.RetireCellResponse, error) {
	f.note(in)
	if in.GetCellId() == "cell-1" {
		return nil, fmt.Errorf("%w: drain or fence the cell first", rpcstatus.ErrFailedPrecondition)
	}
	if in.GetValidateOnly() {
		return &pb.RetireCellResponse{OperationId: in.GetOperationId()}, nil
	}
	return &pb.RetireCellResponse{OperationId: in.GetOperationId(), Operation: f.run(in.GetOperationId(), "retire-cell", in.GetCellId())}, nil
}

// RebuildMirror rebuilds; cell-4's fails.
func (f *fake) RebuildMirror(_ context.Context, in *pb.RebuildMirrorRequest) (*pb.RebuildMirrorResponse, error) {
	f.note(in)
	out := &pb.RebuildMirrorResponse{OperationId: in.GetOperationId()}
	if !in.GetValidateOnly() {
		out.Operation = f.run(in.GetOperationId(), "rebuild-mirror", in.GetCellId())
	}
	return out, nil
}

// CheckCell finds cell-1 well and everything else faulty.
func (f *fake) CheckCell(_ context.Context, in *pb.CheckCellRequest) (*pb.CheckCellResponse, error) {
	f.note(in)
	out := &pb.CheckCellResponse{Ok: true, Findings: []*pb.CellFinding{{Part: "redis", Subject: "redis 127.0.0.1:6379 role", Ok: true, Seen: "master"}}}
	if in.GetCellId() != "cell-1" {
		out.Ok = false
		out.Findings = append(out.Findings, &pb.CellFinding{Part: "redis", Subject: "redis 127.0.0.1:6379 maxmemory-policy", Seen: "allkeys-lru", Rule: "must be noeviction"})
	}
	return out, nil
}
