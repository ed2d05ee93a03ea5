package api

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/reconcile"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Run implements CellReconcileService: the wish is a row, which whoever compares takes up.
func (s *Server) Run(ctx context.Context, in *pb.CellReconcileServiceRunRequest) (*pb.CellReconcileServiceRunResponse, error) {
	var bad violations
	want := shard.ReconcileRun{ID: in.GetRunId(), Actor: in.GetActor()}
	if _, err := ids.ParseOperationID("run_id", want.ID); err != nil {
		bad.add("run_id", err.Error())
	}
	if in.GetCampaignId() != "" {
		want.Campaign = parse(&bad, ids.ParseCampaignID, in.GetCampaignId())
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	run, err := s.Runs.AskRun(ctx, want, in.GetReason())
	if err != nil {
		return nil, translate(err)
	}
	return &pb.CellReconcileServiceRunResponse{Run: &pb.ReconcileRun{
		CellId: string(s.set.Cell), StartedAt: instant(run.StartedAt), EndedAt: instant(run.EndedAt), Requests: run.Requests, Found: int32(run.Found), Detail: run.Detail,
	}}, nil
}

// actions are the shard's words of the wire's.
var actions = map[pb.RepairAction]shard.RepairAction{
	pb.RepairAction_REPAIR_ACTION_UNSPECIFIED: "", pb.RepairAction_REPAIR_ACTION_REPUBLISH: shard.ActRepublish, pb.RepairAction_REPAIR_ACTION_RETURN: shard.ActReturn,
	pb.RepairAction_REPAIR_ACTION_TOMBSTONE: shard.ActTombstone, pb.RepairAction_REPAIR_ACTION_REVERSE: shard.ActReverse, pb.RepairAction_REPAIR_ACTION_RELEASE: shard.ActRelease,
}

// Repair implements CellReconcileService.
func (s *Server) Repair(ctx context.Context, in *pb.CellReconcileServiceRepairRequest) (*pb.CellReconcileServiceRepairResponse, error) {
	var bad violations
	ask := reconcile.Ask{Finding: in.GetFindingId(), Owner: in.GetOwner(), CheckOnly: in.GetValidateOnly(), RepairNote: shard.RepairNote{
		Actor: in.GetActor(), Reason: in.GetReason(), Incident: in.GetIncident(), Approval: in.GetApprovalId(), Approver: in.GetApprover(),
	}}
	var known bool
	if ask.Action, known = actions[in.GetAction()]; !known || ask.Action == "" && ask.Owner == "" {
		bad.add("action", "must be REPUBLISH, RETURN, TOMBSTONE, REVERSE or RELEASE, or owner must be set")
	}
	for _, f := range []struct{ name, text string }{{"finding_id", ask.Finding}, {"actor", ask.Actor}, {"reason", ask.Reason}} {
		if strings.TrimSpace(f.text) == "" || len(f.text) > maxReason || !utf8.ValidString(f.text) {
			bad.add(f.name, "must be 1 to 512 bytes of text")
		}
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	out, err := s.Ledgers.Repair(ctx, ask)
	switch {
	case errors.Is(err, shard.ErrNotFound):
		return nil, errNoFinding
	case err != nil:
		return nil, translate(err)
	}
	return &pb.CellReconcileServiceRepairResponse{Outcome: out.Outcome, Detail: out.Detail}, nil
}

// instant is absent for the zero time: it has not been yet.
func instant(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
