package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Bounds of one stream and one cell.
const (
	outQueue  = 1024 // messages that wait to be sent
	inQueue   = 1024 // results and facts that wait for the planner
	maxAcks   = 4096 // campaigns whose acknowledgement a stream keeps
	maxUsages = 4096 // SKUs whose report a cell keeps
	maxFaults = 32   // readiness faults kept of a process
	maxKeys   = 192  // signing keys kept of a process
)

// Options of a Hub; zero values have the default in brackets.
type Options struct {
	// LeaseTTL is the life of a process's lease without keep-alives [5s]; at least 1s.
	LeaseTTL time.Duration
	// HelloWithin bounds the wait for the first message [5s].
	HelloWithin time.Duration
	// SlowAfter is how long one send may hang while the queue is full [10s].
	SlowAfter time.Duration
	// Registry takes the metrics; nil: none.
	Registry prometheus.Registerer
}

// Deps are what a hub is given.
type Deps struct {
	Store Store
	View  View
	// Shards is asked about a shard that does not show what was seen of it.
	Shards Shards
	Clock  clock.Clock
	Log    *slog.Logger
}

// Hub holds the streams of the leadership under way. Safe for concurrent use.
type Hub struct {
	pb.UnimplementedCellLinkServiceServer
	Deps
	o Options

	mu    sync.Mutex
	reign *reign // nil: this replica does not lead
	last  uint64 // stream ids are never used again
}

// New makes a hub that refuses everybody until Lead is called.
func New(o Options, deps Deps) (*Hub, error) {
	h := &Hub{Deps: deps, o: o}
	h.o.LeaseTTL = orDefault(o.LeaseTTL, 5*time.Second)
	h.o.HelloWithin = orDefault(o.HelloWithin, 5*time.Second)
	h.o.SlowAfter = orDefault(o.SlowAfter, 10*time.Second)
	if h.o.LeaseTTL < time.Second {
		return nil, fmt.Errorf("lease_ttl: %s: must be at least 1s", h.o.LeaseTTL)
	}
	if h.Log == nil {
		h.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry != nil {
		if err := o.Registry.Register(newCollector(h)); err != nil {
			return nil, fmt.Errorf("link metrics: %w", err)
		}
	}
	return h, nil
}

func orDefault(v, fallback time.Duration) time.Duration {
	if v == 0 {
		return fallback
	}
	return v
}

var (
	errLeadershipEnded = fmt.Errorf("%w: leadership ended; say hello to the new leader", rpcstatus.ErrUnavailable)
	errSlow            = fmt.Errorf("%w: the process does not read its stream", rpcstatus.ErrExhausted)
	errOverrun         = fmt.Errorf("%w: more results than the planner takes", rpcstatus.ErrExhausted)
	errReplaced        = fmt.Errorf("%w: the process registered again", rpcstatus.ErrConflict)
	errNoHello         = fmt.Errorf("%w: the first message must be hello, in time", rpcstatus.ErrInvalidArgument)
	errSecondHello     = fmt.Errorf("%w: hello: only the first message", rpcstatus.ErrInvalidArgument)
	// errDone ends a stream without an error: its Refusal was sent, or the process
	// closed it.
	errDone = errors.New("done")
	// errAlreadyLeading is a defect of the caller.
	errAlreadyLeading = errors.New("link: two leaderships at once in one replica")
)

// Lead admits cells under a leadership until ctx, which dies with it, ends; then
// it cuts every stream and returns when the last one is gone.
func (h *Hub) Lead(ctx context.Context, leader core.Leader, events Events) error {
	r := newReign(ctx, leader, events)
	h.mu.Lock()
	if h.reign != nil {
		h.mu.Unlock()
		return errAlreadyLeading
	}
	h.reign = r
	h.mu.Unlock()
	r.wg.Go(func() { h.watch(r) })
	r.wg.Go(func() { h.write(r) })
	<-ctx.Done()
	h.mu.Lock()
	h.reign = nil
	h.mu.Unlock()
	r.wg.Wait()
	return nil
}

// enter joins the leadership under way, or nil. Who enters calls leave.
func (h *Hub) enter() *reign {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reign == nil || h.reign.ctx.Err() != nil {
		return nil
	}
	h.reign.wg.Add(1)
	return h.reign
}

func (r *reign) leave() { r.wg.Done() }

// present is the leadership under way, for reads; nil when there is none.
func (h *Hub) present() *reign {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reign
}

func (h *Hub) streamID() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	return h.last
}

// watch ends the streams of cells that were fenced, given away or moved to
// another fence version, as soon as the view shows it.
func (h *Hub) watch(r *reign) {
	for {
		changed := h.View.Changed()
		snapshot := h.View.Snapshot()
		for _, s := range r.all() {
			cell, known := snapshot.Cell(s.cell)
			s.tellKeys(snapshot)
			if !known || snapshot.Revision() < s.cellRevision() {
				continue
			}
			if refusal := stillHeld(s, cell); refusal != nil {
				s.refuse(refusal)
			}
		}
		select {
		case <-changed:
		case <-r.ctx.Done():
			return
		}
	}
}

// stillHeld says why a registered process must go, or nil.
func stillHeld(s *stream, cell core.Cell) *pb.Refusal {
	if r := judgeState(cell); r != nil {
		return r
	}
	if cell.FenceVersion != s.fenceVersion {
		return refuse(pb.RefusalCode_REFUSAL_CODE_FENCED, "cell %s is at fence version %d now; read the shard's row and register again", cell.Spec.ID, cell.FenceVersion)
	}
	if cell.InstanceGroup != s.instance.Group {
		return refuse(pb.RefusalCode_REFUSAL_CODE_OTHER_GROUP, "cell %s is held by group %s now", cell.Spec.ID, cell.InstanceGroup)
	}
	return nil
}

// cellState is a cell's state as etcd has it, SUSPECT included.
func (h *Hub) cellState(id ids.CellID, fallback core.CellState) core.CellState {
	snapshot := h.View.Snapshot()
	if cell, ok := snapshot.Cell(id); ok {
		return snapshot.CellState(cell)
	}
	return fallback
}
