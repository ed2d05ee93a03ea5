package settle

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// actor names this room in records.
const actor = "settle"

// Cells is the hub of streams as this room sees it. link.Hub implements it through
// controlplane's adapters.
type Cells interface {
	// Held gives what the cell last reported of a SKU under this leader, and when.
	Held(cell ids.CellID, key core.BookKey) (core.HeldFacts, bool)
	// CampaignReady lists which live processes of the cells do not serve a version of
	// the campaign, and cells without one. Empty: all do.
	CampaignReady(campaign ids.CampaignID, version int64, cells []ids.CellID) []string
}

// Config paces the driver.
type Config struct {
	// Interval between two looks at everything; 0: 1 s.
	Interval time.Duration
	// After is how long after the end of a sale settling waits at least, so that
	// clocks that differ have all passed it.
	After time.Duration
}

// Deps are what a Driver is given. All are required but Archive.
type Deps struct {
	Store   *store.Store
	View    *view.View
	Shards  *shards.Reader
	Mirrors verify.Mirrors
	Cells   Cells
	// Archive is nil where no archive_dir is configured: nothing settles then, and
	// blocked_by says so.
	Archive archive.Archive
	Metrics *Metrics // nil: none
	Clock   clock.Clock
	Log     *slog.Logger
}

// Driver is the leader's loop of this room. Make it with New.
type Driver struct {
	Deps
	cfg      Config
	accounts undersell.Reader

	mu sync.Mutex
	// pruned: campaigns whose archived records this leadership found gone.
	pruned map[ids.CampaignID]bool
	// next is when the shards are asked again about a campaign that was blocked.
	next map[ids.CampaignID]time.Time
	// follows is when the shards are asked again about a cancelling.
	follows map[string]time.Time
}

// maxFollows bounds follows; forgetting one costs a question.
const maxFollows = 1024

// rest paces what reads shards: a look that took a second is repeated no sooner than
// rest seconds later, so that waiting for an end costs a cell next to nothing.
const rest = 20

// campaignsAtOnce bounds the campaigns that are settled at the same time: each reads
// the shards of its cells (atOnce), and one whose shard hangs holds up nobody else's.
const campaignsAtOnce = 8

// New makes a driver; it does nothing before Lead or Step.
func New(cfg Config, d Deps) *Driver {
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	return &Driver{Deps: d, cfg: cfg, pruned: map[ids.CampaignID]bool{}, next: map[ids.CampaignID]time.Time{}, follows: map[string]time.Time{}, accounts: undersell.Reader{Plane: undersell.Fresh{Store: d.Store, View: d.View}, Shards: d.Shards, Clock: d.Clock, Totals: true}}
}

// Lead looks at everything at each interval until ctx ends. It looks at the clock
// and not at changes of the view: what it waits for is in the shards.
func (d *Driver) Lead(ctx context.Context, leader core.Leader) error {
	head, err := d.Store.Head(ctx)
	if err != nil {
		return err
	}
	if _, err := d.View.WaitFor(ctx, head); err != nil { // nothing is decided on a view from before this term
		return err
	}
	d.forget()
	tick := d.Clock.NewTicker(d.cfg.Interval)
	defer tick.Stop()
	for {
		d.Tick(ctx, leader)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		}
	}
}

// Tick is one look, in numbered steps. Finality asks no shard and goes first;
// settling asks those of the campaign's cells, several campaigns at once. A look that
// a hanging shard made long comes again much later only (rest), so that it takes a
// small part of the time of the others' ticks.
func (d *Driver) Tick(ctx context.Context, leader core.Leader) {
	s := d.View.Snapshot()
	all := s.Campaigns()
	for _, c := range all {
		if ctx.Err() != nil {
			return
		}
		d.note(ctx, d.finals(ctx, leader, s, c), "finality was not decided", c) // 1. final
	}
	each(all, campaignsAtOnce, func(c core.Campaign) error {
		if ctx.Err() == nil {
			d.note(ctx, d.settle(ctx, leader, c), "campaign was not settled", c) // 2. settle
		}
		return nil
	})
	d.Metrics.keep(s)
}

// forget drops what an earlier leadership of this process remembered.
func (d *Driver) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pruned, d.next = map[ids.CampaignID]bool{}, map[ids.CampaignID]time.Time{}
}

// due tells whether a campaign's shards may be asked again.
func (d *Driver) due(id ids.CampaignID, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !now.Before(d.next[id])
}

// dueAgain notes when they may be asked the next time.
func (d *Driver) dueAgain(id ids.CampaignID, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next[id] = at
}

func (d *Driver) wasPruned(id ids.CampaignID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pruned[id]
}

func (d *Driver) isPruned(id ids.CampaignID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pruned[id] = true
}

// note logs an error of one step; the next tick tries again. Losing the lead or the
// process's end is no news, nor is a fact that moved meanwhile.
func (d *Driver) note(ctx context.Context, err error, what string, c core.Campaign) {
	if err == nil || ctx.Err() != nil || errors.Is(err, core.ErrNotLeader) || errors.Is(err, core.ErrNotFinal) || errors.Is(err, core.ErrVersion) || errors.Is(err, errMoved) {
		return
	}
	d.Log.WarnContext(ctx, what, append([]any{telemetry.Event, "settle_step_failed", telemetry.CampaignID, c.Spec.ID}, telemetry.Failure(err, rpcstatus.Reason(err), true)...)...)
}

// errMoved: somebody moved the campaign; the next tick looks again.
var errMoved = errors.New("the campaign moved meanwhile")
