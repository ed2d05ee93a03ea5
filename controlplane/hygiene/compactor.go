package hygiene

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
)

const (
	// LeastKeep is the shortest history that a compactor leaves.
	LeastKeep = time.Minute
	// notesPerKeep is how often etcd's revision is noted within the time kept.
	notesPerKeep = 10
)

// Deps are what the package's loops are given; Registry may be nil.
type Deps struct {
	Store    *store.Store
	View     *view.View
	Clock    clock.Clock
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Compactor gives up etcd's history. Lead runs it in the leader.
type Compactor struct {
	keep      time.Duration
	d         Deps
	notes     []note // oldest first, at most twice notesPerKeep
	compacted prometheus.Gauge
}

// note is etcd's revision at some time.
type note struct {
	at       time.Time
	revision int64
}

// NewCompactor makes a compactor that keeps so much history. 0: it compacts
// never; below LeastKeep: LeastKeep.
func NewCompactor(keep time.Duration, d Deps) (*Compactor, error) {
	if keep > 0 {
		keep = max(keep, LeastKeep)
	}
	c := &Compactor{keep: keep, d: d, compacted: prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: telemetry.Namespace, Name: "etcd_compacted_revision",
		Help: "Revision of etcd below which this replica, as the leader, gave up the history; 0: it did not yet.",
	})}
	if d.Registry == nil {
		return c, nil
	}
	return c, d.Registry.Register(c.compacted)
}

// Lead notes and compacts until ctx ends. What fails is logged and tried again the
// next time.
func (c *Compactor) Lead(ctx context.Context, leader core.Leader) error {
	if c.keep <= 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	c.notes = nil // revisions of an earlier leadership may be another etcd's
	tick := c.d.Clock.NewTicker(c.keep / notesPerKeep)
	defer tick.Stop()
	for {
		if err := c.Round(ctx, leader); err != nil && ctx.Err() == nil {
			c.d.Log.WarnContext(ctx, "etcd keeps its history for now", append([]any{telemetry.Event, "etcd_not_compacted"}, telemetry.Failure(err, rpcstatus.Reason(err), true)...)...)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		}
	}
}

// Round notes etcd's revision and compacts at what is due. Not for concurrent use.
func (c *Compactor) Round(ctx context.Context, leader core.Leader) error {
	now := c.d.Clock.Now()
	head, err := c.d.Store.Head(ctx)
	if err != nil {
		return err
	}
	c.notes = append(c.notes, note{now, head})
	if extra := len(c.notes) - 2*notesPerKeep; extra > 0 { // nothing could be compacted for long: a later one does as well
		c.notes = c.notes[extra:]
	}
	due := -1
	for i, n := range c.notes {
		if now.Sub(n.at) >= c.keep && n.revision <= c.d.View.Snapshot().Revision() {
			due = i
		}
	}
	if due < 0 {
		return nil
	}
	revision := c.notes[due].revision
	if err := c.d.Store.Compact(ctx, leader, revision); err != nil {
		return err
	}
	c.notes = c.notes[due+1:]
	c.compacted.Set(float64(revision))
	c.d.Log.DebugContext(ctx, "etcd's history was given up", telemetry.Event, "etcd_compacted", "revision", revision)
	return nil
}
