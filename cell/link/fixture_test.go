package link

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/campaigns"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	cellID   = ids.CellID("cell-1")
	group    = "blue"
	campaign = ids.CampaignID("double-eleven")
	phone    = ids.SKUID("phone-x")
	patience = 15 * time.Second
)

// template is a provisioned shard: fence version 1, ACTIVE, group blue.
var template = testkit.Template{Name: "link", Setup: func(ctx context.Context, dsn string) error {
	if err := migrate.CreateRoles(ctx, dsn, migrate.Passwords{}); err != nil {
		return err
	}
	if err := migrate.Up(ctx, dsn); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "SELECT cellquota.install($1, $2)", string(cellID), group)
	return err
}}

// process is one cell process's link over a real shard and a real Redis, and the replicas it can dial.
type process struct {
	t        *testing.T
	ctx      context.Context
	admin    *pgx.Conn
	db       *testkit.Database
	shard    *shard.Store
	mirror   *admission.Client
	rules    *campaigns.Reader
	standing *Standing
	bell     *Bell
	cfg      Config
	ready    func(*campaigns.Campaign) (bool, string)
	stop     func() // of the link, once registered

	mu       sync.Mutex
	replicas map[string]*leader // by address; one that is missing does not answer
	dialled  []string
}

func newProcess(t *testing.T) *process {
	t.Helper()
	return newProcessAt(t, testkit.Postgres(t).Database(t, template))
}

// newProcessOn is another process of the same cell, with a Redis of its own.
func newProcessOn(t *testing.T, p *process) *process {
	t.Helper()
	return newProcessAt(t, p.db)
}

func newProcessAt(t *testing.T, db *testkit.Database) *process {
	t.Helper()
	p := &process{
		t: t, ctx: testkit.Deadline(t), db: db, replicas: map[string]*leader{}, bell: NewBell(),
		cfg: Config{
			Cell: cellID, Instance: "p-1", Group: group, Advertise: "10.0.0.1:7443", Roles: []string{"admission"}, Addrs: []string{"a"},
			Keepalive: 20 * time.Millisecond, Timeout: 2 * time.Second, BackoffMin: 5 * time.Millisecond, BackoffMax: 20 * time.Millisecond,
			Report: 10 * time.Millisecond,
		},
		ready: func(*campaigns.Campaign) (bool, string) { return true, "" },
	}
	p.admin = p.db.Conn(t)
	quiet := slog.New(slog.DiscardHandler)
	var err error
	p.shard, err = shard.Open(p.ctx, shard.Config{Cell: cellID, DSN: p.db.As(migrate.RoleApp)}, shard.Deps{
		Clock: clock.System(), Logger: quiet, Registry: prometheus.NewRegistry(), OnFenced: func(shard.Writer) { p.bell.Ring() },
	})
	p.must(err)
	t.Cleanup(p.shard.Close)
	p.mirror, err = admission.Open(admission.Config{Cell: cellID, Addrs: []string{testkit.Redis(t).Addr()}, Timeout: 2 * time.Second},
		admission.Deps{Clock: clock.System(), Logger: quiet, Registry: prometheus.NewRegistry()})
	p.must(err)
	t.Cleanup(func() { _ = p.mirror.Close() })
	p.rules = campaigns.NewReader(p.shard, 10*time.Millisecond, clock.System(), quiet)
	p.standing = NewStanding(p.shard.Writer, time.Second)
	p.run(p.rules.Run)
	return p
}

func (p *process) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// run runs a member until the test's end, and waits for it.
func (p *process) run(member func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = member(ctx)
	}()
	stop = func() { cancel(); <-done }
	p.t.Cleanup(stop)
	return stop
}

// start runs the link.
func (p *process) start() (stop func()) {
	return p.run(New(p.cfg, Deps{
		Shard: p.shard, Mirror: p.mirror, Rules: p.rules, Ways: p, Standing: p.standing, Bell: p.bell,
		Ready:  func(c *campaigns.Campaign) (bool, string) { return p.ready(c) },
		Faults: func() []string { return []string{"kafka"} }, Clock: clock.System(), Logger: slog.New(slog.DiscardHandler),
	}).Run)
}

// Dial implements Ways.
func (p *process) Dial(addr string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	p.dialled = append(p.dialled, addr)
	r := p.replicas[addr]
	p.mu.Unlock()
	return transport.Dial("bufconn", transport.DialOptions{Dev: true, Workload: "cell/cell-1", Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
		if r == nil {
			return nil, errors.New("nobody answers")
		}
		return r.listener.DialContext(ctx)
	}})
}

func (p *process) dials() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.dialled...)
}

// leader is the fake of the neighbour: a CellLinkService whose every stream the test plays.
type leader struct {
	pb.UnimplementedCellLinkServiceServer
	listener *bufconn.Listener
	streams  chan *played
	mute     atomic.Bool // keep-alives get no answer but the test's
}

// played is one stream, with what came over it so far.
type played struct {
	t       *testing.T
	ctx     context.Context
	in      chan *pb.LinkRequest
	out     chan *pb.LinkResponse
	end     chan error
	ended   chan struct{} // the process's side said goodbye or is gone
	goodbye atomic.Bool   // it said goodbye
	hello   *pb.Hello
}

// replica makes a replica answer at an address.
func (p *process) replica(addr string) *leader {
	p.t.Helper()
	l := &leader{listener: bufconn.Listen(1 << 20), streams: make(chan *played, 16)}
	server := transport.NewServer(transport.ServerOptions{Log: slog.New(slog.DiscardHandler), Dev: true, Authenticator: transport.DevWorkloads()})
	pb.RegisterCellLinkServiceServer(server, l)
	p.run(transport.Serve(server, l.listener))
	p.mu.Lock()
	p.replicas[addr] = l
	p.mu.Unlock()
	return l
}

// Link implements CellLinkService: the test reads and writes through channels.
func (l *leader) Link(g pb.CellLinkService_LinkServer) error {
	s := &played{ctx: g.Context(), in: make(chan *pb.LinkRequest, 4096), out: make(chan *pb.LinkResponse), end: make(chan error, 1), ended: make(chan struct{})}
	l.streams <- s
	go func() {
		defer close(s.ended)
		for {
			m, err := g.Recv()
			if errors.Is(err, io.EOF) {
				s.goodbye.Store(true)
			}
			if err != nil {
				return
			}
			s.in <- m
			if k := m.GetKeepAlive(); k != nil && !l.mute.Load() {
				select {
				case s.out <- kept(k.GetSequence(), time.Minute, pb.CellState_CELL_STATE_ACTIVE):
				case <-g.Context().Done():
				}
			}
		}
	}()
	for {
		select {
		case m := <-s.out:
			if err := g.Send(m); err != nil {
				return err
			}
		case err := <-s.end:
			return err
		case <-s.ended:
			return nil
		case <-g.Context().Done():
			return g.Context().Err()
		}
	}
}

func kept(sequence int64, left time.Duration, state pb.CellState) *pb.LinkResponse {
	return &pb.LinkResponse{Kind: &pb.LinkResponse_KeepAliveAck{KeepAliveAck: &pb.KeepAliveAck{
		Sequence: sequence, LeaseRemainingMs: left.Milliseconds(), CellState: state,
	}}}
}

// next waits for the next stream and its Hello.
func (l *leader) next(t *testing.T) *played {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case s := <-l.streams:
		s.t = t
		s.hello = expect(s, (*pb.LinkRequest).GetHello)
		return s
	case <-ctx.Done():
		t.Fatal("no stream came")
		return nil
	}
}

// expect reads until a message of the wanted kind comes; others are passed over.
func expect[T comparable](s *played, kind func(*pb.LinkRequest) T) T {
	s.t.Helper()
	var none T
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		select {
		case m := <-s.in:
			if v := kind(m); v != none {
				return v
			}
		case <-ctx.Done():
			s.t.Fatalf("no %T came", none)
		}
	}
}

func (s *played) say(m *pb.LinkResponse) {
	s.t.Helper()
	select {
	case s.out <- m:
	case <-s.ended:
		s.t.Fatal("the process is gone")
	}
}

func (s *played) welcome(version int64, ttl time.Duration) {
	s.t.Helper()
	s.say(&pb.LinkResponse{Kind: &pb.LinkResponse_Welcome{Welcome: &pb.Welcome{
		FenceVersion: version, Term: &pb.Term{Count: 1, Id: "term-1"}, LeaseTtlMs: ttl.Milliseconds(), CellState: pb.CellState_CELL_STATE_ACTIVE,
	}}})
}

func (s *played) refuse(code pb.RefusalCode, leader string) {
	s.t.Helper()
	s.say(&pb.LinkResponse{Kind: &pb.LinkResponse_Refusal{Refusal: &pb.Refusal{Code: code, Detail: "because", LeaderAddress: leader}}})
	s.end <- nil
}

// order sends a directive of fence version 1 and term 1.
func (s *played) order(d *pb.Directive) {
	s.t.Helper()
	if d.Term == nil {
		d.Term = &pb.Term{Count: 1, Id: "term-1"}
	}
	if d.FenceVersion == 0 {
		d.FenceVersion = 1
	}
	s.say(&pb.LinkResponse{Kind: &pb.LinkResponse_Directive{Directive: d}})
}

// result waits for the result of a directive.
func (s *played) result(id string) *pb.DirectiveResult {
	s.t.Helper()
	for {
		if r := expect(s, (*pb.LinkRequest).GetDirectiveResult); r.GetDirectiveId() == id {
			return r
		}
	}
}

// registered starts the link and welcomes it.
func (p *process) registered() (*leader, *played) {
	p.t.Helper()
	l := p.replica("a")
	p.stop = p.start()
	s := l.next(p.t)
	s.welcome(1, 10*time.Second)
	p.eventually(func() error {
		if _, ok := p.shard.Writer(); !ok {
			return errors.New("no writer yet")
		}
		return nil
	})
	return l, s
}

func (p *process) eventually(check func() error) {
	p.t.Helper()
	testkit.Eventually(p.t, patience, check)
}

// rules of the campaign, open for an hour around now, this cell owns every bucket.
func rules(version int64) *pb.CampaignRules {
	now := clock.System().Now()
	return &pb.CampaignRules{
		Version: version, State: pb.CampaignState_CAMPAIGN_STATE_PUBLISHED,
		Spec: &pb.CampaignSpec{
			CampaignId: string(campaign), OpenAt: timestamppb.New(now.Add(-time.Hour)), CloseAt: timestamppb.New(now.Add(time.Hour)),
			PurchaseScope: pb.PurchaseScope_PURCHASE_SCOPE_SKU, MaxQuantityPerOrder: 5, ReservationTtl: durationpb.New(15 * time.Minute),
			RefundRule: pb.RefundRule_REFUND_RULE_NO_RESTOCK,
			Skus: []*pb.SkuSpec{{
				SkuId: string(phone), InventoryMode: pb.InventoryMode_INVENTORY_MODE_COUNTER, Price: &pb.Money{Amount: "4999.00", Currency: "CNY"},
			}},
		},
		Buckets: []*pb.DomainBuckets{{Ranges: []*pb.BucketRange{{BucketFrom: 0, BucketTo: ids.Buckets - 1}}}},
	}
}

func adjustment(id string, number int64, kind pb.AdjustmentKind, units int32) *pb.Directive {
	return &pb.Directive{DirectiveId: id, Kind: &pb.Directive_Adjustment{Adjustment: &pb.AdjustmentOrder{
		AdjustmentId: id, CampaignId: string(campaign), SkuId: string(phone), Number: number, Kind: kind, Units: units, BookRecordId: "rec-" + id,
	}}}
}

func rulesDirective(version int64) *pb.Directive {
	return &pb.Directive{DirectiveId: "rules", Kind: &pb.Directive_Rules{Rules: rules(version)}}
}
