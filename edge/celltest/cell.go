package celltest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/transport"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Cell is a cell that behaves. Its knobs may be turned at any time.
type Cell struct {
	cq.UnimplementedAdmissionServiceServer
	cq.UnimplementedOrderServiceServer
	cq.UnimplementedEntryServiceServer

	ID       ids.CellID
	Addr     string
	receipts *signed.KeySet

	mu       sync.Mutex
	stock    map[string]int32 // campaign/sku → units
	requests map[string]*cq.RequestView
	owners   map[string]string // campaign/sku/user → key of his request
	orders   map[string]*order
	closed   map[uint16]bool      // buckets that were given away
	carried  map[string]bool      // requests that came with a bucket
	entries  map[string]*cq.Entry // of a lottery, by user
	drawn    bool
	asked    int
	last     *cq.Ask
	lastCall *cq.GetRequestRequest
	script   func(*cq.Ask) *cq.Answer
	callErr  error
	silent   bool
	breaks   chan struct{}

	server *grpc.Server
}

// Start serves a cell on loopback until the test ends.
func Start(t testing.TB, id ids.CellID, receipts *signed.KeySet) *Cell {
	t.Helper()
	c := &Cell{
		ID: id, receipts: receipts, stock: map[string]int32{}, requests: map[string]*cq.RequestView{},
		owners: map[string]string{}, orders: map[string]*order{}, closed: map[uint16]bool{}, carried: map[string]bool{}, entries: map[string]*cq.Entry{}, breaks: make(chan struct{}),
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Addr = l.Addr().String()
	c.server = Serve(t, l, func(s *grpc.Server) {
		cq.RegisterAdmissionServiceServer(s, c)
		cq.RegisterOrderServiceServer(s, c)
		cq.RegisterEntryServiceServer(s, c)
	})
	return c
}

// Serve runs a development server with our chain on l until the test ends.
func Serve(t testing.TB, l net.Listener, register func(*grpc.Server)) *grpc.Server {
	t.Helper()
	s := transport.NewServer(transport.ServerOptions{
		Log: slog.New(slog.DiscardHandler), Dev: true, Authenticator: transport.DevWorkloads(),
	})
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return s
}

// Stop ends the server: its port refuses from now on.
func (c *Cell) Stop() { c.server.Stop() }

// SetStock gives the cell so many units of a SKU.
func (c *Cell) SetStock(campaign, sku string, units int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stock[campaign+"/"+sku] = units
}

// Stock is how many units are left.
func (c *Cell) Stock(campaign, sku string) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stock[campaign+"/"+sku]
}

// Asked is how many asks came, and the last of them.
func (c *Cell) Asked() (int, *cq.Ask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked, c.last
}

// Script makes the cell answer asks with what f returns; nil makes it behave again. f gets the ask;
// the correlation id is filled in.
func (c *Cell) Script(f func(*cq.Ask) *cq.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.script = f
}

// FailCalls makes every call that is not an ask end with err; nil makes it behave again.
func (c *Cell) FailCalls(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.callErr = err
}

// Silence makes the cell take asks and answer none.
func (c *Cell) Silence(silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = silent
}

// Break ends every stream that is open now, under whatever is on it.
func (c *Cell) Break() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.breaks)
	c.breaks = make(chan struct{})
}

// SetRequest changes what a request reads as.
func (c *Cell) SetRequest(campaign, sku, user, request string, edit func(*cq.RequestView)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.requests[key(campaign, sku, user, request)]
	if !ok {
		return fmt.Errorf("no request %s of %s", request, user)
	}
	edit(v)
	return nil
}

func key(campaign, sku, user, request string) string {
	return campaign + "/" + sku + "/" + user + "/" + request
}
