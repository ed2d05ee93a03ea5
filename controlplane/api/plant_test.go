package api_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/api"
	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/preflight"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/report/books"
	"github.com/cellquota/cellquota/controlplane/report/campaignreport"
	readers "github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/settle"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// plant is the services that read and fence shards, over two real ones with 40
// units each of a limit of 100, and a process of each cell that shows its mirror.
type plant struct {
	*rig
	conns    map[ids.CellID]*pgx.Conn
	dsns     map[ids.CellID][2]string // reader's and fencer's files
	mirrors  map[ids.CellID]*mirror
	registry *prometheus.Registry
	leader   core.Leader
	driver   *reclaim.Driver
	settling *settle.Driver
	kept     string // directory of the archive
}

var saleKey = core.BookKey{Campaign: "c", SKU: "s"}

func newPlant(t *testing.T) *plant {
	t.Helper()
	p := &plant{rig: newRig(t), conns: map[ids.CellID]*pgx.Conn{}, dsns: map[ids.CellID][2]string{}, mirrors: map[ids.CellID]*mirror{}, registry: prometheus.NewRegistry()}
	ctx := testkit.Deadline(t)
	lease, err := p.store.GrantLease(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if p.leader, err = p.store.TakeLead(ctx, lease, "here:1", "term"); err != nil {
		t.Fatal(err)
	}
	cells := map[ids.CellID]core.Cell{}
	for _, id := range []ids.CellID{"cell-1", "cell-2"} {
		cells[id] = p.newCell(id)
	}
	p.publish(cells)
	p.driver = reclaim.New(reclaim.Config{RetryInterval: time.Millisecond, CloseGrace: time.Millisecond}, p.store, p.view, reclaim.Files{}, clock.System(), nil)
	p.open()
	p.caughtUp()
	return p
}

// newCell makes a cell with a real shard and a process.
func (p *plant) newCell(id ids.CellID) core.Cell {
	p.t.Helper()
	db := testkit.Postgres(p.t).Database(p.t, testkit.Template{Name: "sale", Setup: func(ctx context.Context, dsn string) error {
		sale, err := os.ReadFile("../report/shards/testdata/sale.sql")
		if err != nil {
			return err
		}
		if err := errors.Join(migrate.CreateRoles(ctx, dsn, migrate.Passwords{}), migrate.Up(ctx, dsn)); err != nil {
			return err
		}
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, string(sale))
		return err
	}})
	dir := p.t.TempDir()
	p.dsns[id] = [2]string{filepath.Join(dir, "reader"), filepath.Join(dir, "fencer")}
	if err := errors.Join(os.WriteFile(p.dsns[id][0], []byte(db.As(migrate.RoleReader)), 0o600), os.WriteFile(p.dsns[id][1], []byte(db.As(migrate.RoleFencer)), 0o600)); err != nil {
		p.t.Fatal(err)
	}
	cell := core.Cell{
		Spec: core.CellSpec{
			ID: id, Region: "east", InstanceGroup: "blue", Weight: 1, Redis: core.RedisSpec{Mode: "standalone", Addrs: []string{"127.0.0.1:1"}},
			Kafka: core.KafkaSpec{Brokers: []string{"127.0.0.1:2"}, Topic: "t", Partitions: 1, Replication: 1},
			Shard: core.ShardSpec{DSNFile: "a", ReaderDSNFile: p.dsns[id][0], FencerDSNFile: p.dsns[id][1]},
		},
		State: core.CellActive, Version: 1, FenceVersion: 1, InstanceGroup: "blue",
	}
	if _, err := (reclaim.Files{}).Install(testkit.Deadline(p.t), cell.Spec); err != nil {
		p.t.Fatal(err)
	}
	p.conns[id] = db.Conn(p.t)
	p.write(func(tx *store.Tx) error { _, _, err := tx.Cell(id); return errors.Join(err, tx.PutCell(cell)) })
	p.mirrors[id] = p.process(id)
	return cell
}

// process runs a process of a cell that answers CellFactsService, under a lease.
func (p *plant) process(id ids.CellID) *mirror {
	p.t.Helper()
	m := &mirror{facts: &pb.GetMirrorResponse{Present: true, FenceVersion: 1, Stock: 40}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	server := transport.NewServer(transport.ServerOptions{Dev: true, Log: slog.New(slog.DiscardHandler), Authenticator: func(context.Context, transport.Caller) (transport.Principal, error) {
		return transport.Principal{Name: "controlplane/x", Role: "controlplane"}, nil
	}})
	pb.RegisterCellFactsServiceServer(server, m)
	pb.RegisterOrderServiceServer(server, &m.till)
	go func() { _ = server.Serve(listener) }()
	p.t.Cleanup(server.Stop)
	ctx := testkit.Deadline(p.t)
	if m.lease, err = p.store.GrantLease(ctx, time.Minute); err != nil {
		p.t.Fatal(err)
	}
	in := core.Instance{Cell: id, ID: "p1", Group: "blue", Address: listener.Addr().String(), SchemaStep: core.HandoverStep, Lease: m.lease}
	if _, err := p.store.Register(ctx, p.leader, in, func(core.Cell) error { return nil }); err != nil {
		p.t.Fatal(err)
	}
	return m
}

// mirror is the fake of a cell's process.
type mirror struct {
	pb.UnimplementedCellFactsServiceServer
	mu     sync.Mutex
	facts  *pb.GetMirrorResponse
	lookup *pb.LookupMirrorRequestResponse
	asked  *pb.LookupMirrorRequestRequest
	lease  int64
	shadow *pb.ShadowResponse
	till   till
}

func (m *mirror) Shadow(context.Context, *pb.ShadowRequest) (*pb.ShadowResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shadow, nil
}

// till is the part of a cell's process that refunds.
type till struct {
	pb.UnimplementedOrderServiceServer
	mu    sync.Mutex
	asked []*pb.RefundOrderRequest
	ended []reviewAsk
	err   error
}

// reviewAsk is what both ends of a review are asked with.
type reviewAsk interface {
	GetReservationId() string
	GetOperationId() string
	GetReason() string
	GetActor() string
	GetIncident() string
	GetValidateOnly() bool
}

func (r *till) end(in reviewAsk) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, in)
	return r.err
}

func (r *till) ReleaseReservation(_ context.Context, in *pb.ReleaseReservationRequest) (*pb.ReleaseReservationResponse, error) {
	return &pb.ReleaseReservationResponse{OperationId: in.GetOperationId(), Units: 1}, r.end(in)
}

func (r *till) ReturnAdmission(_ context.Context, in *pb.ReturnAdmissionRequest) (*pb.ReturnAdmissionResponse, error) {
	return &pb.ReturnAdmissionResponse{OperationId: in.GetOperationId(), RejectedFor: in.GetRejectedFor()}, r.end(in)
}

func (r *till) RefundOrder(_ context.Context, in *pb.RefundOrderRequest) (*pb.RefundOrderResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, in)
	return &pb.RefundOrderResponse{RefundId: in.GetRefundId(), PaymentState: pb.PaymentState_PAYMENT_STATE_REFUND_PENDING}, r.err
}

func (m *mirror) GetMirror(context.Context, *pb.GetMirrorRequest) (*pb.GetMirrorResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.facts, nil
}

func (m *mirror) LookupMirrorRequest(_ context.Context, req *pb.LookupMirrorRequestRequest) (*pb.LookupMirrorRequestResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = req
	if m.lookup == nil {
		return &pb.LookupMirrorRequestResponse{}, nil
	}
	return m.lookup, nil
}

func (p *plant) write(middle func(tx *store.Tx) error) {
	p.t.Helper()
	if _, err := p.store.Update(testkit.Deadline(p.t), "test", middle); err != nil {
		p.t.Fatal(err)
	}
}

// publish writes campaign, route and book, and applies the first grants.
func (p *plant) publish(cells map[ids.CellID]core.Cell) {
	p.t.Helper()
	q, now := quantity.Must, time.Now()
	var weights []allocator.CellWeight
	var shares []allocator.Share
	for _, id := range []string{"cell-1", "cell-2"} {
		weights, shares = append(weights, allocator.CellWeight{Cell: id, Weight: 1}), append(shares, allocator.Share{Cell: id})
	}
	homes, err := allocator.DealBuckets(weights, allocator.Buckets)
	if err != nil {
		p.t.Fatal(err)
	}
	plan, err := allocator.Split(allocator.Request{Limit: q(100), Reserve: q(20), Policy: allocator.Equal, Cells: shares})
	if err != nil {
		p.t.Fatal(err)
	}
	book, steps, err := core.NewBook(saleKey, plan, cells)
	if err != nil {
		p.t.Fatal(err)
	}
	record := core.Record{ID: core.PublishRecordID(saleKey), Key: saleKey, Actor: "me", BookVersion: 1, At: now}
	for i, id := range []ids.CellID{"cell-1", "cell-2"} {
		grant := core.FirstGrantID(saleKey, id)
		record.Adjustments = append(record.Adjustments, core.Adjustment{
			ID: grant, Key: saleKey, Cell: id, Kind: core.KindGrant, Units: q(40), State: core.StateDone, Outcome: core.OutcomeApplied, Step: steps[i],
		})
		p.exec(id, "SELECT sale.rules(1, 's')")
		p.exec(id, "SELECT sale.adjust(1, 's', $1, 1, 'GRANT', 40, $2)", grant, record.ID)
	}
	campaign := core.Campaign{
		Spec: core.CampaignSpec{
			ID: "c", OpenAt: now.Add(-time.Minute), CloseAt: now.Add(time.Hour), Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1,
			HoldFor: time.Minute, Ack: core.AckKafka, Refund: core.RefundRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: core.ReclaimManual, Routing: core.RoutingUser,
			Permits: core.PermitRules{ClaimFrom: now, TTL: time.Minute}, Gate: core.Gate{MaxWait: time.Second}, Cells: []ids.CellID{"cell-1", "cell-2"},
			SKUs: []core.SKUSpec{{
				ID: "s", PhysicalStock: q(100), SaleLimit: q(100), Inventory: core.InventoryCounter, Price: core.Money{Amount: "10", Currency: "CNY"}, Reserve: q(20),
				Split: core.SplitRules{Policy: allocator.Equal}, TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
			}},
		},
		State: core.CampaignPublished, Version: 2, Owner: "me", PublishedAt: now,
	}
	p.write(func(tx *store.Tx) error {
		_, _, e1 := tx.Book(saleKey)
		_, _, e2 := tx.Record(record.ID)
		_, _, e3 := tx.Campaign("c")
		_, _, e4 := tx.Route("c")
		return errors.Join(e1, e2, e3, e4, tx.PutBook(book.Stamp(record.ID)), tx.PutRecord(record), tx.PutCampaign(campaign),
			tx.PutRoute(core.Route{Campaign: "c", Version: 1, Domains: []core.DomainRoute{{Homes: homes}}}))
	})
}

func (p *plant) exec(cell ids.CellID, sql string, args ...any) {
	p.t.Helper()
	if _, err := p.conns[cell].Exec(p.t.Context(), sql, args...); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
}

func (p *plant) text(cell ids.CellID, sql string) (out string) {
	p.t.Helper()
	if err := p.conns[cell].QueryRow(p.t.Context(), sql).Scan(&out); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// open serves FenceService and ReportService on a wire of their own.
func (p *plant) open() {
	p.t.Helper()
	operators, err := access.LoadOperators(operatorsFile(p.t))
	if err != nil {
		p.t.Fatal(err)
	}
	dial := func(addr string) (*grpc.ClientConn, error) {
		return transport.Dial(addr, transport.DialOptions{Dev: true})
	}
	reader := readers.New(readers.Options{Timeout: 5 * time.Second})
	p.t.Cleanup(reader.Close)
	kept := archive.Directory{Dir: p.t.TempDir()}
	p.kept = kept.Dir
	accounts := undersell.Reader{Plane: undersell.Fresh{Store: p.store, View: p.view}, Shards: reader, Clock: clock.System()}
	whole := accounts
	whole.Totals = true
	reports, err := api.NewReports(api.ReportDeps{
		Cells: &api.Cells{View: p.view, Liveness: hub{}, Dial: dial}, Routes: p.routes, Etcd: p.store, Reader: reader, Registry: p.registry,
		Verifier: verify.New(books.Plane{Store: p.store}, reader, api.Mirrors{View: p.view, Dial: dial}, clock.System()),
		Accounts: accounts, CampaignReports: campaignreport.Reader{Accounts: whole, Archive: kept, Clock: clock.System()}, History: settle.History{Archive: kept},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.wire = bufconn.Listen(1 << 20)
	server := transport.NewServer(transport.ServerOptions{
		Log: slog.New(slog.DiscardHandler), Dev: true, Authorizer: access.Authorize, Authenticator: transport.FirstOf(operators.Authenticate, transport.DevWorkloads()),
	})
	pb.RegisterFenceServiceServer(server, &api.Fences{Orders: &reclaim.Orders{
		Store: p.store, View: p.view, Shards: reclaim.Files{}, Intent: &intent.Service{Store: p.store, View: p.view, Clock: clock.System(), ApprovalTTL: time.Hour},
	}})
	pb.RegisterReportServiceServer(server, reports)
	pb.RegisterOrderServiceServer(server, &api.Refunds{View: p.view, Dial: dial})
	p.settling = settle.New(settle.Config{}, settle.Deps{
		Store: p.store, View: p.view, Shards: reader, Mirrors: api.Mirrors{View: p.view, Dial: dial}, Cells: told{}, Archive: kept, Clock: clock.System(), Log: slog.New(slog.DiscardHandler),
	})
	verbs := &intent.Service{Store: p.store, View: p.view, Clock: clock.System(), Sales: api.ShardSales{Reader: reader}, ApprovalTTL: time.Hour}
	pb.RegisterQuotaServiceServer(server, &api.Quota{Intent: verbs, View: p.view, History: settle.History{Archive: kept}})
	pb.RegisterCampaignServiceServer(server, &api.Campaigns{
		Intent: verbs, View: p.view, Clock: clock.System(), Settling: p.settling, Preflight: preflight.Preflight{Processes: api.Mirrors{View: p.view, Dial: dial}, Edges: p.routes},
	})
	p.routes.Intent, p.routes.Reader = verbs, reader
	pb.RegisterRoutingServiceServer(server, p.routes)
	go func() { _ = server.Serve(p.wire) }()
	p.t.Cleanup(server.Stop)
}

// told is the hub for what settles: every process serves every version.
type told struct{}

func (told) Held(ids.CellID, core.BookKey) (core.HeldFacts, bool) { return core.HeldFacts{}, false }

func (told) CampaignReady(ids.CampaignID, int64, []ids.CellID) []string { return nil }

// done drives an operation to its end.
func (p *plant) done(id string) core.Operation {
	p.t.Helper()
	var op core.Operation
	testkit.Eventually(p.t, 20*time.Second, func() error {
		var err error
		if op, err = p.store.Operation(testkit.Deadline(p.t), id); err != nil || op.State.Terminal() {
			return err
		}
		if err := p.driver.Step(testkit.Deadline(p.t), p.leader, op); err != nil {
			return err
		}
		return fmt.Errorf("%s is %s in %s: %s", id, op.State, op.Step, op.Detail)
	})
	p.caughtUp()
	return op
}

// unreachable points a cell's reader at nobody.
func (p *plant) unreachable(cell ids.CellID) {
	p.t.Helper()
	if err := os.WriteFile(p.dsns[cell][0], []byte("postgres://cellquota_reader@127.0.0.1:1/none"), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// raw is etcd without the store in between.
func (p *plant) raw(t *testing.T) *clientv3.Client { return p.etcd.Client(t) }
