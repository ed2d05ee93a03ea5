package controlplane

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// putCell stores an ACTIVE cell-1.
func putCell(t *testing.T, etcd *testkit.EtcdCluster) {
	t.Helper()
	s, err := store.Open(store.Config{Endpoints: etcd.Endpoints(), Prefix: "/cellquota"}, store.Deps{Clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	_, err = s.Update(testkit.Deadline(t), "put", func(tx *store.Tx) error {
		if _, _, err := tx.Cell("cell-1"); err != nil {
			return err
		}
		return tx.PutCell(core.Cell{
			Spec: core.CellSpec{
				ID: "cell-1", Region: "east", InstanceGroup: "a", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
				Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1},
				Shard: core.ShardSpec{DSNFile: "/nowhere/a", ReaderDSNFile: "/nowhere/b", FencerDSNFile: "/nowhere/c"},
			}, State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "a",
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// register opens a process's stream and keeps its lease until the test ends.
func register(t *testing.T, r *running) {
	t.Helper()
	stream, err := dial(t, r, client.Options{Workload: "cell/cell-1"}).CellLink.Link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&pb.LinkRequest{Kind: &pb.LinkRequest_Hello{Hello: &pb.Hello{
		CellId: "cell-1", InstanceId: "i-1", InstanceGroup: "a", AdvertiseAddress: "127.0.0.1:9", FenceVersion: 1,
		FenceState: pb.FenceState_FENCE_STATE_ACTIVE, FenceInstanceGroup: "a", ShardIdentity: "s",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || m.GetWelcome() == nil {
		t.Fatalf("hello: %v, %v", m, err)
	}
	go func() {
		for n := int64(1); clock.System().Sleep(t.Context(), 200*time.Millisecond) == nil; n++ {
			if stream.Send(&pb.LinkRequest{Kind: &pb.LinkRequest_KeepAlive{KeepAlive: &pb.KeepAlive{Sequence: n, Faults: []string{"redis"}}}}) != nil {
				return
			}
		}
	}()
}

// The replica that does not lead answers with the leader's word on leases and
// faults, lists who answers, and, when the leader does not, says what it does not
// know and whom to ask: never a lease of zero, never a cell without faults.
func TestAnyReplicaAnswersForTheCells(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	putCell(t, etcd)
	port := testkit.FreePort(t)
	wire := fault.New(t, fmt.Sprintf("127.0.0.1:%d", port))
	a, _ := replica(t, etcd, "--grpc-addr", fmt.Sprintf("127.0.0.1:%d", port), "--advertise-addr", wire.Addr())
	ready(t, a)
	elected(t, a, wire.Addr())
	b, _ := replica(t, etcd)
	ready(t, b)
	register(t, a)
	follower := dial(t, b, client.Options{Token: "token"})
	ctx := testkit.Deadline(t)

	instance := func(ctx context.Context) (*pb.Cell, *pb.Instance, error) {
		got, err := follower.Cells.GetCell(ctx, &pb.GetCellRequest{CellId: "cell-1"})
		if err != nil || len(got.GetCell().GetInstances()) != 1 {
			return nil, nil, fmt.Errorf("%v, %w", got, errors.Join(err, errors.New("not one instance")))
		}
		return got.GetCell(), got.GetCell().GetInstances()[0], nil
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		cell, i, err := instance(ctx)
		if err != nil {
			return err
		}
		if cell.GetLivenessUnknown() != "" || i.GetLeaseRemainingMs() <= 0 || len(i.GetFaults()) != 1 {
			return fmt.Errorf("the leader's word did not come through: %v", cell)
		}
		return nil
	})
	list, err := follower.Cells.ListCells(ctx, &pb.ListCellsRequest{})
	if err != nil || len(list.GetCells()) != 1 || list.GetCells()[0].GetLivenessUnknown() != "" {
		t.Errorf("list: %v, %v", list, err)
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		st, err := follower.Reports.GetStatus(ctx, &pb.GetStatusRequest{})
		if err != nil {
			return err
		}
		rs := st.GetReplicas()
		if len(rs) != 2 || !rs[0].GetAnswers() || rs[0].GetLeader() || rs[1].GetAddress() != wire.Addr() || !rs[1].GetAnswers() || !rs[1].GetLeader() || rs[1].GetRevision() == 0 {
			return fmt.Errorf("replicas: %v", rs)
		}
		if len(st.GetCells()) != 1 || st.GetCells()[0].GetInstances()[0].GetLeaseRemainingMs() <= 0 || st.GetEtcdSizeBytes() == 0 || st.GetEtcdNospace() {
			return fmt.Errorf("status: %v", st)
		}
		return nil
	})

	// The leader goes on leading (its way to etcd is whole) and does not answer.
	wire.Silence(fault.BothWays)
	from := time.Now()
	cell, i, err := instance(ctx)
	if err != nil || cell.GetLivenessUnknown() != "known to the leader, "+wire.Addr() || i.GetLeaseRemainingMs() != -1 || cell.GetLastReportAgeMs() != -1 {
		t.Errorf("the leader is silent: %v, %v", cell, err)
	}
	if took := time.Since(from); took > 8*time.Second {
		t.Errorf("answered after %s", took)
	}
	st, err := follower.Reports.GetStatus(ctx, &pb.GetStatusRequest{})
	if err != nil || len(st.GetReplicas()) != 2 || st.GetReplicas()[1].GetAnswers() || st.GetReplicas()[1].GetDetail() == "" || st.GetReplicas()[1].GetViewAgeMs() != -1 {
		t.Errorf("status: %v, %v", st.GetReplicas(), err)
	}
}

// elected waits until the replica knows itself, by its advertised address, to lead.
func elected(t *testing.T, r *running, addr string) {
	t.Helper()
	c := dial(t, r, client.Options{Token: "token"})
	testkit.Eventually(t, 20*time.Second, func() error {
		st, err := c.Reports.GetStatus(testkit.Deadline(t), &pb.GetStatusRequest{})
		if err != nil {
			return err
		}
		for _, one := range st.GetReplicas() {
			if one.GetLeader() && one.GetAddress() == addr {
				return nil
			}
		}
		return fmt.Errorf("%s does not lead: %v", addr, st.GetReplicas())
	})
}

// A caller writes through one replica, which is gone then, and reads. The next replica's
// view has not heard of the write: it says so instead of answering from before it, and the
// third one answers.
func TestAReadAfterAFailOverShowsTheWriteBeforeIt(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	putCell(t, etcd)
	port := testkit.FreePort(t)
	toFirst, toEtcd := fault.New(t, fmt.Sprintf("127.0.0.1:%d", port)), fault.New(t, etcd.Endpoint(0))
	first, _ := replica(t, etcd, "--grpc-addr", fmt.Sprintf("127.0.0.1:%d", port), "--advertise-addr", toFirst.Addr())
	ready(t, first)
	elected(t, first, toFirst.Addr()) // another leader would answer the late one's question for its word
	late, _ := replica(t, etcd, "--etcd-endpoints", toEtcd.Addr())
	third, _ := replica(t, etcd)
	for _, r := range []*running{first, late, third} {
		ready(t, r)
	}
	c, err := client.Dial(client.Options{Addrs: []string{toFirst.Addr(), late.listener.Addr().String(), third.listener.Addr().String()}, Dev: true, Token: "token"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx := testkit.Deadline(t)
	if _, err := c.Cells.GetCell(ctx, &pb.GetCellRequest{CellId: "cell-1"}); err != nil { // connected
		t.Fatal(err)
	}
	toEtcd.Silence(fault.BothWays)
	if _, err := c.Cells.PauseCell(ctx, &pb.PauseCellRequest{CellId: "cell-1", OperationId: "p1", Reason: "smoke"}); err != nil {
		t.Fatal(err)
	}
	toFirst.Break()
	got, err := c.Cells.GetCell(ctx, &pb.GetCellRequest{CellId: "cell-1"})
	if err != nil || !got.GetCell().GetPaused() {
		t.Fatalf("after the fail-over: %v, %v: want the cell paused", got, err)
	}
	// It was not the third one's luck: the late one refuses who has seen more, and
	// answers whoever has not.
	alone := dial(t, late, client.Options{Token: "token"})
	if got, err := alone.Cells.GetCell(ctx, &pb.GetCellRequest{CellId: "cell-1"}); err != nil || got.GetCell().GetPaused() {
		t.Errorf("the late replica's own view: %v, %v", got, err)
	}
	seen := metadata.AppendToOutgoingContext(ctx, client.MinRevisionHeader, "1000000")
	if _, err := alone.Cells.GetCell(seen, &pb.GetCellRequest{CellId: "cell-1"}); status.Code(err) != codes.Unavailable {
		t.Errorf("a view that is behind answers: %v, want UNAVAILABLE", err)
	}
}
