package link_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/link"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const wait = 15 * time.Second

// replica is a control-plane replica with cell-1 and cell-2 in a real etcd.
type replica struct {
	t        testing.TB
	etcd     *testkit.EtcdCluster
	client   *clientv3.Client
	store    *store.Store
	view     *view.View
	hub      *link.Hub
	shards   *looked
	registry *prometheus.Registry
	conn     pb.CellLinkServiceClient
	leader   core.Leader
	events   *events
	abdicate func() // ends the leadership and waits for Lead
}

func newReplica(t testing.TB, o link.Options) *replica {
	t.Helper()
	r := &replica{t: t, etcd: testkit.Etcd(t, 1), registry: prometheus.NewRegistry(), events: newEvents(), shards: &looked{}}
	r.client = r.etcd.Client(t)
	var err error
	if r.store, err = store.Open(store.Config{Endpoints: r.etcd.Endpoints(), Prefix: "/cellquota", Timeout: time.Second}, store.Deps{Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() })
	for _, id := range []ids.CellID{"cell-1", "cell-2"} {
		r.putCell(id, func(c *core.Cell) {})
	}
	if r.view, err = view.New(r.store, view.Deps{Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	r.run(func(ctx context.Context) { _ = r.view.Run(ctx) })
	o.Registry = r.registry
	if o.LeaseTTL == 0 {
		o.LeaseTTL = time.Second
	}
	if r.hub, err = link.New(o, link.Deps{Store: r.store, View: r.view, Shards: r.shards, Clock: clock.System()}); err != nil {
		t.Fatal(err)
	}
	r.serve()
	return r
}

// run runs a member until the test's end, and waits for it.
func (r *replica) run(member func(context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		member(ctx)
	}()
	r.t.Cleanup(func() { cancel(); <-done })
}

func (r *replica) serve() {
	listener := bufconn.Listen(1 << 20)
	server := transport.NewServer(transport.ServerOptions{Dev: true, Authenticator: func(context.Context, transport.Caller) (transport.Principal, error) {
		return transport.Principal{Name: "cell/cell-1", Role: "workload"}, nil
	}})
	pb.RegisterCellLinkServiceServer(server, r.hub)
	r.run(func(ctx context.Context) {
		go func() { _ = server.Serve(listener) }()
		<-ctx.Done()
		server.Stop()
	})
	conn, err := transport.Dial("bufconn", transport.DialOptions{Dev: true, Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	r.conn = pb.NewCellLinkServiceClient(conn)
}

// lead makes this replica the leader for the rest of the test, or until abdicate.
func (r *replica) lead() *replica {
	r.t.Helper()
	var err error
	if r.leader, err = r.store.TakeLead(testkit.Deadline(r.t), r.lease(time.Minute), "here:1", ids.NewOperationID()); err != nil {
		r.t.Fatal(err)
	}
	reign, end := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.hub.Lead(reign, r.leader, r.events)
	}()
	r.abdicate = func() { end(); <-done }
	r.t.Cleanup(r.abdicate)
	testkit.Eventually(r.t, wait, func() error { // Lead has begun when a hello is not answered by NOT_LEADER
		if r.dial(hello("nowhere", "x")).refused().GetCode() == pb.RefusalCode_REFUSAL_CODE_NOT_LEADER {
			return errNotYet
		}
		return nil
	})
	return r
}

func (r *replica) putCell(id ids.CellID, edit func(*core.Cell)) core.Cell {
	r.t.Helper()
	var cell core.Cell
	_, err := r.store.Update(testkit.Deadline(r.t), "put cell", func(tx *store.Tx) error {
		var found bool
		var err error
		if cell, found, err = tx.Cell(id); err != nil {
			return err
		}
		if !found {
			cell = core.Cell{State: core.CellActive, FenceVersion: 1, InstanceGroup: "blue", Spec: core.CellSpec{
				ID: id, Region: "east", InstanceGroup: "blue", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
				Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1},
				Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: "b", FencerDSNFile: "c"},
			}}
		}
		edit(&cell)
		cell.Version++
		return tx.PutCell(cell)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return cell
}

func hello(cell, instance string) *pb.Hello {
	return &pb.Hello{
		CellId: cell, InstanceId: instance, InstanceGroup: "blue", AdvertiseAddress: "127.0.0.1:9", Roles: []string{"orders"},
		FenceVersion: 1, FenceState: pb.FenceState_FENCE_STATE_ACTIVE, FenceInstanceGroup: "blue",
	}
}

// process is a cell's process as the hub sees it.
type process struct {
	t      testing.TB
	stream pb.CellLinkService_LinkClient
	hangUp context.CancelFunc
	seq    int64
}

// dial opens a stream and says hello; the answer is not read.
func (r *replica) dial(h *pb.Hello) *process {
	r.t.Helper()
	ctx, cancel := context.WithCancel(testkit.Deadline(r.t))
	r.t.Cleanup(cancel)
	stream, err := r.conn.Link(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	// A replica that does not lead refuses before it has read: io.EOF, and Recv tells.
	if err := stream.Send(&pb.LinkRequest{Kind: &pb.LinkRequest_Hello{Hello: h}}); err != nil && !errors.Is(err, io.EOF) {
		r.t.Fatal(err)
	}
	return &process{t: r.t, stream: stream, hangUp: cancel}
}

// join is dial, welcomed.
func (r *replica) join(h *pb.Hello) *process {
	r.t.Helper()
	p := r.dial(h)
	if m := p.recv(); m.GetWelcome() == nil {
		r.t.Fatalf("answer to hello: %v", m)
	}
	return p
}

func (p *process) send(m *pb.LinkRequest) {
	p.t.Helper()
	if err := p.stream.Send(m); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) recv() *pb.LinkResponse {
	p.t.Helper()
	m, err := p.stream.Recv()
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// over reads on to the stream's end.
func (p *process) over() error {
	for {
		if _, err := p.stream.Recv(); err != nil {
			return err
		}
	}
}

// refused reads on to the refusal.
func (p *process) refused() *pb.Refusal {
	p.t.Helper()
	for {
		if m := p.recv(); m.GetRefusal() != nil {
			return m.GetRefusal()
		}
	}
}

// beat sends a keep-alive and reads on to its answer.
func (p *process) beat(reporter bool, faults ...string) *pb.KeepAliveAck {
	p.t.Helper()
	p.seq++
	p.send(&pb.LinkRequest{Kind: &pb.LinkRequest_KeepAlive{KeepAlive: &pb.KeepAlive{Sequence: p.seq, Reporter: reporter, Faults: faults}}})
	for {
		m := p.recv()
		if m.GetRefusal() != nil {
			p.t.Fatalf("refused: %v", m.GetRefusal())
		}
		if a := m.GetKeepAliveAck(); a.GetSequence() == p.seq {
			return a
		}
	}
}

// events records what the planner is told.
type events struct {
	mu       sync.Mutex
	raised   []*pb.TermRaised
	results  []*pb.DirectiveResult
	restored []string
	fail     error // answer to OnTermRaised
	block    chan struct{}
	reported func() // called for each report that brought something; nil: nobody asks
}

func newEvents() *events { return &events{} }

func (e *events) OnTermRaised(_ context.Context, _ ids.CellID, _ planner.Reporter, facts *pb.TermRaised) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.raised = append(e.raised, facts)
	return e.fail
}

func (e *events) OnDirectiveResult(ctx context.Context, _ ids.CellID, _ planner.Reporter, result *pb.DirectiveResult) error {
	if e.block != nil {
		select {
		case <-e.block:
		case <-ctx.Done():
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.results = append(e.results, result)
	return nil
}

func (e *events) OnReport(ids.CellID) {
	if e.reported != nil {
		e.reported()
	}
}

func (e *events) OnRestored(_ ids.CellID, why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.restored = append(e.restored, why)
}

func (e *events) count() (raised, results, restored int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.raised), len(e.results), len(e.restored)
}
