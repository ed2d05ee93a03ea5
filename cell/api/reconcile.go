package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

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

// instant is absent for the zero time: it has not been yet.
func instant(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
