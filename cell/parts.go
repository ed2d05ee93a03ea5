package cell

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/api"
	"github.com/cellquota/cellquota/cell/baseline"
	"github.com/cellquota/cellquota/cell/campaigns"
	"github.com/cellquota/cellquota/cell/link"
	"github.com/cellquota/cellquota/cell/reconcile"
	"github.com/cellquota/cellquota/cell/relay"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/status"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/lifecycle"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// parts are the rooms of one process, made in the order of assemble.
type parts struct {
	cfg      Config
	cell     ids.CellID
	instance string
	log      *slog.Logger
	clock    clock.Clock
	registry *prometheus.Registry
	tls      *transport.TLS
	redisTLS *transport.TLS // nil: plain text
	expiry   *transport.Expiry
	permits  *signed.Ring
	receipts *signed.Ring
	payKeys  *signed.Ring // nil: this process signs no questions to the channel

	kafka []kgo.Opt // of every client of the brokers

	bell      *link.Bell
	health    *health
	shard     *shard.Store
	standing  *link.Standing
	pulse     *pulse
	mirror    *admission.Client
	direct    *admission.Direct
	baselines *baseline.Loop
	relayed   relay.Deps
	producer  *relay.Producer
	rules     *campaigns.Reader
	ledgers   *reconcile.Loop
	mirrors   *mirrors
	sweeper   *relay.Sweeper
	gates     gates
	writer    *leads // nil without the role admission
	statuses  *status.Answerer
}

// newParts makes what needs no store.
func newParts(cfg Config, log *slog.Logger) (*parts, error) {
	p := &parts{cfg: cfg, log: log, clock: clock.Offset(clock.System(), cfg.ClockOffset), registry: telemetry.NewRegistry(), bell: link.NewBell()}
	var err error
	if p.cell, err = ids.ParseCellID(cfg.CellID); err != nil {
		return nil, err
	}
	if p.instance, err = instance(cfg); err != nil {
		return nil, err
	}
	if cfg.TLS.Enabled() {
		files := transport.TLSFiles{CertFile: cfg.TLS.CertFile, KeyFile: cfg.TLS.KeyFile, CAFile: cfg.TLS.CAFile}
		if p.tls, err = transport.LoadTLS(files, log); err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
	}
	if err := p.loadKeys(); err != nil {
		return nil, err
	}
	if p.expiry, err = transport.NewExpiry(p.clock, log, p.registry); err != nil {
		return nil, err
	}
	p.expiry.Add("tls", p.tls)
	if err := p.storeIdentities(); err != nil {
		return nil, err
	}
	p.health = newHealth(p)
	return p, nil
}

// instance names this process among those of its cell; a name is unique per start.
func instance(cfg Config) (string, error) {
	if cfg.InstanceID != "" {
		return cfg.InstanceID, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("instance_id: no host name: %w", err)
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(random[:])), nil
}

// shardPause is the pause between two tries to reach a shard that is away at the start.
const shardPause = 500 * time.Millisecond

// openShard opens the shard, waiting for it while it is away.
func (p *parts) openShard(ctx context.Context, group *lifecycle.Group) error {
	dsn, err := secretFile(p.cfg.Shard.DSNFile)
	if err != nil {
		return fmt.Errorf("shard.dsn_file: %w", err)
	}
	cfg := shard.Config{
		Cell: p.cell, DSN: dsn, MaxConns: p.cfg.Shard.MaxConns, LockTimeout: p.cfg.Shard.LockTimeout, StatementTimeout: p.cfg.Shard.StatementTimeout,
		IdleInTransaction: p.cfg.Shard.IdleTimeout, HeartbeatGap: p.cfg.Shard.HeartbeatGap, Replicated: p.cfg.Shard.Replicated, Encrypted: !p.cfg.Dev,
	}
	deps := shard.Deps{Clock: p.clock, Logger: p.log, Registry: p.registry, OnFenced: func(shard.Writer) { p.bell.Ring() }, OnDoubt: func(shard.Doubt) { p.bell.Ring() }}
	if err := p.awaitShard(ctx, cfg, deps); err != nil {
		return err
	}
	if p.shard, err = shard.Open(ctx, cfg, deps); err != nil {
		return fmt.Errorf("shard: %w", err)
	}
	p.expiry.AddCertificate("shard", p.shard.Certificate)
	closeLast(group, "shard", p.shard.Close)
	p.standing = link.NewStanding(p.shard.Writer, p.cfg.Link.PauseMargin)
	p.pulse = newPulse(p.shard, p.standing, p.bell, p.rings(), p.clock, p.log)
	return nil
}

// awaitShard tries until the shard answers. Each try has metrics of its own, which are thrown away.
func (p *parts) awaitShard(ctx context.Context, cfg shard.Config, deps shard.Deps) error {
	for told := false; ; {
		deps.Registry = prometheus.NewRegistry()
		probe, err := shard.Open(ctx, cfg, deps)
		if err == nil {
			probe.Close()
			return nil
		}
		if !errors.Is(err, shard.ErrUnavailable) {
			return fmt.Errorf("shard: %w", err)
		}
		if !told {
			told = true
			p.log.Warn("waiting for the shard", telemetry.Event, "shard_awaited", telemetry.Error, err.Error(), telemetry.Retryable, true)
		}
		if err := p.clock.Sleep(ctx, shardPause); err != nil {
			return err
		}
	}
}

// openMirror makes the door to Redis; it dials on first use.
func (p *parts) openMirror(group *lifecycle.Group) error {
	var password string
	var err error
	if p.cfg.Redis.PasswordFile != "" {
		if password, err = secretFile(p.cfg.Redis.PasswordFile); err != nil {
			return fmt.Errorf("redis.password_file: %w", err)
		}
	}
	p.mirror, err = admission.Open(admission.Config{
		Cell: p.cell, Mode: p.cfg.Redis.Mode, Addrs: p.cfg.Redis.Addrs, MasterName: p.cfg.Redis.target().MasterName, Password: password,
		PoolSize: p.cfg.Redis.PoolSize, Timeout: p.cfg.Redis.Timeout, Dial: transport.StoreDialer(p.redisTLS),
	}, admission.Deps{Clock: p.clock, Logger: p.log, Registry: p.registry})
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	closeLast(group, "redis", func() { _ = p.mirror.Close() })
	return nil
}

// openLog makes the producer; it dials on first use.
func (p *parts) openLog(group *lifecycle.Group) error {
	metrics, err := relay.NewMetrics(p.registry)
	if err != nil {
		return err
	}
	p.relayed = relay.Deps{Clock: p.clock, Logger: p.log, Metrics: metrics}
	p.producer, err = relay.NewProducer(relay.Config{
		Cell: p.cell, Brokers: p.cfg.Kafka.Brokers, Topic: p.cfg.Kafka.Topic, Partitions: p.cfg.Kafka.Partitions, Linger: p.cfg.Kafka.Linger,
		DeliveryTimeout: p.cfg.Kafka.DeliveryTimeout,
	}, p.mirror, p.relayed, p.kafka...)
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	closeLast(group, "kafka", p.producer.Close)
	group.Go("relay-acks", p.producer.Run)
	return p.health.watchLog(group)
}

// readRules starts what reads the shard for everybody.
func (p *parts) readRules(group *lifecycle.Group) error {
	p.rules = campaigns.NewReader(p.shard, 0, p.clock, p.log)
	p.mirrors = newMirrors(p.cfg, p.shard, p.rules, p.mirror, p.has(roleAdmission), p.clock, p.log)
	p.sweeper = relay.NewSweeper(relay.SweepConfig{After: p.cfg.Relay.SweepAfter, Interval: p.cfg.Relay.Interval}, p.mirror, p.producer, p.mirrors.scopes, p.relayed)
	reads := status.Config{Cell: p.cell, ReadRate: p.cfg.Status.ReadRate, Timeout: p.cfg.Status.Timeout}
	var err error
	if p.statuses, err = status.New(reads, p.mirror, p.shard, p.receipts, p.clock, p.registry); err != nil {
		return err
	}
	group.Go("rules", p.rules.Run)
	group.Go("mirrors", p.mirrors.run)
	return nil
}

// closeLast closes a store when the members' context has ended: loops that finish a transaction
// still need it.
func closeLast(group *lifecycle.Group, name string, do func()) {
	group.Go(name+"-close", func(ctx context.Context) error {
		<-ctx.Done()
		do()
		return nil
	})
}

// ways dials replicas of the control plane under this cell's name.
func (p *parts) ways() link.Ways {
	return dialer(transport.DialOptions{Dev: p.cfg.Dev, TLS: p.tls, Workload: "cell/" + p.cfg.CellID, Peer: transport.Peer{Domain: p.cfg.TrustDomain, Workload: "controlplane/"}})
}

type dialer transport.DialOptions

// Dial implements link.Ways.
func (d dialer) Dial(addr string) (*grpc.ClientConn, error) {
	return transport.Dial(addr, transport.DialOptions(d))
}

func (p *parts) has(role string) bool { return slices.Contains(p.cfg.Roles, role) }

// authenticator believes certificates of the trust domain and, in development, names.
func (p *parts) authenticator() transport.Authenticator {
	if p.cfg.Dev && !p.cfg.TLS.Enabled() {
		return transport.DevWorkloads()
	}
	return transport.Certificates(p.cfg.TrustDomain)
}

// factsService is for the control plane.
const factsService = "/cellquota.v1.CellFactsService/"

// operatorsMethods are for operators, who come through the control plane; an edge speaks for customers.
var operatorsMethods = []string{
	pb.OrderService_RefundOrder_FullMethodName, pb.OrderService_ReleaseReservation_FullMethodName, pb.OrderService_ReturnAdmission_FullMethodName,
	pb.CellReconcileService_Run_FullMethodName, pb.CellReconcileService_Repair_FullMethodName,
}

// authorize lets edges ask for customers, and the control plane read and refund.
func authorize(_ context.Context, who transport.Principal, method string) error {
	switch {
	case who.Role == "edge" && !slices.Contains(operatorsMethods, method):
		return nil
	case who.Role == "controlplane" && slices.Contains(operatorsMethods, method):
		return nil
	case who.Role == "controlplane" || who.Role == "cell":
		_, verb, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
		if strings.HasPrefix(method, factsService) || strings.HasPrefix(verb, "Get") || strings.HasPrefix(verb, "List") {
			return nil
		}
	}
	return fmt.Errorf("%w: %s may not call %s", rpcstatus.ErrPermissionDenied, who.Name, method)
}

// seller tells the API what the link and the pulse know.
type seller struct {
	standing *link.Standing
	pulse    *pulse
	skewed   func() bool
}

// MaySell implements api.Standing. A shard that this process alone cannot reach pauses this process
// alone; the gate speaks for the cell.
func (s seller) MaySell(policy pb.OnLeaseLoss, now time.Time) api.Verdict {
	switch s.standing.MaySell(policy, now) {
	case link.Sells:
		switch {
		case s.skewed():
			return api.NotReady
		case s.pulse.shardFault() != "":
			return api.Paused
		}
		return api.Sells
	case link.Paused:
		return api.Paused
	default:
		return api.Fenced
	}
}

// Doubt implements api.Standing.
func (s seller) Doubt() { s.pulse.now() }

func secretFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
