package fault

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Way is a direction of the wire.
type Way int

// The directions. Answers flow ToClient.
const (
	ToServer Way = 1 << iota
	ToClient
	BothWays = ToServer | ToClient
)

// Proxy is one wire to one server. Safe for concurrent use.
type Proxy struct {
	listener net.Listener
	upstream string
	wg       sync.WaitGroup

	mu       sync.Mutex
	broken   bool
	silent   Way
	delay    time.Duration
	lossy    map[net.Conn]bool // connections over which bytes vanished
	conns    map[net.Conn]net.Conn
	accepted int
	closed   chan struct{}
}

// New is a wire to the server at upstream (host:port), whole until it is hurt. It
// is gone when the test ends.
func New(t testing.TB, upstream string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("fault proxy: %v", err)
	}
	p := &Proxy{listener: l, upstream: upstream, lossy: map[net.Conn]bool{}, conns: map[net.Conn]net.Conn{}, closed: make(chan struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		close(p.closed)
		_ = l.Close()
		p.Break()
		p.wg.Wait()
	})
	return p
}

// Addr is where clients reach the server through the wire, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Lead sends the connections that follow to another server, as a name or an address that moved does;
// those that are there end.
func (p *Proxy) Lead(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = upstream
	for near := range p.conns {
		p.cut(near)
	}
}

// Accepted counts the connections that were made, refused ones not among them.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Break ends every connection and refuses new ones until Heal.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	for near := range p.conns {
		p.cut(near)
	}
}

// Reset ends every connection at once with a reset (RST), as a machine does that
// was started anew; new ones are taken.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for near, far := range p.conns {
		for _, end := range []net.Conn{near, far} {
			if tcp, ok := end.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		}
		p.cut(near)
	}
}

// Silence lets bytes vanish in a direction, of present connections and of new
// ones, until Heal or another Silence.
func (p *Proxy) Silence(way Way) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = way
}

// Delay holds every piece of bytes back for d, in both directions; 0: not any more.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal makes the wire whole. Connections that lost bytes are broken.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken, p.silent, p.delay = false, 0, 0
	for near := range p.lossy {
		p.cut(near)
	}
}

// cut ends one connection; p.mu is held.
func (p *Proxy) cut(near net.Conn) {
	_ = near.Close()
	if far := p.conns[near]; far != nil {
		_ = far.Close()
	}
}
