package controlplane

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// watched opens an edge's stream and takes its first message.
func watched(t *testing.T, c *client.Client) (grpc.BidiStreamingClient[pb.WatchRoutesRequest, pb.WatchRoutesResponse], *pb.WatchRoutesResponse) {
	t.Helper()
	stream, err := c.Routing.WatchRoutes(testkit.Deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.WatchRoutesRequest{EdgeId: "e1"}); err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || !first.GetFull() {
		t.Fatalf("first message %v, %v", first, err)
	}
	return stream, first
}

// An edge hangs on a replica that was cut off from etcd without a word: the replica
// sends it away once its view is too old, and the edge hears from another one what
// changed meanwhile. A replica that is the only one still serves its past.
func TestAnEdgeLeavesAReplicaWhoseViewIsStale(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	putCells(t, etcd, 1)
	wire := fault.New(t, etcd.Endpoint(0))
	a, _ := replica(t, etcd, "--etcd-endpoints", wire.Addr(), "--routes-stale-after", "1s")
	ready(t, a)
	b, _ := replica(t, etcd, "--routes-stale-after", "1s")
	ready(t, b)
	edge, err := client.Dial(client.Options{Addrs: []string{a.listener.Addr().String(), b.listener.Addr().String()}, Dev: true, Workload: "edge/e1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = edge.Close() })
	stream, before := watched(t, edge)

	wire.Silence(fault.BothWays)
	from := time.Now()
	s := direct(t, etcd)
	if _, err := s.Update(testkit.Deadline(t), "fence", func(tx *store.Tx) error {
		c, _, err := tx.Cell("cell-1")
		if err != nil {
			return err
		}
		c.State, c.FenceVersion, c.Version = core.CellFencing, 2, 2
		return tx.PutCell(c)
	}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, rpcstatus.ErrUnavailable) {
		t.Errorf("the stream ended with %v, want one that says: again", err)
	}
	if took := time.Since(from); took > 10*time.Second {
		t.Errorf("sent away after %s", took)
	}
	_, after := watched(t, edge)
	if after.GetRevision() <= before.GetRevision() || len(after.GetCells()) != 1 || after.GetCells()[0].GetState() != pb.CellState_CELL_STATE_FENCING {
		t.Errorf("the other replica says %v", after)
	}
	// Nobody else to ask: the past is better than nothing, for as long as StaleAfter.
	alone := dial(t, a, client.Options{Workload: "edge/e1"})
	stream, past := watched(t, alone)
	// Not the revision of the first message: the other replica's standing for election
	// writes too, and may have been heard of before the cut.
	if past.GetRevision() >= after.GetRevision() || len(past.GetCells()) != 1 || past.GetCells()[0].GetState() == pb.CellState_CELL_STATE_FENCING {
		t.Errorf("a replica that was cut off at %d says %v", before.GetRevision(), past)
	}
	if _, err := stream.Recv(); !errors.Is(err, rpcstatus.ErrUnavailable) {
		t.Errorf("it is kept: %v", err)
	}
}
