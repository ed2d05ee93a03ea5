package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/cellquota/cellquota/internal/transport"
)

// ErrNoMaster: no sentinel that answers knows the master.
var ErrNoMaster = errors.New("redisconn: no sentinel names a master")

// watch dials the master that sentinels name and remembers which connection goes where.
type watch struct {
	name      string
	addrs     []string
	sentinels []*redis.SentinelClient // in the order of addrs
	timeout   time.Duration
	open      transport.Dialer

	mu    sync.Mutex
	conns map[net.Conn]string // to which server; bounded by the pool that they are in
}

// plain is a connection that is forgotten when it is closed. It is a TCP connection, so
// that the driver can look whether the server has closed it.
type plain struct {
	*net.TCPConn

	watch *watch
}

// Close implements net.Conn.
func (c *plain) Close() error {
	c.watch.forget(c)
	return c.TCPConn.Close()
}

// secured is the same of a connection under TLS.
type secured struct {
	net.Conn

	watch *watch
}

// Close implements net.Conn.
func (c *secured) Close() error {
	c.watch.forget(c)
	return c.Conn.Close()
}

func (w *watch) forget(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

func newWatch(o Options) *watch {
	w := &watch{name: o.master(), addrs: o.Addrs, timeout: o.Timeout, open: o.Dial, conns: map[net.Conn]string{}}
	for _, addr := range o.Addrs {
		w.sentinels = append(w.sentinels, redis.NewSentinelClient(&redis.Options{
			Addr: addr, Dialer: o.Dial, ClientName: o.ClientName, PoolSize: 2, MaxRetries: -1, DialerRetries: 1,
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
	within, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	raw, err := w.open(within, network, addr)
	if err != nil {
		return nil, err
	}
	var c net.Conn = &secured{Conn: raw, watch: w}
	if tcp, ok := raw.(*net.TCPConn); ok {
		c = &plain{TCPConn: tcp, watch: w}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = addr
	return c, nil
}

// follow ends the connections to servers other than the master and returns its address.
func (w *watch) follow(ctx context.Context) (string, error) {
	addr, err := w.master(ctx)
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	var stale []net.Conn
	for c, to := range w.conns {
		if to != addr {
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
