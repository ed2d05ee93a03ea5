package outbox

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/telemetry"
)

const (
	prunePage = 1000 // rows that one transaction of pruning looks at
	// A walk stops after so many pages of which nothing could go, and the next one goes on from there: an
	// outbox full of old rows that are all pending is not read from end to end each time. Pages of which
	// something went are not counted: what went is not walked over again.
	pruneIdle = 100
)

// PruneStore is the shard as the pruner needs it.
type PruneStore interface {
	PruneOutbox(ctx context.Context, after int64, limit int, keep time.Duration) (shard.Pruned, error)
	Writer() (shard.Writer, bool)
}

// PruneConfig paces the pruner. Zero values are the defaults.
type PruneConfig struct {
	Keep     time.Duration // how long a row stays after it left; 0: 1 h
	Interval time.Duration // between walks; 0: 30 s
}

// Pruner deletes rows that left long ago, so that the table is bounded by what leaves within Keep and one
// walk's interval, plus what is pending or parked. Several processes may prune side by side.
type Pruner struct {
	cfg   PruneConfig
	store PruneStore
	deps  Deps
	gone  prometheus.Counter
	after int64 // where the next walk begins
}

// NewPruner makes the loop. The error is that of registering its metric.
func NewPruner(cfg PruneConfig, store PruneStore, deps Deps) (*Pruner, error) {
	if cfg.Keep <= 0 {
		cfg.Keep = time.Hour
	}
	if cfg.Interval <= 0 {
		cfg.Interval = 30 * time.Second
	}
	p := &Pruner{cfg: cfg, store: store, deps: deps, gone: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: telemetry.Namespace, Name: "outbox_pruned_total", Help: "Outbox rows deleted because they left long enough ago.",
	})}
	if deps.Registry == nil {
		return p, nil
	}
	return p, deps.Registry.Register(p.gone)
}

// Run walks once an interval until ctx ends. A walk that fails is begun anew at the next.
func (p *Pruner) Run(ctx context.Context) error {
	tick := p.deps.Clock.NewTicker(p.cfg.Interval)
	defer tick.Stop()
	failing := false
	for {
		err := p.Walk(ctx)
		if err != nil && ctx.Err() == nil && !failing && !shard.MayNotWrite(err) {
			p.deps.Logger.WarnContext(ctx, "outbox not pruned", telemetry.Event, "outbox_prune_failed", telemetry.Error, err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Walk deletes, page by page, what may go by now, from where the last walk stopped. A process that may
// not write leaves it to another. One walk at a time.
func (p *Pruner) Walk(ctx context.Context) error {
	if _, ok := p.store.Writer(); !ok {
		return nil
	}
	for idle := 0; idle < pruneIdle; {
		page, err := p.store.PruneOutbox(ctx, p.after, prunePage, p.cfg.Keep)
		if err != nil {
			return err
		}
		p.gone.Add(float64(page.Deleted))
		if p.after = page.Next; page.Next == 0 {
			return nil
		}
		if page.Deleted == 0 {
			idle++
		}
	}
	return nil
}
