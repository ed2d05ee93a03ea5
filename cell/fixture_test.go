package cell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/client"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	campaign = "double-eleven"
	phone    = "phone-x"
	tablet   = "tablet.y"
	patience = 20 * time.Second
)

// template is a provisioned shard: fence version 1, ACTIVE, group blue.
var template = testkit.Template{Name: "cell", Setup: func(ctx context.Context, dsn string) error {
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
	_, err = conn.Exec(ctx, "SELECT cellquota.install('cell-1', 'blue')")
	return err
}}

// world is everything around one cell: its stores, its keys and its control plane.
type world struct {
	t     testing.TB
	ctx   context.Context
	db    *testkit.Database
	admin *pgx.Conn
	redis *testkit.RedisServer
	store []string // flags that say which Redis: the server's address, unless a test says otherwise
	kafka *testkit.KafkaCluster
	keys  string
	dsn   string
	cp    *plane
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, testkit.Deadline(t), testkit.Postgres(t), testkit.Redis(t))
}

// newWorldOn is a world on servers of the caller's choice, for as long as ctx lasts.
func newWorldOn(t testing.TB, ctx context.Context, pg *testkit.PG, redis *testkit.RedisServer) *world {
	t.Helper()
	w := &world{t: t, ctx: ctx, db: pg.Database(t, template), redis: redis, kafka: testkit.Kafka(t, 1), keys: t.TempDir()}
	w.store = []string{"--redis-addrs=" + redis.Addr()}
	w.admin = w.db.Conn(t)
	w.kafka.CreateTopic(t, "cellquota.admissions.cell-1", 1)
	w.kafka.CreateTopic(t, "cellquota.events", 1)
	for _, use := range []string{"permit", "receipt"} {
		w.must(os.MkdirAll(filepath.Join(w.keys, use), 0o700))
		w.must(os.WriteFile(filepath.Join(w.keys, use, "k1"), []byte(strings.Repeat(use, 5)+"\n"), 0o600))
	}
	w.dsn = filepath.Join(t.TempDir(), "dsn")
	w.must(os.WriteFile(w.dsn, []byte(w.db.As(migrate.RoleApp)+"\n"), 0o600))
	w.cp = newPlane(w)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.admin.Exec(w.ctx, sql, args...)
	w.must(err)
}

func (w *world) count(sql string, args ...any) (n int64) {
	w.t.Helper()
	w.must(w.admin.QueryRow(w.ctx, sql, args...).Scan(&n))
	return n
}

// process is one running cell process with an edge's connection to it.
type process struct {
	*running
	w      *world
	client *client.Client
	stop   context.CancelFunc
	done   chan error
}

// arguments are the world's configuration as flags of a process.
func (w *world) arguments() []string {
	return append([]string{
		"--dev", "--cell-id=cell-1", "--instance-group=blue", "--grpc-addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--keys-dir=" + w.keys,
		"--control-plane-addrs=" + w.cp.addr, "--redis-timeout=2s",
		"--kafka-brokers=" + strings.Join(w.kafka.Brokers(), ","), "--shard-dsn-file=" + w.dsn,
		"--link-keepalive=50ms", "--link-backoff-min=10ms", "--link-backoff-max=50ms", "--report-interval=20ms", "--rebuild-interval=20ms",
		"--gate-interval=20ms", "--relay-sweep-after=300ms", "--payment-grace=0s", "--shutdown-grace=20s",
	}, w.store...)
}

// start runs a process with the world's configuration; more are further flags.
func (w *world) start(more ...string) *process {
	w.t.Helper()
	args := append(w.arguments(), more...)
	cfg, err := config.Load[Config](args, config.Options{Program: "cell", Environ: []string{}, Stdout: io.Discard})
	w.must(err)
	ctx, stop := context.WithCancel(context.WithoutCancel(w.ctx))
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("CELL_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	group := lifecycle.New(ctx, log)
	up, err := assemble(ctx, group, cfg, log, &slog.LevelVar{})
	w.must(err)
	p := &process{running: up, w: w, stop: stop, done: make(chan error, 1)}
	go func() { p.done <- group.Wait(cfg.ShutdownGrace) }()
	p.client, err = client.Dial(up.listener.Addr().String(), transport.DialOptions{Dev: true, Workload: "edge/e1", DefaultTimeout: 10 * time.Second})
	w.must(err)
	w.t.Cleanup(p.end)
	return p
}

// end stops the process and waits for it; again does nothing.
func (p *process) end() {
	p.stop()
	_ = p.client.Close()
	if err, ok := <-p.done; ok {
		close(p.done)
		if err != nil {
			p.w.t.Errorf("the process did not stop cleanly: %v", err)
		}
	}
}

// ready waits until the process says that it serves.
func (p *process) ready() *process {
	p.w.t.Helper()
	testkit.Eventually(p.w.t, patience, func() error {
		if ok, why := p.parts.health.ready(); !ok {
			return fmt.Errorf("not ready: %v", why)
		}
		return nil
	})
	return p
}

// plane is the fake of the neighbour: a control plane that welcomes every process and says what the
// test tells it to.
type plane struct {
	pb.UnimplementedCellLinkServiceServer
	w        *world
	addr     string
	version  atomic.Int64 // of the cell; 0: every registration is refused FENCED
	cell     atomic.Int32 // its state
	mu       sync.Mutex
	streams  map[int]chan *pb.LinkResponse
	next     int
	results  chan *pb.DirectiveResult
	acks     chan *pb.CampaignAck
	shutDown func()
}

func newPlane(w *world) *plane {
	w.t.Helper()
	c := &plane{w: w, streams: map[int]chan *pb.LinkResponse{}, results: make(chan *pb.DirectiveResult, 1024), acks: make(chan *pb.CampaignAck, 1024)}
	c.version.Store(1)
	c.cell.Store(int32(pb.CellState_CELL_STATE_ACTIVE))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	c.addr = listener.Addr().String()
	server := transport.NewServer(transport.ServerOptions{Log: slog.New(slog.DiscardHandler), Dev: true, Authenticator: transport.DevWorkloads()})
	pb.RegisterCellLinkServiceServer(server, c)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	c.shutDown = sync.OnceFunc(func() { server.Stop(); <-done })
	w.t.Cleanup(c.shutDown)
	return c
}

// Link implements CellLinkService.
func (c *plane) Link(g pb.CellLinkService_LinkServer) error {
	if m, err := g.Recv(); err != nil || m.GetHello() == nil {
		return errors.New("no hello")
	}
	v := c.version.Load()
	if v == 0 {
		return g.Send(&pb.LinkResponse{Kind: &pb.LinkResponse_Refusal{Refusal: &pb.Refusal{Code: pb.RefusalCode_REFUSAL_CODE_FENCED}}})
	}
	out := make(chan *pb.LinkResponse, 64)
	c.mu.Lock()
	c.next++
	id := c.next
	c.streams[id] = out
	c.mu.Unlock()
	defer func() { c.mu.Lock(); defer c.mu.Unlock(); delete(c.streams, id) }()
	if err := g.Send(&pb.LinkResponse{Kind: &pb.LinkResponse_Welcome{Welcome: &pb.Welcome{
		FenceVersion: v, Term: &pb.Term{Count: 1, Id: "term-1"}, LeaseTtlMs: 60_000, CellState: pb.CellState(c.cell.Load()),
	}}}); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			m, err := g.Recv()
			if err != nil {
				return
			}
			c.heard(m, out)
		}
	}()
	for {
		select {
		case m := <-out:
			if err := g.Send(m); err != nil {
				return err
			}
		case <-gone:
			return nil
		}
	}
}

func (c *plane) heard(m *pb.LinkRequest, out chan<- *pb.LinkResponse) {
	switch k := m.GetKind().(type) {
	case *pb.LinkRequest_KeepAlive:
		out <- &pb.LinkResponse{Kind: &pb.LinkResponse_KeepAliveAck{KeepAliveAck: &pb.KeepAliveAck{
			Sequence: k.KeepAlive.GetSequence(), LeaseRemainingMs: 60_000, CellState: pb.CellState(c.cell.Load()),
		}}}
	case *pb.LinkRequest_DirectiveResult:
		c.results <- k.DirectiveResult
	case *pb.LinkRequest_CampaignAck:
		c.acks <- k.CampaignAck
	}
}

// order sends a directive to one process and waits for its result.
func (c *plane) order(d *pb.Directive) *pb.DirectiveResult {
	c.w.t.Helper()
	d.Term, d.FenceVersion = &pb.Term{Count: 1, Id: "term-1"}, c.version.Load()
	testkit.Eventually(c.w.t, patience, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, out := range c.streams {
			out <- &pb.LinkResponse{Kind: &pb.LinkResponse_Directive{Directive: d}}
			return nil
		}
		return errors.New("no process is registered")
	})
	for {
		select {
		case r := <-c.results:
			if r.GetDirectiveId() == d.GetDirectiveId() {
				return r
			}
		case <-c.w.ctx.Done():
			c.w.t.Fatalf("no result of %s", d.GetDirectiveId())
		}
	}
}

// rules of the campaign: open now, this cell owns every bucket.
func rules(version int64, change ...func(*pb.CampaignRules)) *pb.CampaignRules {
	now := clock.System().Now()
	r := &pb.CampaignRules{
		Version: version, State: pb.CampaignState_CAMPAIGN_STATE_PUBLISHED, PublishedAtMs: now.UnixMilli(),
		Spec: &pb.CampaignSpec{
			CampaignId: campaign, OpenAt: timestamppb.New(now.Add(-time.Hour)), CloseAt: timestamppb.New(now.Add(time.Hour)),
			PurchaseScope: pb.PurchaseScope_PURCHASE_SCOPE_SKU, MaxQuantityPerOrder: 3, ReservationTtl: durationpb.New(15 * time.Minute),
			RefundRule: pb.RefundRule_REFUND_RULE_NO_RESTOCK, AckMode: pb.AckMode_ACK_MODE_KAFKA, OnLeaseLoss: pb.OnLeaseLoss_ON_LEASE_LOSS_CONTINUE,
		},
		Buckets: []*pb.DomainBuckets{{Ranges: []*pb.BucketRange{{BucketFrom: 0, BucketTo: ids.Buckets - 1}}}},
	}
	for _, sku := range []string{phone, tablet} {
		r.Spec.Skus = append(r.Spec.Skus, &pb.SkuSpec{
			SkuId: sku, InventoryMode: pb.InventoryMode_INVENTORY_MODE_COUNTER, Price: &pb.Money{Amount: "4999.00", Currency: "CNY"},
		})
	}
	for _, f := range change {
		f(r)
	}
	return r
}

// install gives the cell a version of the rules and waits until its process serves it.
func (w *world) install(version int64, change ...func(*pb.CampaignRules)) {
	w.t.Helper()
	r := w.cp.order(&pb.Directive{DirectiveId: fmt.Sprint("rules-", version), Kind: &pb.Directive_Rules{Rules: rules(version, change...)}})
	if r.GetDetail() != "" {
		w.t.Fatalf("rules: %v", r)
	}
	for {
		select {
		case a := <-w.cp.acks:
			if a.GetVersion() >= version && a.GetReady() {
				return
			}
		case <-w.ctx.Done():
			w.t.Fatalf("the process does not serve version %d", version)
		}
	}
}

func (w *world) grant(number int64, units int32) {
	w.t.Helper()
	id := fmt.Sprintf("g%d.%d", w.cp.version.Load(), number)
	r := w.cp.order(&pb.Directive{DirectiveId: id, Kind: &pb.Directive_Adjustment{Adjustment: &pb.AdjustmentOrder{
		AdjustmentId: id, CampaignId: campaign, SkuId: phone, Number: number, Kind: pb.AdjustmentKind_ADJUSTMENT_KIND_GRANT, Units: units, BookRecordId: id,
	}}})
	if r.GetOutcome() != pb.AdjustmentOutcome_ADJUSTMENT_OUTCOME_APPLIED {
		w.t.Fatalf("grant: %v", r)
	}
}

// selling is a world with one process that sells units of the phone.
func selling(t testing.TB, units int32) (*world, *process) {
	t.Helper()
	w := newWorld(t)
	return w, w.sell(units)
}

// sell starts a process, told of further flags, that sells units of the phone.
func (w *world) sell(units int32, more ...string) *process {
	w.t.Helper()
	p := w.start(more...).ready()
	w.install(1)
	w.grant(1, units)
	p.stocked(int64(units))
	return p
}

// stocked waits until the mirror has so many units and its gate lets them out.
func (p *process) stocked(units int64) {
	p.w.t.Helper()
	testkit.Eventually(p.w.t, patience, func() error {
		g, err := p.client.Facts.GetGate(p.w.ctx, &pb.GetGateRequest{})
		if err != nil {
			return err
		}
		for _, one := range g.GetGates() {
			if one.GetSkuId() == phone && (one.GetMirrorStock() != units || one.GetState() != pb.GateState_GATE_STATE_OPEN) {
				return fmt.Errorf("gate %v", one)
			}
		}
		return nil
	})
}

func (w *world) permit(user string, change ...func(*signed.Permit)) string {
	w.t.Helper()
	keys, err := signed.LoadKeys(w.keys, signed.UsePermit)
	w.must(err)
	p := signed.Permit{Campaign: campaign, SKU: phone, User: ids.UserID(user), Expires: clock.System().Now().Add(time.Minute), Nonce: signed.NewNonce()}
	for _, f := range change {
		f(&p)
	}
	token, err := p.Sign(keys, "k1")
	w.must(err)
	return token
}

// ask is a first attempt of a user.
func (w *world) ask(user, request string, change ...func(*pb.Ask)) *pb.Ask {
	w.t.Helper()
	a := &pb.Ask{
		CampaignId: campaign, SkuId: phone, UserId: user, WaitMs: 10_000,
		Kind: &pb.Ask_Admit{Admit: &pb.AdmitAsk{RequestId: request, Quantity: 1, Permit: w.permit(user)}},
	}
	for _, f := range change {
		f(a)
	}
	return a
}

// exchange sends asks over a stream of their own and gives their answers in the order of the asks.
func (p *process) exchange(asks ...*pb.Ask) []*pb.Answer {
	p.w.t.Helper()
	ctx, cancel := context.WithCancel(p.w.ctx)
	defer cancel()
	stream, err := p.client.Admissions.Exchange(ctx)
	p.w.must(err)
	for i, a := range asks {
		a.CorrelationId = uint64(i + 1)
	}
	p.w.must(stream.Send(&pb.ExchangeRequest{Asks: asks}))
	p.w.must(stream.CloseSend())
	answers := make([]*pb.Answer, len(asks))
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		p.w.must(err)
		for _, a := range m.GetAnswers() {
			if i := a.GetCorrelationId() - 1; answers[i] != nil {
				p.w.t.Fatalf("two answers to ask %d", i)
			}
			answers[a.GetCorrelationId()-1] = a
		}
	}
	for i, a := range answers {
		if a == nil {
			p.w.t.Fatalf("no answer to ask %d", i)
		}
	}
	return answers
}

// want fails unless the answer has this outcome.
func want(t testing.TB, a *pb.Answer, outcome pb.AdmitOutcome) *pb.Answer {
	t.Helper()
	if a.GetOutcome() != outcome {
		t.Fatalf("answer %v, want %s", a, outcome)
	}
	return a
}

// reaches waits until a request reads as one of these states.
func (p *process) reaches(user, request, receipt string, states ...pb.RequestState) *pb.RequestView {
	p.w.t.Helper()
	var view *pb.RequestView
	testkit.Eventually(p.w.t, patience, func() error {
		out, err := p.client.Admissions.GetRequest(p.w.ctx, &pb.GetRequestRequest{
			CampaignId: campaign, SkuId: phone, UserId: user, RequestId: request, Receipt: receipt,
		})
		if err != nil {
			return err
		}
		view = out.GetRequest()
		for _, s := range states {
			if view.GetState() == s {
				return nil
			}
		}
		return fmt.Errorf("request %v", view)
	})
	return view
}
