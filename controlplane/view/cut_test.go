package view_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// cut is a wire to a server that can be cut: connections break, new ones are
// refused until it is joined again.
type cut struct {
	listener net.Listener
	upstream string

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]struct{}
}

func newCut(t *testing.T, upstream string) *cut {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cut{listener: l, upstream: upstream, conns: map[net.Conn]struct{}{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.Down()
		wg.Wait()
	})
	return c
}

func (c *cut) Addr() string { return c.listener.Addr().String() }

func (c *cut) serve(near net.Conn) {
	far, err := net.Dial("tcp", c.upstream)
	if err != nil || !c.hold(near, far) {
		_ = near.Close()
		if err == nil {
			_ = far.Close()
		}
		return
	}
	var wg sync.WaitGroup
	pipe := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.Close()
	}
	wg.Go(func() { pipe(far, near) })
	wg.Go(func() { pipe(near, far) })
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, near)
	delete(c.conns, far)
}

// hold remembers the connections to break; false while the wire is cut.
func (c *cut) hold(conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return false
	}
	for _, conn := range conns {
		c.conns[conn] = struct{}{}
	}
	return true
}

func (c *cut) Down() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	for conn := range c.conns {
		_ = conn.Close()
	}
}

func (c *cut) Up() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = false
}
