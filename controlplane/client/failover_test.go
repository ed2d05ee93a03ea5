package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// bound is how long a frozen replica may hold a call: a second until it is asked,
// three in which it may answer, and some room.
const bound = 7 * time.Second

// replica answers with its own number, and counts.
type replica struct {
	pb.UnimplementedReportServiceServer
	pb.UnimplementedQuotaServiceServer
	pb.UnimplementedAccessServiceServer
	pb.UnimplementedRoutingServiceServer
	n     int
	wire  *fault.Proxy
	calls atomic.Int64
	fail  atomic.Pointer[error]
	stuck chan struct{} // nil: answers at once; else when closed
}

func (r *replica) answer(ctx context.Context) (string, error) {
	r.calls.Add(1)
	if r.stuck != nil {
		select {
		case <-r.stuck:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	if err := r.fail.Load(); err != nil {
		return "", *err
	}
	return fmt.Sprint(r.n), nil
}

func (r *replica) GetStatus(ctx context.Context, _ *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	name, err := r.answer(ctx)
	return &pb.GetStatusResponse{Leader: name}, err
}

func (r *replica) TopUp(ctx context.Context, _ *pb.TopUpRequest) (*pb.TopUpResponse, error) {
	name, err := r.answer(ctx)
	return &pb.TopUpResponse{OperationId: name}, err
}

func (r *replica) Approve(ctx context.Context, _ *pb.ApproveRequest) (*pb.ApproveResponse, error) {
	_, err := r.answer(ctx)
	return &pb.ApproveResponse{}, err
}

func (r *replica) WatchRoutes(s grpc.BidiStreamingServer[pb.WatchRoutesRequest, pb.WatchRoutesResponse]) error {
	if err := s.Send(&pb.WatchRoutesResponse{Revision: int64(r.n)}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// replicas runs three behind wires and gives a client of all.
func replicas(t *testing.T) ([]*replica, *client.Client) {
	t.Helper()
	var list []*replica
	var addrs []string
	for n := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := transport.NewServer(transport.ServerOptions{Dev: true, Authenticator: transport.DevWorkloads()})
		r := &replica{n: n, wire: fault.New(t, l.Addr().String())}
		pb.RegisterReportServiceServer(srv, r)
		pb.RegisterQuotaServiceServer(srv, r)
		pb.RegisterAccessServiceServer(srv, r)
		pb.RegisterRoutingServiceServer(srv, r)
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		t.Cleanup(func() { srv.Stop(); <-served })
		list, addrs = append(list, r), append(addrs, r.wire.Addr())
	}
	c, err := client.Dial(client.Options{Addrs: addrs, Dev: true, Workload: "edge/e", Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return list, c
}

func status(t *testing.T, c *client.Client) (string, error) {
	t.Helper()
	out, err := c.Reports.GetStatus(testkit.Deadline(t), &pb.GetStatusRequest{})
	return out.GetLeader(), err
}

func TestACallStaysWithTheReplicaThatWasGood(t *testing.T) {
	list, c := replicas(t)
	for range 5 {
		if got, err := status(t, c); err != nil || got != "0" {
			t.Fatalf("answered by %q, %v", got, err)
		}
	}
	list[0].wire.Break()
	for range 3 {
		if got, err := status(t, c); err != nil || got != "1" {
			t.Fatalf("answered by %q, %v", got, err)
		}
	}
}

// A frozen replica holds a call that was under way, and the next one, for a bounded
// time only (SIGSTOP; a partition).
func TestAFrozenReplicaIsLeft(t *testing.T) {
	list, c := replicas(t)
	if _, err := status(t, c); err != nil {
		t.Fatal(err)
	}
	list[0].wire.Silence(fault.BothWays)
	from := time.Now()
	got, err := status(t, c)
	if err != nil || got != "1" || time.Since(from) > bound {
		t.Fatalf("answered by %q after %s, %v", got, time.Since(from), err)
	}
	from = time.Now()
	if got, err := status(t, c); err != nil || got != "1" || time.Since(from) > time.Second {
		t.Errorf("the next call: %q after %s, %v", got, time.Since(from), err)
	}
}

// Frozen before anybody was connected: its kernel takes the connection, and another
// replica answers within the hedge.
func TestAReplicaThatNeverAnswersIsPassedOver(t *testing.T) {
	list, c := replicas(t)
	list[0].wire.Silence(fault.ToClient)
	from := time.Now()
	if got, err := status(t, c); err != nil || got != "1" || time.Since(from) > 2*time.Second {
		t.Errorf("%q after %s, %v", got, time.Since(from), err)
	}
}

// What a replica cannot do for want of etcd another one may be able to.
func TestAReplicaWithoutEtcdIsLeft(t *testing.T) {
	list, c := replicas(t)
	none := rpcstatus.ErrUnavailable
	list[0].fail.Store(&none)
	if got, err := status(t, c); err != nil || got != "1" {
		t.Errorf("%q, %v", got, err)
	}
	list[1].fail.Store(&none)
	list[2].fail.Store(&none)
	if _, err := status(t, c); !errors.Is(err, rpcstatus.ErrUnavailable) {
		t.Errorf("all without etcd: %v", err)
	}
	refused := rpcstatus.With(rpcstatus.ErrConflict, map[string]string{"have": "8"}, nil, 0)
	for _, r := range list {
		r.calls.Store(0)
		r.fail.Store(&refused)
	}
	_, err := status(t, c)
	if n := list[0].calls.Load() + list[1].calls.Load() + list[2].calls.Load(); !errors.Is(err, rpcstatus.ErrConflict) || n != 1 {
		t.Errorf("a refusal: %v after %d calls; want it from one", err, n)
	}
}

// A mutation whose answer was lost is made again only where that is the same
// mutation.
func TestOnlyWhatIsSafeIsRepeated(t *testing.T) {
	for _, c := range []struct {
		name   string
		again  bool
		invoke func(context.Context, *client.Client) error
	}{
		{"adjustment with its id", true, func(ctx context.Context, c *client.Client) error {
			_, err := c.Quota.TopUp(ctx, &pb.TopUpRequest{AdjustmentId: "t-1"})
			return err
		}},
		{"adjustment without", false, func(ctx context.Context, c *client.Client) error {
			_, err := c.Quota.TopUp(ctx, &pb.TopUpRequest{})
			return err
		}},
		{"approval", false, func(ctx context.Context, c *client.Client) error {
			_, err := c.Access.Approve(ctx, &pb.ApproveRequest{ApprovalId: "a-1"})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, client := replicas(t)
			list[0].stuck = make(chan struct{})
			done := make(chan error, 1)
			go func() { done <- c.invoke(testkit.Deadline(t), client) }()
			testkit.Eventually(t, 10*time.Second, func() error {
				if list[0].calls.Load() == 0 {
					return errors.New("not under way")
				}
				return nil
			})
			list[0].wire.Break() // the work may be done
			err := <-done
			if others := list[1].calls.Load() + list[2].calls.Load(); c.again && (err != nil || others != 1) {
				t.Errorf("%v, %d repeats; want it repeated once", err, others)
			} else if !c.again && (err == nil || !rpcstatus.MayHaveHappened(err) || others != 0) {
				t.Errorf("%v, %d repeats; want an open outcome and none", err, others)
			}
		})
	}
}

func TestAStreamThatIsOpenedAgainComesToAnotherReplica(t *testing.T) {
	list, c := replicas(t)
	ctx := testkit.Deadline(t)
	open := func() (pb.RoutingService_WatchRoutesClient, int64) {
		t.Helper()
		s, err := c.Routing.WatchRoutes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return s, m.GetRevision()
	}
	s, from := open()
	if from != 0 {
		t.Errorf("the first stream comes from %d", from)
	}
	list[0].wire.Silence(fault.BothWays)
	began := time.Now()
	if _, err := s.Recv(); !errors.Is(err, transport.ErrSilent) || time.Since(began) > bound {
		t.Errorf("a frozen replica's stream: %v after %s", err, time.Since(began))
	}
	if _, from := open(); from != 1 {
		t.Errorf("the second stream comes from %d", from)
	}
}

// Nobody is there yet: the call waits within its deadline, and is answered when one
// comes.
func TestACallWaitsForAnyReplica(t *testing.T) {
	list, c := replicas(t)
	for _, r := range list {
		r.wire.Break()
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.Reports.GetStatus(short, &pb.GetStatusRequest{})
	var remote *rpcstatus.Remote
	if err == nil || errors.As(err, &remote) && remote.Code() != codes.Unavailable && remote.Code() != codes.DeadlineExceeded {
		t.Errorf("nobody there: %v", err)
	}
	done := make(chan error, 1)
	go func() { _, err := status(t, c); done <- err }()
	testkit.Hold(t, 500*time.Millisecond, "the call waits")
	list[2].wire.Heal()
	if err := <-done; err != nil {
		t.Errorf("when one came: %v", err)
	}
}
