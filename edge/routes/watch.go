package routes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Pauses between two cycles: doubled from the first to the last, each shortened by up to a half at
// random, so that edges do not come back together (K44).
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// maxRefused is how many snapshots older than the one being served are refused in a row. A replica
// that lags must not take an edge back behind what it has acknowledged; but when every replica says
// so for half a minute, it is etcd that went back, and the control plane knows better.
const maxRefused = 10

// errOlder ends a cycle with a replica that is behind this edge.
var errOlder = errors.New("the replica's view is older than what this edge has acknowledged")

// Deps are what a Watcher needs.
type Deps struct {
	EdgeID string // this process; unique among the edges
	// Replicas are the control-plane replicas, at least one; a cycle uses one, the next another.
	Replicas []cq.RoutingServiceClient
	// Applied, if not nil, is told each new snapshot before it is acknowledged.
	Applied func(*Snapshot)
	// Keys names the signing keys whose bytes this edge has, "USE/KID"; nil: it tells of none.
	Keys     func() []string
	Clock    clock.Clock
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Watcher keeps a Store current. Run is its one goroutine.
type Watcher struct {
	*Store
	deps      Deps
	connected atomic.Bool
	refused   int // older snapshots in a row; of Run's goroutine
}

// NewWatcher returns a watcher that has seen nothing yet.
func NewWatcher(d Deps) (*Watcher, error) {
	if len(d.Replicas) == 0 {
		return nil, errors.New("routes: no control-plane replica given")
	}
	m := newMetrics(d.Registry)
	store, err := newStore(d.Clock, d.Log, m)
	if err != nil {
		return nil, err
	}
	return &Watcher{Store: store, deps: d}, nil
}

// Connected reports whether the copy is being kept current right now.
func (w *Watcher) Connected() bool { return w.connected.Load() }

// Run watches until ctx ends, which is the only way it ends.
func (w *Watcher) Run(ctx context.Context) error {
	pause := firstPause
	for cycle := 0; ; cycle++ {
		w.metrics.cycles.Inc()
		applied, err := w.cycle(ctx, w.deps.Replicas[cycle%len(w.deps.Replicas)])
		w.connected.Store(false)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if applied > 0 {
			pause = firstPause
		}
		w.log.WarnContext(ctx, "watch of routes ended; the last snapshot is served",
			slog.String(telemetry.Event, "routes_watch_ended"), slog.Any(telemetry.Error, err), slog.Duration("pause", pause))
		if err := w.clock.Sleep(ctx, pause/2+rand.N(pause/2)); err != nil {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// cycle is one connection to one replica; it returns how many messages it applied.
func (w *Watcher) cycle(ctx context.Context, replica cq.RoutingServiceClient) (applied int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// 1. Connect: hello with revision 0, so that everything is sent.
	stream, err := replica.WatchRoutes(ctx)
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	say := w.speaker(stream)
	if err := say.acknowledge(0); err != nil {
		return 0, fmt.Errorf("hello: %w", err)
	}
	telling := make(chan struct{})
	go func() { defer close(telling); say.keys(ctx) }()
	defer func() { cancel(); <-telling }()
	for {
		// 2. Apply one message.
		m, err := stream.Recv()
		if err != nil {
			return applied, fmt.Errorf("receive: %w", err)
		}
		if applied == 0 {
			if err := w.first(m); err != nil {
				return 0, err
			}
		}
		if err := w.apply(m); err != nil {
			return applied, err
		}
		applied++
		w.connected.Store(true)
		if w.deps.Applied != nil {
			w.deps.Applied(w.Snapshot())
		}

		// 3. Acknowledge what readers can now see.
		if err := say.acknowledge(m.GetRevision()); err != nil {
			return applied, fmt.Errorf("acknowledge: %w", err)
		}
	}
}

// first judges the message that opens a cycle.
func (w *Watcher) first(m *cq.WatchRoutesResponse) error {
	if !m.GetFull() {
		return errors.New("receive: the first message is not a full snapshot")
	}
	if have := w.Snapshot(); have != nil && m.GetRevision() < have.Revision && w.refused < maxRefused {
		w.refused++
		return fmt.Errorf("%w: revision %d, have %d", errOlder, m.GetRevision(), have.Revision)
	}
	w.refused = 0
	return nil
}
