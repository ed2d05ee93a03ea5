// Package freeze tells the planner which SKUs of which cells stand still: while a finding of a quantity is
// open there, nothing tops up, takes back or rebalances its units by itself. Sales go on, and what
// an operator asks for by hand is done.
//
// The leader reads the findings from the shards (v_frozen_skus), a page of one query per cell and interval.
// A shard that does not answer keeps its last word; one that was never read bars all its SKUs: unknown is
// not "no finding".
//
// Neighbours: report/shards reads; planner asks and names the finding as the reason.
package freeze

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

const (
	defaultInterval = 5 * time.Second
	atOnce          = 16 // shards read at the same time
)

// Watch reads what stands still. Safe for concurrent use.
type Watch struct {
	interval time.Duration // 0: 5 s
	view     *view.View
	reader   *shards.Reader
	clock    clock.Clock
	log      *slog.Logger

	mu   sync.RWMutex
	read map[ids.CellID]map[core.BookKey]string // the finding that holds a SKU; no entry: never read
}

// New makes a watch that has read nothing yet.
func New(interval time.Duration, v *view.View, r *shards.Reader, c clock.Clock, log *slog.Logger) *Watch {
	if interval <= 0 {
		interval = defaultInterval
	}
	return &Watch{interval: interval, view: v, reader: r, clock: c, log: log, read: map[ids.CellID]map[core.BookKey]string{}}
}

// Why tells in words what holds a SKU of a cell; "": nothing does.
func (w *Watch) Why(cell ids.CellID, key core.BookKey) string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	of, read := w.read[cell]
	if !read {
		return "the findings of its shard were not read yet"
	}
	if finding := of[key]; finding != "" {
		return "FROZEN: finding " + finding + " of its ledgers is open"
	}
	return ""
}

// Lead reads every interval until ctx ends.
func (w *Watch) Lead(ctx context.Context) error {
	tick := w.clock.NewTicker(w.interval)
	defer tick.Stop()
	for {
		w.Read(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Read reads every cell's shard once.
func (w *Watch) Read(ctx context.Context) {
	room := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, cell := range w.view.Snapshot().Cells() {
		if cell.State == core.CellRetired {
			continue
		}
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			w.one(ctx, cell)
		})
	}
	all.Wait()
}

func (w *Watch) one(ctx context.Context, cell core.Cell) {
	shard, err := w.reader.Snapshot(ctx, cell.Spec.Shard.ReaderDSNFile)
	if err != nil {
		return // its last word stands
	}
	defer shard.Close(ctx)
	list, err := shard.FrozenSKUs(ctx)
	if err != nil {
		return
	}
	of := map[core.BookKey]string{}
	for _, z := range list {
		of[core.BookKey{Campaign: ids.CampaignID(z.Campaign), SKU: ids.SKUID(z.SKU)}] = z.Finding
	}
	w.mu.Lock()
	before := w.read[cell.Spec.ID]
	w.read[cell.Spec.ID] = of
	w.mu.Unlock()
	if !maps.Equal(before, of) && len(of)+len(before) > 0 {
		w.log.WarnContext(ctx, "the SKUs of a cell that findings hold have changed", telemetry.Event, "skus_frozen", telemetry.CellID, cell.Spec.ID, "before", len(before), "now", len(of))
	}
}
