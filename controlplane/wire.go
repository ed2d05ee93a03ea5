package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/access"
	"github.com/cellquota/cellquota/controlplane/api"
	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/audit"
	"github.com/cellquota/cellquota/controlplane/check"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/deletion"
	"github.com/cellquota/cellquota/controlplane/drain"
	"github.com/cellquota/cellquota/controlplane/election"
	"github.com/cellquota/cellquota/controlplane/freeze"
	"github.com/cellquota/cellquota/controlplane/handover"
	"github.com/cellquota/cellquota/controlplane/hygiene"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/link"
	"github.com/cellquota/cellquota/controlplane/lottery"
	"github.com/cellquota/cellquota/controlplane/operation"
	"github.com/cellquota/cellquota/controlplane/peers"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/controlplane/preflight"
	"github.com/cellquota/cellquota/controlplane/quota"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/recovery"
	"github.com/cellquota/cellquota/controlplane/report/books"
	"github.com/cellquota/cellquota/controlplane/report/campaignreport"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/reversal"
	"github.com/cellquota/cellquota/controlplane/settle"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/topics"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Run runs a replica until ctx ends, then drains it within the shutdown grace. It
// returns nil after a clean drain, and says what it was doing when it could not
// start.
func Run(ctx context.Context, cfg Config) error {
	level := &slog.LevelVar{}
	parsed, err := telemetry.ParseLevel(cfg.LogLevel)
	if err != nil {
		return fmt.Errorf("log_level: %w", err)
	}
	level.Set(parsed)
	log := telemetry.NewLogger(os.Stderr, "controlplane", level)
	flush, err := tracing(ctx, cfg)
	if err != nil {
		return err
	}
	group := lifecycle.New(ctx, log)
	group.OnStop("traces", flush)
	r, err := assemble(group, cfg, log, level) //nolint:contextcheck // calls bring their own context
	if err != nil {
		return fmt.Errorf("controlplane: %w", err)
	}
	log.Info("control plane is up", telemetry.Event, "started",
		"grpc_addr", r.listener.Addr().String(), "metrics_addr", r.metrics.Addr().String(), "advertise_addr", cfg.advertised())
	return group.Wait(cfg.ShutdownGrace)
}

// tracing makes this process one of the service cellquota-controlplane.
func tracing(ctx context.Context, cfg Config) (flush func(context.Context) error, err error) {
	return telemetry.InitTracing(ctx, "cellquota-controlplane", cfg.Trace.Endpoint, cfg.Trace.Sample)
}

// running is what Run and its test need of an assembled replica.
type running struct {
	listener net.Listener
	metrics  *telemetry.Server
}

// parts are the pieces that several others need.
type parts struct {
	cfg      Config
	log      *slog.Logger
	clock    clock.Clock
	registry *prometheus.Registry
	store    *store.Store
	view     *view.View
	intent   *intent.Service
	hub      *link.Hub
	shards   *shards.Reader
	fencer   reclaim.Files
	routes   *api.Routes
	planner  *planner.Planner
	freezes  *freeze.Watch
	recovery *recovery.Driver
	drains   *drain.Driver
	election *election.Election
	peers    *peers.Peers
	archive  archive.Archive // nil: none is configured
	keeper   *audit.Keeper
	compact  *hygiene.Compactor
	prune    *hygiene.Pruner
	settle   *settle.Driver
	metrics  *settle.Metrics
	tls      *transport.TLS // nil: plain text, in development
	etcd     *transport.TLS // nil: plain text
	expiry   *transport.Expiry
	dial     transport.DialOptions
	server   transport.ServerOptions
	tune     func(*store.Deps) // of a test that holds this replica; nil: nothing
}

// assemble makes every part and starts it as a member of group.
func assemble(group *lifecycle.Group, cfg Config, log *slog.Logger, level *slog.LevelVar) (*running, error) {
	p := parts{cfg: cfg, log: log, clock: clock.System(), registry: telemetry.NewRegistry()}
	return p.assemble(group, level)
}

func (p *parts) assemble(group *lifecycle.Group, level *slog.LevelVar) (*running, error) {
	if err := rpcstatus.Register(api.Kinds()...); err != nil {
		return nil, err
	}
	if err := p.records(group); err != nil {
		return nil, err
	}
	if err := p.security(group); err != nil {
		return nil, err
	}
	if err := p.leadership(group); err != nil {
		return nil, err
	}
	listener, err := p.serve(group)
	if err != nil {
		return nil, err
	}
	metrics, err := telemetry.MetricsServer(p.cfg.MetricsAddr, p.registry, p.ready, level, telemetry.Options(p.cfg.Common, p.tls.HTTPS(), p.log)...)
	if err != nil {
		return nil, err
	}
	group.Go("metrics", metrics.Serve)
	return &running{listener, metrics}, nil
}

// security: who may call, and how this replica calls cells.
func (p *parts) security(group *lifecycle.Group) error {
	operators, err := access.LoadOperators(p.cfg.OperatorsFile)
	if err != nil {
		return err
	}
	known := []transport.Authenticator{
		transport.Certificates(p.cfg.TrustDomain), operators.Authenticate, access.Tokens{View: p.view, Clock: p.clock, Lost: p.store.Lost}.Authenticate,
	}
	if p.cfg.Dev {
		known = append(known, transport.DevWorkloads())
	}
	refusals, err := audit.NewRefusals(p.store, p.clock, p.log, p.registry)
	if err != nil {
		return err
	}
	group.Go("refusals", refusals.Run)
	group.OnStop("refusals", refusals.Flush) // after the calls' hook, which is registered later
	p.server = transport.ServerOptions{
		Log: p.log, Dev: p.cfg.Dev, Authorizer: access.Authorize, Stopping: group.Stopping(), Authenticator: transport.FirstOf(known...),
		Failed: refusals.Refused, MaxSend: transport.MaxSnapshot, Extra: []grpc.ServerOption{grpc.ChainUnaryInterceptor(revisions(p.view, p.store))},
	}
	p.dial = transport.DialOptions{Dev: p.cfg.Dev, Workload: "controlplane/" + p.cfg.advertised()}
	if !p.cfg.TLS.Enabled() {
		return nil
	}
	p.server.TLS, p.dial.TLS = p.tls, p.tls
	return nil
}

// records: etcd, its mirror, and what operators ask for.
func (p *parts) records(group *lifecycle.Group) (err error) {
	at := store.Config{Endpoints: p.cfg.Etcd.Endpoints, Prefix: p.cfg.Etcd.Prefix, Timeout: p.cfg.Etcd.Timeout}
	if err := p.etcdTLS(group, &at); err != nil {
		return err
	}
	deps := store.Deps{Clock: p.clock, Log: p.log, Registry: p.registry}
	if p.tune != nil {
		p.tune(&deps)
	}
	p.store, err = store.Open(at, deps)
	if err != nil {
		return err
	}
	group.Go("etcd client", func(ctx context.Context) error {
		<-ctx.Done()
		return p.store.Close()
	})
	if p.view, err = view.New(p.store, view.Deps{Clock: p.clock, Log: p.log, Registry: p.registry}); err != nil {
		return err
	}
	group.Go("view", p.view.Run)
	if p.cfg.ArchiveDir != "" {
		p.archive = archive.Directory{Dir: p.cfg.ArchiveDir}
	}
	p.fencer = reclaim.Files{LockTimeout: p.cfg.Fence.LockTimeout, Encrypted: !p.cfg.Dev}
	p.intent = &intent.Service{Store: p.store, View: p.view, Clock: p.clock, Shards: p.fencer, Topics: topics.Kafka{Log: p.log}, ApprovalTTL: p.cfg.ApprovalTTL, Encrypted: !p.cfg.Dev}
	p.shards = shards.New(shards.Options{Encrypted: !p.cfg.Dev})
	p.intent.Sales = api.ShardSales{Reader: p.shards}
	group.OnStop("shard readers", func(context.Context) error { p.shards.Close(); return nil })
	return nil
}

// leadership: what runs in one replica at a time.
func (p *parts) leadership(group *lifecycle.Group) (err error) {
	p.hub, err = link.New(link.Options{LeaseTTL: p.cfg.LeaseTTL, Registry: p.registry}, link.Deps{Store: p.store, View: p.view, Shards: p.fencer, Clock: p.clock, Log: p.log})
	if err != nil {
		return err
	}
	dial := p.dial
	dial.Peer = transport.Peer{Domain: p.cfg.TrustDomain, Workload: access.ControlPlane + "/"}
	dial.Pulse, dial.DefaultTimeout = peerPulse, p.cfg.Etcd.Timeout
	p.peers = peers.New(peers.Config{Address: p.cfg.advertised(), TTL: p.cfg.LeaderTTL}, peers.Deps{
		Store: p.store, View: p.view, Clock: p.clock, Log: p.log,
		Dial: func(addr string) (*grpc.ClientConn, error) { return transport.Dial(addr, dial) },
	})
	group.Go("replicas", p.peers.Run)
	p.routes = &api.Routes{View: p.view, Peers: p.peers, StaleAfter: p.cfg.Routes.StaleAfter, Memory: p.cfg.Routes.EdgeMemory, Clock: p.clock, Intent: p.intent, Reader: p.shards}
	if p.metrics, err = settle.NewMetrics(p.registry); err != nil {
		return err
	}
	p.settle = settle.New(settle.Config{Interval: p.cfg.Settle.Interval, After: p.cfg.Settle.After}, settle.Deps{
		Store: p.store, View: p.view, Shards: p.shards, Mirrors: p.mirrors(), Cells: usages{p.hub}, Archive: p.archive, Metrics: p.metrics, Clock: p.clock, Log: p.log,
	})
	p.freezes = freeze.New(0, p.view, p.shards, p.clock, p.log)
	p.planner = planner.New(planner.Config{
		Interval: p.cfg.Planner.Interval, AckTimeout: p.cfg.Publish.AckTimeout, ReportStaleAfter: p.cfg.Link.ReportStaleAfter,
		RebalanceEvery: p.cfg.Planner.RebalanceEvery, RebalanceHorizon: p.cfg.Planner.RebalanceHorizon,
	}, planner.Deps{
		Store: p.store, View: p.view, Cells: p.hub, Edges: p.routes, Operations: p.drivers(), Witness: recovery.Witness{Open: p.openShard}, Freezes: p.freezes, Clock: p.clock, Log: p.log,
	})
	p.routes.Acked = p.planner.Wake
	p.keeper, err = audit.NewKeeper(p.cfg.Audit.Keep, audit.KeeperDeps{
		Store: p.store, View: p.view, Archive: p.archive, Clock: p.clock, Log: p.log, Registry: p.registry,
	})
	if err != nil {
		return err
	}
	tidies := hygiene.Deps{Store: p.store, View: p.view, Clock: p.clock, Log: p.log, Registry: p.registry}
	if p.compact, err = hygiene.NewCompactor(p.cfg.Etcd.CompactKeep, tidies); err != nil {
		return err
	}
	if p.prune, err = hygiene.NewPruner(p.cfg.Operations.Keep, tidies); err != nil {
		return err
	}
	p.election = election.New(election.Config{Address: p.cfg.advertised(), TTL: p.cfg.LeaderTTL}, p.store, p.view, p.clock, p.log)
	group.Go("election", func(ctx context.Context) error { return p.election.Run(ctx, p.lead) })
	return nil
}

// openShard opens a shard under the fencer's role.
func (p *parts) openShard(ctx context.Context, spec core.CellSpec) (recovery.Shard, error) {
	return p.fencer.Fencer(ctx, spec)
}

// openEntries opens a shard for a draw.
func (p *parts) openEntries(ctx context.Context, spec core.CellSpec) (lottery.Shard, error) {
	return p.fencer.Fencer(ctx, spec)
}

// drivers lists who carries on which kind of operation.
func (p *parts) drivers() planner.ByKind {
	fences := reclaim.New(reclaim.Config{RetryInterval: p.cfg.Fence.RetryInterval, CloseGrace: p.cfg.Restore.CloseGrace}, p.store, p.view, p.fencer, p.clock, p.log)
	moves := quota.Deps{Store: p.store, View: p.view, Clock: p.clock, Log: p.log}
	p.drains = drain.New(drain.Deps{Store: p.store, View: p.view, Shards: shardStocks{p.shards}, Clock: p.clock, Log: p.log})
	calmly := p.fencer
	calmly.LockTimeout = handoverLockWait
	handovers := handover.New(handover.Config{RetryInterval: p.cfg.Fence.RetryInterval}, handover.Deps{
		Store: p.store, View: p.view, Cells: p.hub, Clock: p.clock, Log: p.log,
		Open: func(ctx context.Context, spec core.CellSpec) (handover.Shard, error) { return calmly.Fencer(ctx, spec) },
	})
	p.recovery = &recovery.Driver{Store: p.store, View: p.view, Open: p.openShard, Clock: p.clock, Log: p.log}
	return planner.ByKind{
		core.OperationRecover:   p.recovery,
		core.OperationReverse:   reversal.Driver{Store: p.store, View: p.view, Cells: p.reconcile()},
		core.OperationFence:     fences,
		core.OperationReclaim:   fences,
		core.OperationRestore:   fences,
		core.OperationWriteOff:  fences,
		core.OperationRetire:    fences,
		core.OperationDrain:     p.drains,
		core.OperationCancel:    p.settle,
		core.OperationDelete:    deletion.Driver{Store: p.store, View: p.view},
		core.OperationTransfer:  quota.Transfers{Deps: moves},
		core.OperationRebalance: quota.Rebalances{Deps: moves},
		core.OperationHandOver:  handovers,
		core.OperationSetLimit:  quota.NewLimits(moves, shardStocks{p.shards}, 0),
		core.OperationDraw:      lottery.New(lottery.Deps{Store: p.store, View: p.view, Open: p.openEntries, Archive: p.archive, Clock: p.clock, Log: p.log}),
	}
}

// handoverLockWait bounds how long the orders of a living cell wait behind a handover
// that waits for writers; it is tried again.
const handoverLockWait = 250 * time.Millisecond

// peerPulse is how often another replica is asked for its health while it is asked
// something else.
const peerPulse = 500 * time.Millisecond

// lead runs the loops of one leadership; when one ends, all do.
func (p *parts) lead(ctx context.Context, leader core.Leader) error {
	loops, ctx := errgroup.WithContext(ctx)
	loops.Go(func() error { return p.planner.Lead(ctx, leader) })
	loops.Go(func() error { return p.freezes.Lead(ctx) })
	loops.Go(func() error { return p.hub.Lead(ctx, leader, p.planner) })
	loops.Go(func() error { return p.keeper.Lead(ctx, leader) })
	loops.Go(func() error { return p.settle.Lead(ctx, leader) })
	loops.Go(func() error { return p.compact.Lead(ctx, leader) })
	loops.Go(func() error { return p.prune.Lead(ctx, leader) })
	return loops.Wait()
}

// serve registers the services and takes calls.
func (p *parts) serve(group *lifecycle.Group) (net.Listener, error) {
	listener, err := transport.Listen(p.cfg.GRPCAddr, p.server)
	if err != nil {
		return nil, err
	}
	server := transport.NewServer(p.server)
	if err := p.register(server); err != nil {
		return nil, err
	}
	group.OnStop("calls", transport.Drain(server, p.server.Health))
	group.Go("grpc", transport.Serve(server, listener))
	return listener, nil
}

// dialCell calls a process of a cell.
func (p *parts) dialCell(addr string) (*grpc.ClientConn, error) {
	dial := p.dial
	dial.Peer = transport.Peer{Domain: p.cfg.TrustDomain, Workload: access.Cell + "/"}
	return transport.Dial(addr, dial)
}

func (p *parts) mirrors() api.Mirrors { return api.Mirrors{View: p.view, Dial: p.dialCell} }

// reconcile shows and repairs what differs between the cells' ledgers.
func (p *parts) reconcile() *api.Reconcile {
	return &api.Reconcile{View: p.view, Reader: p.shards, Dial: p.dialCell, Reversals: p.intent}
}

// register lists the services.
func (p *parts) register(server *grpc.Server) error {
	dial := p.dialCell
	accounts := undersell.Reader{Plane: undersell.Fresh{Store: p.store, View: p.view}, Shards: p.shards, Clock: p.clock}
	whole := accounts
	whole.Totals = true
	orders := &reclaim.Orders{Store: p.store, View: p.view, Shards: p.fencer, Intent: p.intent}
	cells := &api.Cells{Intent: p.intent, Orders: orders, Drains: p.drains, View: p.view, Liveness: liveness{p.hub, p.clock}, Shards: reachable{p.shards}, Peers: p.peers, Dial: dial, StaleAfter: p.cfg.Link.ReportStaleAfter, SecretsDir: p.cfg.SecretsDir, Checker: check.New(check.Config(p.cfg.CellCheck), p.clock).Encrypted(!p.cfg.Dev)}
	reports, err := api.NewReports(api.ReportDeps{
		Cells: cells, Routes: p.routes, Etcd: p.store, Reader: p.shards, Uncompared: p.planner.Uncompared, Certificates: p.certificates, Audit: audit.Reader{Store: p.store, Archive: p.archive}, Registry: p.registry,
		Accounts: accounts, CampaignReports: campaignreport.Reader{Accounts: whole, Archive: p.archive, Clock: p.clock}, History: settle.History{Archive: p.archive}, AccountMetrics: p.metrics,
		Verifier: verify.New(books.Plane{Store: p.store}, p.shards, p.mirrors(), p.clock),
	})
	if err != nil {
		return err
	}
	pb.RegisterCellAdminServiceServer(server, cells)
	pb.RegisterRecoveryServiceServer(server, &api.Recovery{Orders: &recovery.Orders{Intent: p.intent, Driver: p.recovery}})
	pb.RegisterFenceServiceServer(server, &api.Fences{Orders: orders})
	pb.RegisterReportServiceServer(server, reports)
	pb.RegisterCampaignServiceServer(server, &api.Campaigns{Intent: p.intent, View: p.view, Clock: p.clock, Shards: shardStocks{p.shards}, Settling: p.settle, Archive: p.archive, Preflight: preflight.Preflight{
		Processes: api.Mirrors{View: p.view, Dial: dial}, Edges: p.routes,
	}})
	pb.RegisterQuotaServiceServer(server, &api.Quota{Intent: p.intent, View: p.view, History: settle.History{Archive: p.archive}, Supply: p.planner, Cells: cells})
	pb.RegisterRoutingServiceServer(server, p.routes)
	pb.RegisterAccessServiceServer(server, &api.Access{Intent: p.intent, View: p.view, Routes: p.routes, Cells: p.hub, Peers: p.peers})
	pb.RegisterOperationServiceServer(server, &api.Operations{Intent: p.intent, Reader: operation.Reader{View: p.view}})
	pb.RegisterOrderServiceServer(server, &api.Refunds{View: p.view, Dial: dial})
	pb.RegisterReconcileServiceServer(server, p.reconcile())
	pb.RegisterCellLinkServiceServer(server, p.hub)
	return nil
}
