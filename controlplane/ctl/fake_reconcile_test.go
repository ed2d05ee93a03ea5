package ctl

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ledgers are those of two cells: one has a finding, the other is silent. A run ends when it is asked about twice.
type ledgers struct {
	pb.UnimplementedReconcileServiceServer
	f     *fake
	asked int
}

var difference = &pb.Finding{
	FindingId: "cell-1.fabc", Kind: pb.FindingKind_FINDING_KIND_TAKEN_WITHOUT_EVENT, CampaignId: "demo", SkuId: "phone-x", RequestId: "r-1", EventId: "reserve-cell-1.r1",
	ReservationId: "cell-1.r1", Units: 1, AgeSeconds: 12, State: pb.FindingState_FINDING_STATE_MANUAL_REVIEW, Action: "tombstone", CellId: "cell-1", Owner: "maria", Detail: "its message is lost",
}

func (l *ledgers) ListFindings(_ context.Context, in *pb.ListFindingsRequest) (*pb.ListFindingsResponse, error) {
	out := &pb.ListFindingsResponse{Frozen: []*pb.FrozenSku{{CellId: "cell-1", CampaignId: "demo", SkuId: "phone-x", FindingId: "cell-1.fabc", Findings: 1}}}
	if in.GetState() == pb.FindingState_FINDING_STATE_UNSPECIFIED || in.GetState() == difference.GetState() {
		out.Findings = append(out.Findings, difference)
	}
	if in.GetCellId() != "cell-1" {
		out.Unread = append(out.Unread, &pb.UnreadShard{CellId: "cell-2", Detail: "connection refused"})
	}
	return out, nil
}

func (l *ledgers) GetFinding(_ context.Context, in *pb.GetFindingRequest) (*pb.GetFindingResponse, error) {
	if in.GetFindingId() != difference.GetFindingId() {
		return nil, fmt.Errorf("%w: no such finding", rpcstatus.ErrNotFound)
	}
	return &pb.GetFindingResponse{Finding: difference, Repairs: []*pb.FindingRepair{{Action: "republish", Outcome: "FAILED", Actor: "cell", Detail: "no outcome yet", At: timestamppb.New(timestamppb.Now().AsTime())}}}, nil
}

func (l *ledgers) RunReconcile(_ context.Context, in *pb.RunReconcileRequest) (*pb.RunReconcileResponse, error) {
	l.f.note(in)
	l.asked++
	run := &pb.ReconcileRun{CellId: "cell-1", Requests: 1000, Found: 1}
	if l.asked > 1 {
		run.StartedAt, run.EndedAt = timestamppb.Now(), timestamppb.Now()
	}
	return &pb.RunReconcileResponse{Runs: []*pb.ReconcileRun{run}, Done: l.asked > 1, OperationId: in.GetOperationId()}, nil
}

func (l *ledgers) RepairFinding(_ context.Context, in *pb.RepairFindingRequest) (*pb.RepairFindingResponse, error) {
	l.f.note(in)
	out := &pb.RepairFindingResponse{Finding: difference, OperationId: in.GetOperationId()}
	switch {
	case in.GetValidateOnly():
		out.Detail = "it would be recorded"
	case in.GetAction() == pb.RepairAction_REPAIR_ACTION_REVERSE:
		out.Operation = &pb.Operation{OperationId: in.GetOperationId(), State: pb.OperationState_OPERATION_STATE_PENDING}
	default:
		out.Outcome, out.Detail = "DONE", "owner "+in.GetOwner()
	}
	return out, nil
}
