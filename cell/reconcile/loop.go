package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Shard is the shard as the loop needs it; *shard.Store is one.
type Shard interface {
	Writer() (shard.Writer, bool)
	ReconcileKnown(ctx context.Context) (bool, error)
	ClaimReconcile(ctx context.Context, owner string, lease time.Duration) (shard.Walk, error)
	AdvanceReconcile(ctx context.Context, owner string, cursor ids.ReservationID, ended bool, took time.Duration) error
	ReleaseReconcile(ctx context.Context, owner string) error
	NextRun(ctx context.Context) (shard.ReconcileRun, bool, error)
	BeginRun(ctx context.Context, id string) error
	EndRun(ctx context.Context, r shard.ReconcileRun) error
	Look(ctx context.Context, list []ids.ReservationID) (shard.Look, error)
	Places(ctx context.Context, of []shard.BuyerFact) ([]shard.BuyerFact, error)
	StockFacts(ctx context.Context, campaign ids.CampaignID) ([]shard.StockFact, error)
	AdjustmentFacts(ctx context.Context, campaign ids.CampaignID, after string, limit int) ([]shard.AdjustmentFact, error)
	RecordFinding(ctx context.Context, f shard.Finding, mirror any) (bool, error)
	MetFinding(ctx context.Context, id string) (bool, error)
	OpenFindings(ctx context.Context, limit int) ([]shard.Finding, error)
	LookedFindings(ctx context.Context, list []string) error
	FindingCounts(ctx context.Context) ([]shard.FindingCount, error)
	Finding(ctx context.Context, id string) (shard.Finding, error)
	FrozenBy(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID) (string, error)
	Repairs
}

// Mirror is Redis as the loop needs it; *admission.Client is one.
type Mirror interface {
	Facts(ctx context.Context, scope admission.Scope, sku ids.SKUID) (admission.Facts, error)
	RecordPage(ctx context.Context, scope admission.Scope, cursor uint64, limit int64) (admission.SeenPage, error)
	ReadRecords(ctx context.Context, scope admission.Scope, build ids.Build, of []admission.Seen) ([]admission.Seen, error)
	MarkPage(ctx context.Context, scope admission.Scope, build ids.Build, cursor uint64, limit int64) ([]admission.Mark, uint64, error)
	ReadMarks(ctx context.Context, scope admission.Scope, build ids.Build, users []string) ([]admission.Mark, error)
	Trails(ctx context.Context, scope admission.Scope, build ids.Build, of []admission.Seen) ([]admission.Trail, error)
	GivenBack(ctx context.Context, scope admission.Scope, build ids.Build, effects []string) ([]bool, error)
}

// Log takes messages again; *relay.Producer is one.
type Log interface {
	Produce(list []admission.Granted, done func(admission.Granted, error))
}

// Place is one SKU of one mirror.
type Place struct {
	Scope admission.Scope
	SKU   ids.SKUID
}

// Config paces and bounds the loop. Zero values are the defaults.
type Config struct {
	Cell     ids.CellID
	Owner    string        // names this process's claim; not empty
	Interval time.Duration // between cycles, and looks for runs and open findings; 0: 1 s
	Page     int           // rows of one page; 0: 1,000
	Rate     int           // rows per second while nobody asked for a run; 0: 20,000
	InFlight time.Duration // an admission without an outcome is under way so long; 0: 1 m
	Settle   time.Duration // an outcome whose effects have left; 0: 5 s
	Overdue  time.Duration // an order that should be closed; 0: 1 m
	Confirm  time.Duration // between the two looks; 0: 1 s
	Lease    time.Duration // of the claim; 0: 15 s
	// Fresh bounds the new findings of one comparison, those of kinds that freeze a SKU apart from the
	// others; 0: 1,000. What is beyond is counted, and written by the comparisons that follow.
	Fresh int
	// RepairTries and RepairFor are the budget of automatic repairs of one finding; 0: 10, and 1 m.
	RepairTries int
	RepairFor   time.Duration
	// ProposeOnly: nothing is repaired by itself; what would be waits for a person.
	ProposeOnly bool
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.Interval, time.Second},
		{&c.InFlight, time.Minute},
		{&c.Settle, 5 * time.Second},
		{&c.Overdue, time.Minute},
		{&c.Confirm, time.Second},
		{&c.Lease, 15 * time.Second},
		{&c.RepairFor, time.Minute},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if c.Page <= 0 {
		c.Page = 1000
	}
	if c.RepairTries <= 0 {
		c.RepairTries = 10
	}
	if c.Fresh <= 0 {
		c.Fresh = 1000
	}
	if c.Rate <= 0 {
		c.Rate = 20_000
	}
	return c
}

// Deps of a Loop.
type Deps struct {
	Clock    clock.Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Loop compares the ledgers of a cell. Every process of the role runs one; one of them compares.
type Loop struct {
	cfg     Config
	cell    ids.CellID
	bounds  bounds
	shard   Shard
	pages   Pages
	mirror  Mirror
	scopes  func() []Place
	sender  Log
	deps    Deps
	log     *slog.Logger
	metrics *metrics

	claimed time.Time // when the claim was renewed last
	known   bool      // the schema has findings
	last    string    // fault that was logged

	lacking  map[string]string // what mirrors lacked in the last walk, by finding
	doubtful bool              // the last walk saw some of it for the first time
}

// New makes a loop over the mirrors that scopes names at each cycle.
func New(cfg Config, s Shard, pages Pages, m Mirror, sender Log, scopes func() []Place, deps Deps) (*Loop, error) {
	if cfg.Owner == "" || cfg.Cell == "" {
		return nil, errors.New("reconcile: owner and cell must not be empty")
	}
	cfg = cfg.withDefaults()
	ms, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, err
	}
	return &Loop{
		cfg: cfg, cell: cfg.Cell, bounds: bounds{cfg.InFlight, cfg.Settle, cfg.Overdue}, shard: s, pages: pages, mirror: m, sender: sender, scopes: scopes, deps: deps,
		log: deps.Logger, metrics: ms,
	}, nil
}

var (
	// errMirror: a mirror did not answer; the comparison goes on without it.
	errMirror = errors.New("reconcile: the mirror does not answer")
	// errRun: somebody asked for a run, which goes first.
	errRun = errors.New("reconcile: a run was asked for")
)

func isMirrors(err error) bool { return errors.Is(err, errMirror) }

// Run compares until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	tick := l.deps.Clock.NewTicker(l.cfg.Interval)
	defer tick.Stop()
	for {
		l.note(ctx, l.Cycle(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// note logs a fault once. One that holds the claim elsewhere, or may not write now, is none.
func (l *Loop) note(ctx context.Context, err error) {
	text := ""
	if err != nil && ctx.Err() == nil && !errors.Is(err, errRun) && !errors.Is(err, shard.ErrBusy) && !shard.MayNotWrite(err) {
		text = err.Error()
	}
	if text != "" && text != l.last {
		l.log.WarnContext(ctx, "the ledgers could not be compared", telemetry.Event, "reconcile_failed", telemetry.Error, err, telemetry.Retryable, true)
	}
	l.last = text
}

// Cycle does one round: claim, a run if one was asked for, else the rest of the cycle at the configured
// rate; then it looks after open findings. ErrBusy: another process compares.
func (l *Loop) Cycle(ctx context.Context) error {
	if _, ok := l.shard.Writer(); !ok {
		return nil
	}
	if !l.known {
		known, err := l.shard.ReconcileKnown(ctx)
		if err != nil || !known {
			return err // a schema of an earlier step: it comes while we run
		}
		l.known = true
	}
	at, err := l.shard.ClaimReconcile(ctx, l.cfg.Owner, l.cfg.Lease)
	if err != nil {
		return err
	}
	l.claimed = l.deps.Clock.Now()
	if err := l.Runs(ctx); err != nil {
		return err
	}
	w := l.newWalk("", true)
	started := l.deps.Clock.Now()
	err = w.whole(ctx, at.Cursor)
	if err == nil {
		err = l.shard.AdvanceReconcile(ctx, l.cfg.Owner, "", at.Cursor == "", l.deps.Clock.Now().Sub(started))
		l.metrics.cycled(l.deps.Clock.Now().Sub(started), w)
		l.notePutOff(ctx, w.putOff)
	}
	if errors.Is(err, errRun) {
		err = l.Runs(ctx)
	}
	if err != nil {
		return err
	}
	return l.lookAfter(ctx)
}

// Runs does every full comparison that was asked for.
func (l *Loop) Runs(ctx context.Context) error {
	for {
		run, found, err := l.shard.NextRun(ctx)
		if err != nil || !found {
			return err
		}
		if err := l.shard.BeginRun(ctx, run.ID); err != nil {
			return err
		}
		w := l.newWalk(run.Campaign, false)
		started := l.deps.Clock.Now()
		if err := w.whole(ctx, ""); err != nil {
			return err
		}
		if l.doubtful { // once more, to tell a loss from one that is named by id
			again := l.newWalk(run.Campaign, false)
			if err := again.whole(ctx, ""); err != nil {
				return err
			}
			w = again
		}
		l.metrics.cycled(l.deps.Clock.Now().Sub(started), w)
		run.Requests, run.Found, run.Detail = w.requests, w.found, strings.Join(w.leftOpen(), "; ")
		if err := l.shard.EndRun(ctx, run); err != nil {
			return err
		}
		l.log.InfoContext(ctx, "ledgers compared in full", telemetry.Event, "reconcile_run", "run_id", run.ID, telemetry.CampaignID, run.Campaign,
			"requests", run.Requests, "found", run.Found, "took", l.deps.Clock.Now().Sub(started).String(), "unread", run.Detail)
	}
}

// between is called after every page: it keeps the claim, keeps the pace, and lets a run that was asked
// for go first. cursor, when there is one, is how far the database was walked.
func (w *walk) between(ctx context.Context, rows int, cursor ids.ReservationID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.deps.Clock.Now().Sub(w.claimed) > w.cfg.Lease/3 {
		if _, err := w.shard.ClaimReconcile(ctx, w.cfg.Owner, w.cfg.Lease); err != nil {
			return err
		}
		w.claimed = w.deps.Clock.Now()
		if w.paced && cursor != "" {
			if err := w.shard.AdvanceReconcile(ctx, w.cfg.Owner, cursor, false, 0); err != nil {
				return err
			}
		}
	}
	if !w.paced {
		return nil
	}
	if _, wanted, err := w.shard.NextRun(ctx); err != nil || wanted {
		return errors.Join(err, errRun)
	}
	return w.deps.Clock.Sleep(ctx, time.Duration(rows)*time.Second/time.Duration(w.cfg.Rate))
}
