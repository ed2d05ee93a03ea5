package api_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func withTimeout(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

type routesStream = grpc.BidiStreamingClient[pb.WatchRoutesRequest, pb.WatchRoutesResponse]

func (r *rig) follow(edge, claims string) routesStream {
	r.t.Helper()
	stream, err := r.as("edge/" + edge).Routing.WatchRoutes(testkit.Deadline(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := stream.Send(&pb.WatchRoutesRequest{EdgeId: claims}); err != nil {
		r.t.Fatal(err)
	}
	return stream
}

func recv(t *testing.T, stream routesStream) *pb.WatchRoutesResponse {
	t.Helper()
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWatchRoutes(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	ctx := testkit.Deadline(t)
	manager := r.as(access.CampaignManager)
	if _, err := manager.Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: campaignYAML("c", 2), OperationId: "create"}); err != nil {
		t.Fatal(err)
	}
	stream := r.follow("e1", "e1")
	first := recv(t, stream)
	if !first.GetFull() || len(first.GetCells()) != 2 || len(first.GetCampaigns()) != 0 || first.GetRevision() == 0 {
		t.Fatalf("first message %v: a draft is nobody's business", first)
	}
	r.book("c")
	published := recv(t, stream)
	c := published.GetCampaigns()
	if published.GetFull() || len(c) != 1 || c[0].GetState() != pb.CampaignState_CAMPAIGN_STATE_PUBLISHED || c[0].GetVersion() != 3 || len(c[0].GetDomains()) != 1 || len(published.GetCells()) != 0 {
		t.Fatalf("after the publish %v", published)
	}
	// The edge is behind until it acknowledges the revision.
	if behind := r.routes.Behind(t.Context(), "c", 3); !slices.Equal(behind, []string{"edge e1"}) {
		t.Errorf("behind %v", behind)
	}
	if err := stream.Send(&pb.WatchRoutesRequest{EdgeId: "e1", AckedRevision: published.GetRevision()}); err != nil {
		t.Fatal(err)
	}
	<-r.acks
	if behind := r.routes.Behind(t.Context(), "c", 3); len(behind) != 0 {
		t.Errorf("behind after the acknowledgement: %v", behind)
	}
	if behind := r.routes.Behind(t.Context(), "c", 4); len(behind) != 1 {
		t.Errorf("behind a version that does not exist yet: %v", behind)
	}
	// A process of a cell comes to life: its address follows, and the cell is ACTIVE.
	leader := r.leader()
	lease, err := r.store.GrantLease(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	in := core.Instance{Cell: "cell-1", ID: "p1", Group: "a", Address: "127.0.0.1:9", Roles: []string{"admission"}, Lease: lease}
	if _, err := r.store.Register(ctx, leader, in, func(core.Cell) error { return nil }); err != nil {
		t.Fatal(err)
	}
	live := recv(t, stream)
	if cells := live.GetCells(); len(cells) != 1 || cells[0].GetState() != pb.CellState_CELL_STATE_ACTIVE || !slices.Equal(cells[0].GetAddresses(), []string{"127.0.0.1:9"}) || len(live.GetCampaigns()) != 0 {
		t.Fatalf("after the registration %v", live)
	}
	if err := r.store.RevokeLease(ctx, lease); err != nil {
		t.Fatal(err)
	}
	if gone := recv(t, stream).GetCells(); len(gone) != 1 || len(gone[0].GetAddresses()) != 0 || gone[0].GetState() != pb.CellState_CELL_STATE_SUSPECT {
		t.Fatalf("after the lease %v", gone)
	}
	// Closed: the edge hears of it. Another stream begins with everything.
	if _, err := manager.Campaigns.CloseCampaign(ctx, &pb.CloseCampaignRequest{CampaignId: "c", OperationId: "close", Reason: "over"}); err != nil {
		t.Fatal(err)
	}
	if closed := recv(t, stream).GetCampaigns(); len(closed) != 1 || closed[0].GetState() != pb.CampaignState_CAMPAIGN_STATE_CLOSED {
		t.Fatalf("after the close %v", closed)
	}
	second := recv(t, r.follow("e2", "e2"))
	if !second.GetFull() || len(second.GetCampaigns()) != 1 || len(second.GetCells()) != 2 {
		t.Fatalf("a second edge gets %v", second)
	}
	if edges := r.routes.Edges(); len(edges) != 2 {
		t.Errorf("edges %v", edges)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if edges := r.routes.Edges(); len(edges) != 1 {
			return fmt.Errorf("edges %v", edges)
		}
		return nil
	})
}

func (r *rig) leader() core.Leader {
	r.t.Helper()
	ctx := testkit.Deadline(r.t)
	lease, err := r.store.GrantLease(ctx, time.Minute)
	if err != nil {
		r.t.Fatal(err)
	}
	leader, err := r.store.TakeLead(ctx, lease, "here", "one")
	if err != nil {
		r.t.Fatal(err)
	}
	return leader
}

// One edge cannot acknowledge for another, an operator is no edge.
func TestWhoFollowsRoutes(t *testing.T) {
	r := newRig(t)
	if _, err := r.follow("e1", "e2").Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("e1 as e2: %v", err)
	}
	if _, err := r.follow("e1", "").Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no id: %v", err)
	}
	stream, err := r.as(access.SRE).Routing.WatchRoutes(testkit.Deadline(t))
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("an operator: %v", err)
	}
}

func TestLookupHome(t *testing.T) {
	r := newRig(t)
	r.provision(2)
	ctx := testkit.Deadline(t)
	if _, err := r.as(access.CampaignManager).Campaigns.CreateCampaign(ctx, &pb.CreateCampaignRequest{Yaml: campaignYAML("c", 2), OperationId: "create"}); err != nil {
		t.Fatal(err)
	}
	r.book("c")
	viewer := r.as(access.Viewer)
	for _, user := range []ids.UserID{"alice", "bob", "carol", "用户"} {
		got, err := viewer.Routing.LookupHome(ctx, &pb.LookupHomeRequest{CampaignId: "c", UserId: string(user)})
		want := "cell-1"
		if ids.Bucket(user) >= 2048 {
			want = "cell-2"
		}
		if err != nil || got.GetCellId() != want || got.GetBucket() != int32(ids.Bucket(user)) || got.GetRouteVersion() != 1 {
			t.Errorf("%s lives in %v, %v, want %s", user, got, err, want)
		}
	}
	if _, err := viewer.Routing.LookupHome(ctx, &pb.LookupHomeRequest{CampaignId: "c", UserId: "a b"}); len(violated(err)) != 1 {
		t.Errorf("a user with a space: %v", err)
	}
	if _, err := viewer.Routing.LookupHome(ctx, &pb.LookupHomeRequest{CampaignId: "d", UserId: "a"}); rpcstatus.Reason(err) != "UNKNOWN_CAMPAIGN" {
		t.Errorf("unknown campaign: %v", err)
	}
}
