package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrNoMaster: no sentinel that answers knows the master.
var ErrNoMaster = errors.New("redisconn: no sentinel names a master")

// watch dials the master that sentinels name and remembers which connection goes where.
type watch struct {
	name      string
	addrs     []string
	sentinels []*redis.SentinelClient // in the order of addrs
	timeout   time.Duration
	tls       *tls.Config

	mu    sync.Mutex
	conns map[*conn]struct{} // bounded by the pool that they are in
}

// conn is a connection to the server at addr; closing it forgets it.
type conn struct {
	*net.TCPConn

	watch *watch
	addr  string
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.watch.mu.Lock()
	delete(c.watch.conns, c)
	c.watch.mu.Unlock()
	return c.TCPConn.Close()
}

func newWatch(o Options) *watch {
	w := &watch{name: o.master(), addrs: o.Addrs, timeout: o.Timeout, tls: o.TLS, conns: map[*conn]struct{}{}}
	for _, addr := range o.Addrs {
		w.sentinels = append(w.sentinels, redis.NewSentinelClient(&redis.Options{
			Addr: addr, TLSConfig: o.TLS, ClientName: o.ClientName, PoolSize: 2, MaxRetries: -1, DialerRetries: 1,
			DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, ContextTimeoutEnabled: true, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}))
	}
	return w
}

// View is what one sentinel says of the master.
type View struct {
	Sentinel string // its address
	Master   string // host:port that it names
	Epoch    uint64 // configuration epoch: that of the failover it knows of
	Replicas int    // of the master
	Err      error  // it did not answer, or knows no such master
}

// views asks every sentinel at once.
func (w *watch) views(ctx context.Context) []View {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	out := make([]View, len(w.sentinels))
	var wait sync.WaitGroup
	for i, s := range w.sentinels {
		wait.Go(func() {
			out[i] = ask(ctx, s, w.name)
			out[i].Sentinel = w.addrs[i]
		})
	}
	wait.Wait()
	return out
}

// master is the address that the sentinels name.
func (w *watch) master(ctx context.Context) (string, error) {
	best, err := newest(w.views(ctx))
	if err != nil {
		return "", fmt.Errorf("%w: %s: %s", ErrNoMaster, w.name, err.Error())
	}
	return best.Master, nil
}

func ask(ctx context.Context, s *redis.SentinelClient, name string) View {
	facts, err := s.Master(ctx, name).Result()
	if err != nil {
		return View{Err: err}
	}
	epoch, err := strconv.ParseUint(facts["config-epoch"], 10, 64)
	if err != nil {
		return View{Err: fmt.Errorf("config-epoch %.40q", facts["config-epoch"])}
	}
	replicas, _ := strconv.Atoi(facts["num-slaves"]) // 0 is what is said of none
	// While a failover is under way the facts are still of the old master; this answer is not. It comes
	// second, so that an address is never given an epoch later than its own.
	addr, err := s.GetMasterAddrByName(ctx, name).Result()
	if err == nil && len(addr) != 2 {
		err = fmt.Errorf("master's address %q", addr)
	}
	if err != nil {
		return View{Err: err}
	}
	return View{Master: net.JoinHostPort(addr[0], addr[1]), Epoch: epoch, Replicas: replicas}
}

// newest is the answer with the highest epoch, whose sentinel knows of the last failover; an error
// when none answers. Pure.
func newest(views []View) (View, error) {
	best, found := View{}, false
	var errs []error
	for _, v := range views {
		switch {
		case v.Err != nil:
			errs = append(errs, v.Err)
		case !found || v.Epoch > best.Epoch:
			best, found = v, true
		}
	}
	if !found {
		return View{}, errors.Join(append(errs, errors.New("no answer counts"))...)
	}
	return best, nil
}

// dial implements the driver's dialer; the address that it is given means nothing.
func (w *watch) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	addr, err := w.master(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := (&net.Dialer{Timeout: w.timeout}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("redisconn: %s is no TCP connection", network), raw.Close())
	}
	c := &conn{TCPConn: tcp, watch: w, addr: addr}
	w.mu.Lock()
	w.conns[c] = struct{}{}
	w.mu.Unlock()
	if w.tls == nil {
		return c, nil
	}
	cfg := w.tls.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(addr) // as the driver does for an address that it is given
	}
	secured := tls.Client(c, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return secured, nil
}

// follow ends the connections to servers other than the master and returns its address.
func (w *watch) follow(ctx context.Context) (string, error) {
	addr, err := w.master(ctx)
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	var stale []*conn
	for c := range w.conns {
		if c.addr != addr {
			stale = append(stale, c)
		}
	}
	w.mu.Unlock()
	for _, c := range stale {
		_ = c.Close() // its pool notices and dials anew
	}
	return addr, nil
}

func (w *watch) close() error {
	var err error
	for _, s := range w.sentinels {
		err = errors.Join(err, s.Close())
	}
	return err
}
