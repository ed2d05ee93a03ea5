package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/cellquota/cellquota/edge/api"
	"github.com/cellquota/cellquota/edge/limit"
	"github.com/cellquota/cellquota/edge/permit"
	"github.com/cellquota/cellquota/edge/proxy"
	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/edge/routes"
	"github.com/cellquota/cellquota/edge/soldout"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/transport"
)

// Run runs an edge until ctx ends, then drains it within the shutdown grace. It returns nil after a
// clean drain, and says what it was doing when it could not start.
func Run(ctx context.Context, cfg Config) error {
	level := &slog.LevelVar{}
	parsed, err := telemetry.ParseLevel(cfg.LogLevel)
	if err != nil {
		return fmt.Errorf("log_level: %w", err)
	}
	level.Set(parsed)
	log := telemetry.NewLogger(os.Stderr, "edge", level)
	flush, err := telemetry.InitTracing(ctx, "cellquota-edge", cfg.Trace.Endpoint, cfg.Trace.Sample)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group := lifecycle.New(ctx, log)
	group.OnStop("traces", flush)
	e, err := assemble(group, cfg, log, level) //nolint:contextcheck // streams to cells live as long as the group
	if err != nil {
		stop()
		return errors.Join(fmt.Errorf("edge: %w", err), group.Wait(cfg.ShutdownGrace))
	}
	log.Info("edge is up", slog.String(telemetry.Event, "started"),
		slog.String("http_addr", e.listener.Addr().String()), slog.String("metrics_addr", e.metrics.Addr().String()), slog.String("edge_id", cfg.EdgeID))
	return group.Wait(cfg.ShutdownGrace)
}

// running is what Run and its test need of an assembled edge.
type running struct {
	listener net.Listener
	metrics  *telemetry.Server
}

// assemble makes every part and starts it as a member of group.
func assemble(group *lifecycle.Group, cfg Config, log *slog.Logger, level *slog.LevelVar) (*running, error) {
	if err := name(&cfg); err != nil {
		return nil, err
	}
	now := clock.Offset(clock.System(), cfg.ClockOffset)
	registry := telemetry.NewRegistry()

	rings, err := loadRings(cfg.KeysDir)
	if err != nil {
		return nil, err
	}
	group.Go("keys", func(ctx context.Context) error { return rings.run(ctx, now, log) })
	verifier, keyFault, err := verifier(group, cfg.Identity, now, log, registry)
	if err != nil {
		return nil, err
	}
	dial, err := dialOptions(cfg, log)
	if err != nil {
		return nil, err
	}
	expiry, err := transport.NewExpiry(now, log, registry)
	if err != nil {
		return nil, err
	}
	expiry.Add("tls", dial.TLS)
	var shown *transport.TLS // to customers; nil: plain HTTP
	if cfg.HTTP.CertFile != "" {
		if shown, err = transport.LoadTLS(transport.TLSFiles{CertFile: cfg.HTTP.CertFile, KeyFile: cfg.HTTP.KeyFile}, log); err != nil {
			return nil, fmt.Errorf("http.cert_file, http.key_file: %w", err)
		}
	}
	expiry.Add("http", shown)
	group.Go("certificates", expiry.Run)
	cells := proxy.New(group.Context(), proxy.Settings{
		Dial: dial, Streams: cfg.Admit.Streams, BatchMax: cfg.Admit.BatchMax, BatchWait: cfg.Admit.BatchWait,
		InflightMax: cfg.Admit.InflightMax, Timeout: cfg.RequestTimeout, TrustDomain: cfg.TrustDomain,
	}, proxy.Deps{Clock: now, Log: log, Registry: registry})
	group.Go("cells", func(ctx context.Context) error {
		<-ctx.Done()
		cells.Close()
		return nil
	})
	watcher, err := watch(group, cfg, dial, rings, cells, routes.Deps{Clock: now, Log: log, Registry: registry})
	if err != nil {
		return nil, err
	}
	limits, err := limit.New(limit.Ceilings{
		User:    route.Rate{PerSecond: cfg.Limits.UserRate, Burst: cfg.Limits.UserBurst},
		Repeat:  route.Rate{PerSecond: cfg.Limits.RepeatRate, Burst: cfg.Limits.RepeatBurst},
		Network: route.Rate{PerSecond: cfg.Limits.NetworkRate, Burst: cfg.Limits.NetworkBurst},
		Buckets: cfg.Limits.Buckets,
	}, now)
	if err != nil {
		return nil, err
	}
	networks, err := limit.NewNetworks(cfg.TrustedProxies)
	if err != nil {
		return nil, err
	}
	empty, err := soldout.New(cfg.SoldOut.TTL, now)
	if err != nil {
		return nil, err
	}
	judged, err := judge(group, cfg.Risk, now, log, registry)
	if err != nil {
		return nil, err
	}
	face := api.New(api.Settings{
		Timeout: cfg.RequestTimeout, MaxWait: cfg.WaitMax, MaxWaiters: cfg.Limits.Waiters, MaxRunning: cfg.Limits.Running,
		MaxPerUser: cfg.Limits.PerUser, MaxPerDevice: cfg.Limits.PerDevice, MaxPerNetwork: cfg.Limits.PerNetwork, CallbackWindow: cfg.Payment.CallbackWindow, Origins: cfg.CORS.Origins,
	}, api.Parts{
		Routes: watcher, Identity: verifier, Permits: permit.New(rings[signed.UsePermit], now), Receipts: rings[signed.UseReceipt],
		PaymentKeys: rings[signed.UsePayment], Limits: limits, Networks: networks, SoldOut: empty, Cells: cells, Risk: judged,
		Clock: now, Log: log, Registry: registry, Stopping: group.Stopping(),
	})
	listener, err := serveHTTP(group, cfg, face, shown, log)
	if err != nil {
		return nil, err
	}
	metrics, err := telemetry.MetricsServer(cfg.MetricsAddr, registry, readiness(group.Stopping(), watcher, rings, keyFault), level, telemetry.Options(cfg.Common, dial.TLS.HTTPS(), log)...)
	if err != nil {
		return nil, err
	}
	group.Go("metrics", metrics.Serve)
	return &running{listener, metrics}, nil
}

// serveHTTP takes the address and serves the face behind the bounds of the configuration.
func serveHTTP(group *lifecycle.Group, cfg Config, face http.Handler, shown *transport.TLS, log *slog.Logger) (net.Listener, error) {
	listener, err := net.Listen("tcp", cfg.HTTPAddr)
	if err != nil {
		return nil, fmt.Errorf("http_addr: %w", err)
	}
	if shown == nil && !transport.Local(listener.Addr()) { // a name may lead elsewhere than the configuration could tell
		return nil, errors.Join(fmt.Errorf("http_addr %s: plain HTTP is for dev: true on loopback: give http.cert_file and http.key_file", cfg.HTTPAddr), listener.Close())
	}
	plain := boundConnections(listener, cfg.HTTP.MaxConnections)
	serve := func(s *http.Server) error { return s.Serve(plain) }
	if shown != nil {
		serve = func(s *http.Server) error { return s.ServeTLS(plain, "", "") }
	}
	server := &http.Server{
		Handler:           face,
		ReadHeaderTimeout: cfg.HTTP.HeaderTimeout,
		ReadTimeout:       cfg.HTTP.BodyTimeout,
		WriteTimeout:      cfg.HTTP.BodyTimeout + cfg.WaitMax + 2*cfg.RequestTimeout + time.Second,
		IdleTimeout:       cfg.HTTP.IdleTimeout,
		MaxHeaderBytes:    cfg.HTTP.MaxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: cfg.HTTP.MaxStreams},
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	if shown != nil {
		server.TLSConfig = shown.HTTPS()
	}
	group.Go("http", func(context.Context) error {
		if err := serve(server); err != nil && !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	group.OnStop("http", func(ctx context.Context) error {
		// Every answer says "close" by now (api.Server), and readiness sends newcomers elsewhere: whoever
		// still has a connection of ours leaves it before it is cut under his next call.
		_ = clock.System().Sleep(ctx, min(cfg.HTTP.DrainDelay, cfg.ShutdownGrace/4)) // ends early where there is no time
		return server.Shutdown(ctx)
	})
	return listener, nil
}
