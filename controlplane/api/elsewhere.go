package api

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Peers are the other replicas; peers.Peers implements it. Cells' streams end at the
// leader, so leases, faults and reports are known there alone. Another replica asks
// it, as a replica, for a caller whom it has authorised itself; where it cannot it
// answers from its own view and says what it does not know, and whom to ask.
type Peers interface {
	// Self is this replica's address.
	Self() string
	// Others lists the other registered replicas.
	Others() []core.Replica
	// Conn gives the connection to a replica.
	Conn(address string) (grpc.ClientConnInterface, error)
}

const (
	// leaderTime bounds what the leader may take of a call that another replica
	// was asked.
	leaderTime = 5 * time.Second
	// replicaTime bounds the question what a replica itself knows.
	replicaTime = time.Second
)

// asReplica tells whether another replica asks: it wants what is known here, and
// is never sent on.
func asReplica(ctx context.Context) bool {
	p, ok := transport.PrincipalFrom(ctx)
	return ok && p.Role == access.ControlPlane
}

// leads says where the cells' streams end: here (""), or why they do not.
func (h *Cells) leads(s view.Snapshot) (leader, why string) {
	if h == nil || h.Peers == nil {
		return "", ""
	}
	l, led := s.Leader()
	switch {
	case !led:
		return "", "no replica leads now"
	case l.Address == h.Peers.Self():
		return "", ""
	}
	return l.Address, "known to the leader, " + l.Address
}

// fromLeader asks the leader, where that is another replica; false: it was not
// asked, or did not answer.
func fromLeader[T any](ctx context.Context, h *Cells, ask func(context.Context, grpc.ClientConnInterface) (T, error)) (answer T, ok bool) {
	if h == nil {
		return answer, false
	}
	leader, _ := h.leads(h.View.Snapshot())
	if leader == "" || asReplica(ctx) {
		return answer, false
	}
	conn, err := h.Peers.Conn(leader)
	if err != nil {
		return answer, false
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTime)
	defer cancel()
	answer, err = ask(ctx, conn)
	return answer, err == nil
}

// replicaStatus asks one replica what it itself knows.
func replicaStatus(ctx context.Context, peers Peers, r core.Replica) (*pb.ReplicaStatus, map[string]int64) {
	out := &pb.ReplicaStatus{Address: r.Address, ProgramVersion: r.ProgramVersion, ViewAgeMs: -1}
	conn, err := peers.Conn(r.Address)
	if err != nil {
		out.Detail = err.Error()
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, replicaTime)
	defer cancel()
	got, err := pb.NewReportServiceClient(conn).GetStatus(ctx, &pb.GetStatusRequest{ReplicaOnly: true})
	if err != nil {
		out.Detail = fmt.Sprintf("does not answer: %v", err)
		return out, nil
	}
	out.Answers, out.Revision, out.ViewAgeMs = true, got.GetRevision(), got.GetViewAgeMs()
	return out, got.GetEdges()
}
