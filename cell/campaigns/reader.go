package campaigns

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Source is the shard, as far as rules go. *shard.Store is one.
type Source interface {
	Campaigns(ctx context.Context) ([]shard.CampaignRow, error)
	Switch(ctx context.Context) (shard.Switch, error)
}

// Reader keeps the snapshot fresh.
type Reader struct {
	source  Source
	clock   clock.Clock
	log     *slog.Logger
	every   time.Duration
	current atomic.Pointer[Snapshot]
	read    atomic.Pointer[time.Time]
	nudge   chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
}

// NewReader reads every interval [250 ms]; Run does the reading.
func NewReader(source Source, every time.Duration, c clock.Clock, log *slog.Logger) *Reader {
	if every <= 0 {
		every = 250 * time.Millisecond
	}
	r := &Reader{source: source, clock: c, log: log, every: every, nudge: make(chan struct{}, 1), changed: make(chan struct{})}
	r.current.Store(&Snapshot{})
	return r
}

// Current is the newest snapshot; empty before the first read.
func (r *Reader) Current() *Snapshot { return r.current.Load() }

// Ready tells whether rules were ever read, and how long ago.
func (r *Reader) Ready() (age time.Duration, ok bool) {
	at := r.read.Load()
	if at == nil {
		return 0, false
	}
	return r.clock.Now().Sub(*at), true
}

// Changed gives a channel that is closed at the next change of any campaign.
func (r *Reader) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Nudge asks for a read now: rules were just installed by this process.
func (r *Reader) Nudge() {
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// Run reads until ctx ends. A failed read is logged once per streak and tried again.
func (r *Reader) Run(ctx context.Context) error {
	tick := r.clock.NewTicker(r.every)
	defer tick.Stop()
	failing := false
	for {
		err := r.Refresh(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			r.log.WarnContext(ctx, "rules could not be read; serving the last ones", telemetry.Event, "campaigns_read_failed", telemetry.Error, err.Error())
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		case <-r.nudge:
		}
	}
}

// Refresh reads once.
func (r *Reader) Refresh(ctx context.Context) error {
	rows, err := r.source.Campaigns(ctx)
	if err != nil {
		return err
	}
	paused, err := r.source.Switch(ctx)
	if err != nil {
		return err
	}
	last := r.current.Load()
	next, changed := newSnapshot(rows, last)
	next.cell = paused
	changed = changed || paused != last.cell
	now := r.clock.Now()
	r.current.Store(next)
	r.read.Store(&now)
	if changed {
		r.mu.Lock()
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
	}
	return nil
}
