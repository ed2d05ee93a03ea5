package admission

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/redisconn"
	"github.com/cellquota/cellquota/internal/transport"
)

// Modes of Redis (configuration key redis.mode).
const (
	Standalone = redisconn.Standalone
	Sentinel   = redisconn.Sentinel
	Cluster    = redisconn.Cluster
)

// Config says where the mirror is.
type Config struct {
	Cell       ids.CellID    // stands in every reservation id
	Mode       string        // Standalone, Sentinel or Cluster; "" is Standalone
	Addrs      []string      // host:port of servers, sentinels or cluster seeds
	MasterName string        // Sentinel only; "" is "cellquota"; no other mode has one
	Password   string        // "" for none
	PoolSize   int           // connections of the admitting pool; 0: the driver's default
	Timeout    time.Duration // of one read or write; 0: 500 ms. A customer's call takes at most three
	// Dial opens the connections; nil: plain text that does not leave this machine.
	Dial transport.Dialer
}

// Deps are what a client needs of its process.
type Deps struct {
	Clock    clock.Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

const (
	defaultTimeout  = 500 * time.Millisecond
	callTimeouts    = 3 // time-outs that one call for customers may take in all
	maintenancePool = 8
	maxRetries      = 2 // safe: every call may be made again
)

// Client is a cell process's door to its mirrors. Safe for concurrent use.
type Client struct {
	cell    ids.CellID
	cluster bool
	clock   clock.Clock
	log     *slog.Logger
	metrics *metrics

	budget time.Duration // of one call on hot, retries included

	hot   *redisconn.Client // admits; refuses servers that were not acknowledged
	maint *redisconn.Client // everything else
	runs  *runs

	loading  sync.Mutex   // one load of the library at a time
	verified string       // servers whose library was compared; guarded by loading
	calls    sync.RWMutex // held for reading by calls on hot, for writing by Acknowledge

	mu       sync.RWMutex
	expected map[Scope]ids.Build

	attempts string // prefix of this process's attempt ids
	attempt  atomic.Uint64
}

// Open makes a client. It does not dial: a cell whose Redis is down still starts
// (it has orders to settle), and Check tells whether the server is fit.
func Open(cfg Config, deps Deps) (*Client, error) {
	if cfg.Mode == "" {
		cfg.Mode = Standalone
	}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("read randomness: %w", err)
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, err
	}
	c := &Client{
		cell: cfg.Cell, cluster: cfg.Mode == Cluster, clock: deps.Clock, log: deps.Logger, metrics: m,
		runs: newRuns(), expected: map[Scope]ids.Build{}, attempts: hex.EncodeToString(random[:]) + ".",
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	c.budget = callTimeouts * cfg.Timeout
	if c.hot, err = newPool(cfg, cfg.PoolSize, connectHook(c.cluster, c.runs)); err != nil {
		return nil, err
	}
	c.maint, err = newPool(cfg, maintenancePool, connectHook(c.cluster, nil))
	return c, err
}

func newPool(cfg Config, size int, hook func(context.Context, *redis.Conn) error) (*redisconn.Client, error) {
	pool, err := redisconn.Open(redisconn.Options{
		Target: redisconn.Target{Mode: cfg.Mode, Addrs: cfg.Addrs, MasterName: cfg.MasterName}, Password: cfg.Password, Dial: cfg.Dial,
		ClientName: "cellquota." + string(cfg.Cell), OnConnect: hook, PoolSize: size, MaxRetries: maxRetries, Timeout: cfg.Timeout,
	})
	if err != nil {
		return nil, err
	}
	instrument(pool.Driver())
	return pool, nil
}

// Close ends both pools.
func (c *Client) Close() error { return errors.Join(c.hot.Close(), c.maint.Close()) }

// Check asks every master whether it may hold a mirror and, once per server, loads
// the library where it is missing and compares it where it is not (one that is lost
// later is loaded by the call that misses it). ErrUnfit and ErrLibrary need an
// operator; ErrNotMaster and ErrUnavailable may pass. Cheap enough for every second.
func (c *Client) Check(ctx context.Context) error {
	servers, err := c.rightServers(ctx)
	if err != nil {
		return err
	}
	c.loading.Lock()
	defer c.loading.Unlock()
	if who := identity(servers); who != c.verified {
		if err := c.loadLocked(ctx); err != nil {
			return err
		}
		c.verified = who
	}
	return nil
}

// Server names the Redis processes that answer now; another value means that one
// of them was restarted or replaced. A mirror remembers the one it was built on.
func (c *Client) Server(ctx context.Context) (string, error) {
	servers, err := c.servers(ctx)
	if err != nil {
		return "", err
	}
	return identity(servers), nil
}

// Changed receives a signal when the admitting pool met a server that was not
// acknowledged. It is never closed.
func (c *Client) Changed() <-chan struct{} { return c.runs.changed }

// Acknowledge lets the admitting pool talk to the servers that answer now and
// returns their identity. If they are others than before, it first waits for the
// calls under way (each ends within its time-out) and forgets every expectation,
// so nothing that was asked of the old server is decided by the new one. Then the
// admitting pool leaves servers that count no more.
func (c *Client) Acknowledge(ctx context.Context) (string, error) {
	servers, err := c.rightServers(ctx)
	if err != nil {
		return "", err
	}
	if !c.runs.acknowledged(servers) {
		c.acknowledge(servers)
	}
	return identity(servers), translate(c.hot.Follow(ctx))
}

func (c *Client) acknowledge(servers []server) {
	c.calls.Lock()
	defer c.calls.Unlock()
	c.mu.Lock()
	clear(c.expected)
	c.mu.Unlock()
	c.runs.acknowledge(servers)
}

// Expect makes build the one that this process admits into; only the rebuild loop
// calls it, after it compared mirror, shard and server.
func (c *Client) Expect(scope Scope, build ids.Build) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected[scope] = build
}

// Forget makes Admit answer NotReady for scope until the next Expect.
func (c *Client) Forget(scope Scope) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.expected, scope)
}

// Expected is the build that this process admits into, if any.
func (c *Client) Expected(scope Scope) (ids.Build, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b, ok := c.expected[scope]
	return b, ok
}

// servers asks every master; one that is unfit is an error.
func (c *Client) servers(ctx context.Context) ([]server, error) {
	var mu sync.Mutex
	var out []server
	err := c.eachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		s, err := askServer(ctx, node, c.cluster)
		if err != nil {
			return err
		}
		if err := s.fit(); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		out = append(out, s)
		return nil
	})
	return out, err
}

// rightServers are the servers, after the pool left those that sentinels or the cluster no longer name:
// the old primary of a failover may answer as a master for as long as it likes (K50).
func (c *Client) rightServers(ctx context.Context) ([]server, error) {
	if err := c.maint.Follow(ctx); err != nil {
		return nil, translate(err)
	}
	return c.servers(ctx)
}

// eachMaster runs f on every master (one outside a cluster), possibly in parallel.
func (c *Client) eachMaster(ctx context.Context, f func(context.Context, redis.Cmdable) error) error {
	return translate(c.maint.EachMaster(ctx, f))
}
