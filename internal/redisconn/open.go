package redisconn

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/cellquota/cellquota/internal/transport"
)

// Options of one client.
type Options struct {
	Target
	Password   string // of the servers; "": none is asked for. Sentinels are asked without one
	ClientName string // shown by CLIENT LIST
	// Dial opens the connections to servers and sentinels alike; nil: plain text that does
	// not leave this machine, also where a sentinel or a cluster names another.
	Dial transport.Dialer

	Timeout    time.Duration // of a dial, a read and a write; above 0
	PoolSize   int           // connections; 0: the driver's default, ten per processor
	MaxRetries int           // of a command whose connection failed; -1: none

	// OnConnect judges a new connection before it is used; nil: none is refused.
	OnConnect func(context.Context, *redis.Conn) error
}

// Client is a Redis whose mode no longer matters to its user.
type Client struct {
	redis.UniversalClient

	watch *watch // nil unless behind sentinels
}

// ErrTarget: the target breaks a rule of Check.
var ErrTarget = errors.New("redisconn: unusable target")

// Open makes a client. It does not dial. ErrTarget names the first broken rule.
func Open(o Options) (*Client, error) {
	if faults := o.Check(); len(faults) > 0 {
		return nil, errors.Join(ErrTarget, errors.New("redis."+faults[0].Field+" "+faults[0].Rule))
	}
	if o.Dial == nil {
		o.Dial = transport.StoreDialer(nil)
	}
	u := &redis.UniversalOptions{
		Addrs: o.Addrs, IsClusterMode: o.Mode == Cluster, Password: o.Password, Dialer: o.Dial, ClientName: o.ClientName,
		OnConnect: o.OnConnect, PoolSize: o.PoolSize, MaxRetries: o.MaxRetries,
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, DialerRetries: 1,
		ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if o.Mode != Sentinel {
		return &Client{UniversalClient: redis.NewUniversalClient(u)}, nil
	}
	w := newWatch(o)
	one := u.Simple()
	one.Addr = o.master() // in errors only: the dialer asks the sentinels
	one.Dialer = w.dial
	return &Client{UniversalClient: redis.NewClient(one), watch: w}, nil
}

// Driver is the driver's own client, for what is generic over its kinds (tracing).
func (c *Client) Driver() redis.UniversalClient { return c.UniversalClient }

// Follow brings the client to the servers that count now. Behind sentinels it asks them who the master
// is and ends the connections to any other server: ErrNoMaster. In a cluster it reads the slots anew:
// the driver's pipelines go on to a dead node for as long as nobody tells it MOVED. One server needs
// no following.
func (c *Client) Follow(ctx context.Context) error {
	if cc, ok := c.UniversalClient.(*redis.ClusterClient); ok {
		return cc.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
	}
	if c.watch == nil {
		return nil
	}
	_, err := c.watch.follow(ctx)
	return err
}

// Views are what the sentinels say now, in the order of the addresses; none outside sentinel mode.
func (c *Client) Views(ctx context.Context) []View {
	if c.watch == nil {
		return nil
	}
	return c.watch.views(ctx)
}

// EachMaster runs f on every master: one outside a cluster. In a cluster f may run at the same time on
// several, and the first error is returned.
func (c *Client) EachMaster(ctx context.Context, f func(context.Context, redis.Cmdable) error) error {
	if cc, ok := c.UniversalClient.(*redis.ClusterClient); ok {
		return cc.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return f(ctx, node) })
	}
	return f(ctx, c.UniversalClient)
}

// MasterOf is the server that holds a key. In a cluster its time is the one by which the key's scripts
// judge; another node's may differ.
func (c *Client) MasterOf(ctx context.Context, key string) (redis.Cmdable, error) {
	if cc, ok := c.UniversalClient.(*redis.ClusterClient); ok {
		return cc.MasterForKey(ctx, key)
	}
	return c.UniversalClient, nil
}

// Close ends every connection, those to sentinels too.
func (c *Client) Close() error {
	err := c.UniversalClient.Close()
	if c.watch != nil {
		err = errors.Join(err, c.watch.close())
	}
	return err
}
