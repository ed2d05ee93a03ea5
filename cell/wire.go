package cell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/cellquota/cellquota/cell/api"
	"github.com/cellquota/cellquota/cell/entries"
	"github.com/cellquota/cellquota/cell/link"
	"github.com/cellquota/cellquota/cell/rebuild"
	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/transport"
)

// Run runs one process of a cell until ctx ends, then drains it within the shutdown grace. It returns
// nil after a clean drain, and says what it was doing when it could not start.
func Run(ctx context.Context, cfg Config) error {
	level := &slog.LevelVar{}
	parsed, err := telemetry.ParseLevel(cfg.LogLevel)
	if err != nil {
		return fmt.Errorf("log_level: %w", err)
	}
	level.Set(parsed)
	log := telemetry.NewLogger(os.Stderr, "cell", level).With(telemetry.CellID, cfg.CellID)
	flush, err := telemetry.InitTracing(ctx, "cellquota-cell", cfg.Trace.Endpoint, cfg.Trace.Sample)
	if err != nil {
		return err
	}
	group := lifecycle.New(ctx, log)
	group.OnStop("traces", flush)
	_, err = assemble(ctx, group, cfg, log, level)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // told to stop while it waited for its shard
	}
	if err != nil {
		return fmt.Errorf("cell: %w", err)
	}
	return group.Wait(cfg.ShutdownGrace)
}

// running is what a test needs of an assembled process.
type running struct {
	listener net.Listener
	metrics  *telemetry.Server
	parts    *parts
}

// assemble makes every part and starts it as a member of group; stop hooks run from the last to the
// first. It waits for a shard that is away until ctx ends.
func assemble(ctx context.Context, group *lifecycle.Group, cfg Config, log *slog.Logger, level *slog.LevelVar) (*running, error) {
	// 1. Who we are, and a metrics port that says how far we are.
	p, err := newParts(cfg, log)
	if err != nil {
		return nil, err
	}
	metrics, err := telemetry.MetricsServer(cfg.MetricsAddr, p.registry, p.health.ready, level, telemetry.Options(cfg.Common, p.tls.HTTPS(), log)...)
	if err != nil {
		return nil, err
	}
	group.Go("metrics", metrics.Serve)

	// 2. The stores: the shard first, because everything else is copied from it.
	if err := p.openShard(ctx, group); err != nil {
		return nil, err
	}
	if err := p.openMirror(group); err != nil {
		return nil, err
	}
	if err := p.openLog(group); err != nil {
		return nil, err
	}

	// 3. What is read from the shard and served by everybody.
	if err := p.readRules(group); err != nil {
		return nil, err
	}

	if err := p.compare(group); err != nil { //nolint:contextcheck // its pool lives as long as the process
		return nil, err
	}

	// 4. The loops of this process's roles.
	for _, role := range cfg.Roles {
		if err := p.start(group, role); err != nil {
			return nil, fmt.Errorf("role %s: %w", role, err)
		}
	}

	// 5. The right to write.
	if err := p.register(group); err != nil {
		return nil, err
	}

	// 6. The door.
	listener, err := p.serve(group) //nolint:contextcheck // streams end by their own contexts and by Stopping
	if err != nil {
		return nil, err
	}
	log.Info("cell process is up", telemetry.Event, "started", "instance", p.instance, "group", cfg.InstanceGroup, "region", cfg.Region,
		"roles", cfg.Roles, "grpc_addr", listener.Addr().String(), "metrics_addr", metrics.Addr().String())
	return &running{listener, metrics, p}, nil
}

// serve takes the address and serves the cell's services behind the visible chain.
func (p *parts) serve(group *lifecycle.Group) (net.Listener, error) {
	if err := rpcstatus.Register(api.Kinds()...); err != nil {
		return nil, err
	}
	pay, err := p.payments(group)
	if err != nil {
		return nil, err
	}
	desk := entries.New(p.shard, entries.Config{Batch: p.cfg.Entries.Batch, Queue: p.cfg.Entries.Queue, Timeout: p.cfg.Entries.Timeout})
	group.Go("entries", desk.Run)
	door := api.New(api.Settings{
		Cell: p.cell, Instance: p.instance, Admits: p.has(roleAdmission), BatchMax: p.cfg.Admission.BatchMax, BatchWait: p.cfg.Admission.BatchWait,
		Batches: p.cfg.Admission.Batches, StreamBatches: p.cfg.Admission.StreamBatches, AckWait: p.cfg.Admission.AckWait, Timeout: p.cfg.Admission.Timeout,
	}, api.Deps{
		Standing: seller{p.standing, p.pulse, p.health.skewed}, Rules: p.rules, Mirror: p.mirror, Direct: p.direct, Baselines: p.baselines, Stocks: p.shard, Log: p.producer, Statuses: p.statuses, Payments: pay, Reviews: p.shard,
		Orders: p.shard, Desk: desk, Entries: p.shard, Gates: p.gates, Permits: p.permits, Faults: p.health.faults, Clock: p.clock, Logger: p.log,
		Library: p.mirror, Installed: p.shard, Runs: p.shard, Ledgers: p.ledgers, Keys: p.rings(),
	})
	opts := transport.ServerOptions{
		Log: p.log, Dev: p.cfg.Dev, TLS: p.tls, Stopping: group.Stopping(), Authenticator: p.authenticator(), Authorizer: authorize,
	}
	listener, err := transport.Listen(p.cfg.GRPCAddr, opts)
	if err != nil {
		return nil, fmt.Errorf("grpc_addr: %w", err)
	}
	server := transport.NewServer(opts)
	door.Register(server)
	group.OnStop("grpc", transport.Drain(server, nil))
	group.Go("grpc", transport.Serve(server, listener))
	return listener, nil
}

// register starts the stream to the control plane and the pulse that watches the fence.
func (p *parts) register(group *lifecycle.Group) error {
	advertise := p.cfg.AdvertiseAddr
	if advertise == "" {
		advertise = p.cfg.GRPCAddr
	}
	l := link.New(link.Config{
		Cell: p.cell, Instance: p.instance, Group: p.cfg.InstanceGroup, Advertise: advertise, Roles: p.cfg.Roles, Addrs: p.cfg.ControlPlane.Addrs,
		Keepalive: p.cfg.Link.Keepalive, Timeout: p.cfg.Link.Timeout, BackoffMin: p.cfg.Link.BackoffMin, BackoffMax: p.cfg.Link.BackoffMax,
		Report: p.cfg.Report.Interval,
	}, link.Deps{
		Shard: p.shard, Mirror: p.mirror, Rules: p.rules, Ways: p.ways(), Standing: p.standing, Bell: p.bell, Ready: p.mirrors.ready,
		Rebuild: rebuild.NewAsks(p.shard, p.mirror, p.mirrors.plans).Rebuild,
		Faults:  p.health.faults, Keys: p.keyNames, KeyStates: p.followKeys, Clock: p.clock, Logger: p.log,
	})
	if err := link.Metrics(p.registry, p.standing, p.shard.Writer, p.clock); err != nil {
		return err
	}
	group.Go("certificates", p.expiry.Run)
	group.Go("pulse", p.pulse.run)
	group.Go("health", p.health.run)
	group.Go("link", l.Run)
	return nil
}
