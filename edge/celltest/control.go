package celltest

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Control is a control plane as far as an edge sees one: it sends what the test tells it and
// records what is acknowledged.
type Control struct {
	cq.UnimplementedRoutingServiceServer

	Addr string

	mu      sync.Mutex
	sent    []*cq.WatchRoutesResponse // since the last full one, which is the first
	watches map[chan struct{}]struct{}
	acks    []int64
	keys    []string
	hellos  int
	server  *grpc.Server
}

// StartControl serves a control plane on loopback until the test ends.
func StartControl(t testing.TB) *Control {
	t.Helper()
	c := &Control{watches: map[chan struct{}]struct{}{}}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Addr = l.Addr().String()
	c.server = Serve(t, l, func(s *grpc.Server) { cq.RegisterRoutingServiceServer(s, c) })
	return c
}

// Stop ends the server.
func (c *Control) Stop() { c.server.Stop() }

// Send sends a message to every edge that watches; a full one replaces what edges that come later
// are sent.
func (c *Control) Send(m *cq.WatchRoutesResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.GetFull() {
		c.sent = nil
	}
	c.sent = append(c.sent, m)
	for changed := range c.watches {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// Acked are the acknowledged revisions, in order; hellos how often an edge came.
func (c *Control) Acked() (acks []int64, hellos int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]int64(nil), c.acks...), c.hellos
}

// Keys are the keys that an edge told of last.
func (c *Control) Keys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys
}

// WatchRoutes implements the service.
func (c *Control) WatchRoutes(stream cq.RoutingService_WatchRoutesServer) error {
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	if hello.GetEdgeId() == "" || hello.GetAckedRevision() != 0 {
		return rpcstatus.Invalid(rpcstatus.Violation{Field: "edge_id", Rule: "must be there, with revision 0 first"})
	}
	changed := make(chan struct{}, 1)
	c.mu.Lock()
	c.hellos++
	c.watches[changed] = struct{}{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.watches, changed)
		c.mu.Unlock()
	}()
	go c.record(stream)
	var newest *cq.WatchRoutesResponse
	for {
		c.mu.Lock()
		todo := after(c.sent, newest)
		c.mu.Unlock()
		for _, m := range todo {
			if err := stream.Send(m); err != nil {
				return err
			}
			newest = m
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// after is what comes after m; all of it where m is not there any more.
func after(sent []*cq.WatchRoutesResponse, m *cq.WatchRoutesResponse) []*cq.WatchRoutesResponse {
	for i, one := range sent {
		if one == m {
			return sent[i+1:]
		}
	}
	return sent
}

func (c *Control) record(stream cq.RoutingService_WatchRoutesServer) {
	for {
		m, err := stream.Recv()
		if err != nil {
			return // the stream is over
		}
		c.mu.Lock()
		c.acks, c.keys = append(c.acks, m.GetAckedRevision()), m.GetKeys()
		c.mu.Unlock()
	}
}
