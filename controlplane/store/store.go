package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Config says where etcd is.
type Config struct {
	Endpoints []string
	Prefix    string        // e.g. /cellquota, no trailing slash
	Timeout   time.Duration // of one read or one commit; 0: 3 s
	// Credentials encrypt the connections; nil: plain text.
	Credentials credentials.TransportCredentials
}

// Deps are what a store is given.
type Deps struct {
	Clock    clock.Clock
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: no metrics
	// KV replaces the client's reads and transactions, for a test that loses
	// answers; nil: the client itself.
	KV func(clientv3.KV) clientv3.KV
}

// Store is the control plane's etcd. Safe for concurrent use. Close it when done.
type Store struct {
	client  *clientv3.Client
	members []string // as configured; the client uses those that answer
	watches atomic.Int64
	kv      clientv3.KV
	keys    keys
	timeout time.Duration
	past    *past
	clock   clock.Clock
	log     *slog.Logger
	journal *prometheus.CounterVec
}

// reconnect is how soon a member that was away is tried again: gRPC's own back-off grows to two
// minutes, in which etcd would be back and the control plane still say UNAVAILABLE.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 3 * time.Second,
}

// Open makes the client; it does not wait for etcd.
func Open(cfg Config, deps Deps) (*Store, error) {
	dial := clientv3.Config{
		Endpoints: cfg.Endpoints, DialTimeout: 5 * time.Second,
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(reconnect)},
	}
	if cfg.Credentials != nil { // the client's own TLS would never read its files again
		dial.DialOptions = append(dial.DialOptions, grpc.WithTransportCredentials(cfg.Credentials))
	}
	client, err := clientv3.New(dial)
	if err != nil {
		return nil, fmt.Errorf("etcd.endpoints: %w", err)
	}
	s := &Store{client: client, members: cfg.Endpoints, kv: client.KV, keys: keys{cfg.Prefix}, past: newPast(keys{cfg.Prefix}), timeout: cfg.Timeout, clock: deps.Clock, log: deps.Log}
	if s.timeout == 0 {
		s.timeout = 3 * time.Second
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if deps.KV != nil {
		s.kv = deps.KV(client.KV)
	}
	s.kv = guarded{s.kv, s.past}
	s.journal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: telemetry.Namespace, Name: "journal_operations_total",
		Help: "Adjustments by kind and what became of them: written (PROPOSED, BOOKED, DONE), answered by a shard (APPLIED, REFUSED, VOIDED), REPLAYED, CONFLICT.",
	}, []string{"kind", "outcome"})
	if deps.Registry != nil {
		if err := deps.Registry.Register(s.journal); err != nil {
			return nil, fmt.Errorf("store metrics: %w", err)
		}
	}
	return s, nil
}

// Close ends the client.
func (s *Store) Close() error { return s.client.Close() }

// ClusterID is the id of the etcd cluster that answers now: another one than
// before means that etcd was rebuilt.
func (s *Store) ClusterID(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.kv.Get(ctx, s.keys.term())
	if err != nil {
		return 0, readError("cluster id", err)
	}
	return resp.Header.ClusterId, nil
}

// Ping is a linearizable read: it fails when etcd has no quorum.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.ClusterID(ctx)
	return err
}
