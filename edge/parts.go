package edge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/edge/identity"
	"github.com/cellquota/cellquota/edge/proxy"
	"github.com/cellquota/cellquota/edge/risk"
	"github.com/cellquota/cellquota/edge/routes"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/transport"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// name gives the process a name among the edges, if it was given none. Two edges of one name would
// acknowledge routes for each other.
func name(cfg *Config) error {
	if cfg.EdgeID != "" {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("edge_id: no host name: %w", err)
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	cfg.EdgeID = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(random[:]))
	return nil
}

// verifier verifies identity tokens. keyFault says why it cannot yet; "" when it can.
func verifier(group *lifecycle.Group, cfg Identity, now clock.Clock, log *slog.Logger, reg prometheus.Registerer) (v *identity.Verifier, keyFault func() string, err error) {
	set := identity.Settings{Issuer: cfg.Issuer, Audience: cfg.Audience, Now: now.Now}
	if cfg.SecretFile != "" {
		v, err = identity.NewHS256(set, cfg.SecretFile)
		return v, func() string { return "" }, err
	}
	keys, v, err := identity.NewJWKS(set, cfg.JWKSURL, now, log, reg)
	if err != nil {
		return nil, nil, err
	}
	group.Go("identity", keys.Run)
	return v, keys.Fault, nil
}

// judge takes what customers' calls came to where the configuration says; nil: nowhere.
func judge(group *lifecycle.Group, cfg Risk, now clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*risk.Feed, error) {
	if cfg.URL == "" {
		return nil, nil //nolint:nilnil // a nil feed does nothing
	}
	token := ""
	if cfg.TokenFile != "" {
		b, err := os.ReadFile(cfg.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("risk.token_file: %w", err)
		}
		token = strings.TrimSpace(string(b))
	}
	door := risk.NewHTTP(cfg.URL, token, cfg.Timeout)
	feed, err := risk.New(risk.Settings{Queue: cfg.Queue, Batch: cfg.Batch, Wait: cfg.Wait, Verdicts: cfg.Verdicts}, door, now, log, reg)
	if err != nil {
		return nil, err
	}
	group.Go("risk", func(ctx context.Context) error {
		defer door.Close()
		return feed.Run(ctx)
	})
	return feed, nil
}

// dialOptions are how this edge goes to cells and control plane.
func dialOptions(cfg Config, log *slog.Logger) (transport.DialOptions, error) {
	o := transport.DialOptions{Dev: cfg.Dev, Workload: "edge/" + cfg.EdgeID, DefaultTimeout: cfg.RequestTimeout}
	if !cfg.TLS.Enabled() {
		return o, nil
	}
	identity, err := transport.LoadTLS(transport.TLSFiles{CertFile: cfg.TLS.CertFile, KeyFile: cfg.TLS.KeyFile, CAFile: cfg.TLS.CAFile}, log)
	if err != nil {
		return o, fmt.Errorf("tls: %w", err)
	}
	o.TLS = identity
	return o, nil
}

// routesPulse is how often the replica that routes are watched from is asked for its health.
const routesPulse = time.Second

// watch starts the watch of routes. Keys and ways to the cells follow each snapshot before it is
// acknowledged.
func watch(group *lifecycle.Group, cfg Config, dial transport.DialOptions, rings keyRings, cells *proxy.Cells, d routes.Deps) (*routes.Watcher, error) {
	var conns []*grpc.ClientConn
	dial.MaxMessage = transport.MaxSnapshot // all campaigns at once, each with a thousand cells at most
	dial.Peer = transport.Peer{Domain: cfg.TrustDomain, Workload: "controlplane/"}
	dial.Pulse = routesPulse // a frozen replica keeps its streams and says nothing
	for _, addr := range cfg.ControlPlane.Addrs {
		conn, err := transport.Dial(addr, dial)
		if err != nil {
			return nil, fmt.Errorf("control_plane.addrs: %w", err)
		}
		conns = append(conns, conn)
		d.Replicas = append(d.Replicas, cq.NewRoutingServiceClient(conn))
	}
	d.EdgeID = cfg.EdgeID
	d.Keys = rings.names
	d.Applied = func(s *routes.Snapshot) {
		rings.follow(s, d.Log)
		cells.Sync(s.Cells)
	}
	watcher, err := routes.NewWatcher(d)
	if err != nil {
		return nil, err
	}
	group.Go("routes", func(ctx context.Context) error {
		defer func() {
			for _, conn := range conns {
				_ = conn.Close() // only ever fails when it is closed already
			}
		}()
		return watcher.Run(ctx)
	})
	return watcher, nil
}

// readiness is green once there are routes, and keys to verify customers by. A control plane that is gone, or a key file that cannot
// be read, is a reason to look at, but no reason to send customers elsewhere.
func readiness(stopping <-chan struct{}, w *routes.Watcher, rings keyRings, keyFault func() string) telemetry.Ready {
	return func() (bool, map[string]string) {
		faults := rings.faults()
		select {
		case <-stopping:
			faults["edge"] = "it is being stopped"
			return false, faults
		default:
		}
		if fault := keyFault(); fault != "" {
			faults["identity"] = fault
			return false, faults
		}
		switch {
		case w.Snapshot() == nil:
			faults["routes"] = "no snapshot from the control plane yet"
			return false, faults
		case !w.Connected():
			faults["routes"] = "the control plane is not reached; the last snapshot is served"
		}
		return true, faults
	}
}
