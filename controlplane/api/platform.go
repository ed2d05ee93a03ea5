package api

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// GetStatus answers the platform on one page: what this replica knows, what only the
// leader knows (asked, or named as unknown), and which replicas answer.
func (h *Reports) GetStatus(ctx context.Context, req *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	s := h.cells.View.Snapshot()
	if req.GetReplicaOnly() {
		return h.own(s), nil
	}
	// 1. What this replica sees.
	out := h.local(ctx, s)
	if req.GetGates() {
		out.Gates = h.gates(ctx, s)
	}
	if asReplica(ctx) || h.cells.Peers == nil {
		return out, nil
	}
	// 2. What the leader alone knows.
	if theirs, ok := fromLeader(ctx, h.cells, func(ctx context.Context, leader grpc.ClientConnInterface) (*pb.GetStatusResponse, error) {
		return pb.NewReportServiceClient(leader).GetStatus(ctx, &pb.GetStatusRequest{})
	}); ok {
		out.Cells, out.FrozenUnits, out.UncomparedCells, out.Restored = theirs.GetCells(), theirs.GetFrozenUnits(), theirs.GetUncomparedCells(), theirs.GetRestored()
	}
	// 3. Who answers, and which edges follow them.
	h.everyReplica(ctx, s, out)
	return out, nil
}

// own is what this replica itself knows.
func (h *Reports) own(s view.Snapshot) *pb.GetStatusResponse {
	out := &pb.GetStatusResponse{Revision: s.Revision(), ViewAgeMs: s.Age().Milliseconds(), Edges: h.routes.Edges()}
	if leader, led := s.Leader(); led {
		out.Leader = leader.Address
	}
	return out
}

// everyReplica lists the replicas, this one first, with the edges of all.
func (h *Reports) everyReplica(ctx context.Context, s view.Snapshot, out *pb.GetStatusResponse) {
	leader, _ := s.Leader()
	out.Replicas = []*pb.ReplicaStatus{{
		Address: h.cells.Peers.Self(), Answers: true, Revision: s.Revision(), ViewAgeMs: s.Age().Milliseconds(), ProgramVersion: telemetry.Version(),
	}}
	answers, edges := everyOther(ctx, h.cells.Peers)
	out.Replicas = append(out.Replicas, answers...)
	for _, r := range out.Replicas {
		r.Leader = r.Address == leader.Address
	}
	for id, acked := range edges {
		out.Edges[id] = max(out.Edges[id], acked)
	}
}

// everyOther asks the other replicas at once what they know. Edges are those of the
// replicas that answered.
func everyOther(ctx context.Context, peers Peers) ([]*pb.ReplicaStatus, map[string]int64) {
	others := peers.Others()
	answers, edges := make([]*pb.ReplicaStatus, len(others)), make([]map[string]int64, len(others))
	var all sync.WaitGroup
	for i, r := range others {
		all.Go(func() { answers[i], edges[i] = replicaStatus(ctx, peers, r) })
	}
	all.Wait()
	merged := map[string]int64{}
	for _, some := range edges {
		for id, acked := range some {
			merged[id] = max(merged[id], acked)
		}
	}
	return answers, merged
}
