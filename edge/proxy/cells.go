package proxy

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/transport"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Settings are the bounds of the package.
type Settings struct {
	Dial        transport.DialOptions
	Streams     int           // per process of a cell
	BatchMax    int           // asks in one message
	BatchWait   time.Duration // longest wait of the first ask of a batch
	InflightMax int           // asks in flight per cell
	Timeout     time.Duration // longest life of one ask
	TrustDomain string        // of the certificates that cells show
}

// Deps are what Cells need.
type Deps struct {
	Clock    clock.Clock
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Cells are the open ways to every cell in the routes. Asking takes no lock.
type Cells struct {
	set     Settings
	clock   clock.Clock
	log     *slog.Logger
	metrics *metrics

	pools atomic.Pointer[map[ids.CellID]*pool]

	ctx     context.Context //nolint:containedctx // the life of the lanes, which Sync starts
	cancel  context.CancelFunc
	mu      sync.Mutex // Sync against Close
	closed  bool
	running sync.WaitGroup
}

// cellAddresses is what Sync needs of a cell.
type cellAddresses struct {
	id    ids.CellID
	addrs []string
}

// New returns Cells that know no cell. What Sync starts ends with ctx; Close waits for it.
func New(ctx context.Context, set Settings, d Deps) *Cells {
	ctx, cancel := context.WithCancel(ctx)
	c := &Cells{set: set, clock: d.Clock, log: d.Log, metrics: newMetrics(d.Registry), ctx: ctx, cancel: cancel}
	c.pools.Store(&map[ids.CellID]*pool{})
	return c
}

// Sync opens what is new in the routes and retires what is gone. It does not wait for connections.
func (c *Cells) Sync(cells iter.Seq[*route.Cell]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	old, next := *c.pools.Load(), map[ids.CellID]*pool{}
	var retired []*peer
	for cell := range cells {
		if len(cell.Addresses) == 0 {
			continue
		}
		p, gone := c.rebuild(old[cell.ID], &cellAddresses{cell.ID, cell.Addresses})
		next[cell.ID] = p
		retired = append(retired, gone...)
	}
	for id, p := range old {
		if _, ok := next[id]; !ok {
			retired = append(retired, p.peers...)
		}
	}
	c.pools.Store(&next)
	for _, p := range retired {
		c.running.Go(func() { c.retire(p) })
	}
}

// open starts the lanes of one process.
func (c *Cells) open(cell *cellAddresses, addr string) (*peer, error) {
	dial := c.set.Dial
	dial.Peer = transport.Peer{Domain: c.set.TrustDomain, Workload: "cell/" + string(cell.id)} // no other cell may answer for it
	conn, err := transport.Dial(addr, dial)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(c.ctx)
	p := &peer{
		addr: addr, conn: conn, stop: stop,
		door: Door{Admissions: cq.NewAdmissionServiceClient(conn), Orders: cq.NewOrderServiceClient(conn), Entries: cq.NewEntryServiceClient(conn)},
	}
	for range max(c.set.Streams, 1) {
		l := &lane{
			cell: cell.id, client: p.door.Admissions, queue: make(chan *call, c.set.InflightMax),
			set: c.set, clock: c.clock, log: c.log, metrics: c.metrics,
		}
		p.lanes = append(p.lanes, l)
		c.running.Go(func() { l.run(ctx) })
	}
	return p, nil
}

// retire ends a process's lanes once no ask can wait on them any more: nobody is given them, and an
// ask lives no longer than Timeout.
func (c *Cells) retire(p *peer) {
	_ = c.clock.Sleep(c.ctx, c.set.Timeout) // ends early when everything ends
	p.stop()
	_ = p.conn.Close() // only ever fails when it is closed already
}

// Close ends all lanes and waits for them. Asks that were sent end as ErrUnknown.
func (c *Cells) Close() {
	c.mu.Lock()
	c.closed = true
	pools := *c.pools.Swap(&map[ids.CellID]*pool{})
	c.mu.Unlock()
	c.cancel()
	for p := range maps.Values(pools) {
		for one := range slices.Values(p.peers) {
			one.stop()
			_ = one.conn.Close()
		}
	}
	c.running.Wait()
}
