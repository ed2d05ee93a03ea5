package baseline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Shard is the shard as the loop needs it; *shard.Store is one.
type Shard interface {
	Writer() (shard.Writer, bool)
	MintBuild(ctx context.Context, campaign ids.CampaignID, scopeKey, owner string, lease time.Duration) (shard.Mint, error)
	RaiseBuild(ctx context.Context, campaign ids.CampaignID, scopeKey string, build ids.Build) error
	AwaitRaised(ctx context.Context, campaign ids.CampaignID, scopeKey string, build ids.Build) error
	Baseline(ctx context.Context, campaign ids.CampaignID, scopeKey string) (raised ids.Build, open bool, err error)
	OpenBaseline(ctx context.Context, campaign ids.CampaignID, scopeKey, owner string, build ids.Build) error
}

// Mirror is Redis, as far as it is there at all; *admission.Client is one.
type Mirror interface {
	Server(ctx context.Context) (string, error)
}

// Log writes a build's barrier into every partition; *relay.Producer is one.
type Log interface {
	Barrier(ctx context.Context, scope admission.Scope, build ids.Build) error
}

// Config of a Loop. Zero values take the defaults in brackets.
type Config struct {
	Owner    string        // names this process's claims; not empty
	Interval time.Duration // between looks [250ms]
	After    time.Duration // how long Redis must be silent [3s]
	Timeout  time.Duration // of one opening, barrier included [10s]
}

const (
	pingTimeout = 2 * time.Second
	longestWait = time.Minute // between two tries that nobody overtook
	// Whoever is overtaken has lost Redis alone: others have it and built a mirror anew. Each try closes
	// that one for as long as a rebuild takes, so they are few: after one minute, two, four, …
	overtakenWait    = time.Minute
	overtakenLongest = 30 * time.Minute
)

// Loop opens baselines, and tells this process which are open.
type Loop struct {
	cfg    Config
	shard  Shard
	mirror Mirror
	log    Log
	scopes func() []admission.Scope
	clock  clock.Clock
	logger *slog.Logger

	open atomic.Pointer[map[admission.Scope]bool]

	heard  time.Time // when Redis last answered, or nothing needed it
	tries  map[admission.Scope]*tried
	warned bool
}

// tried is what the loop remembers of a scope while Redis is away.
type tried struct {
	times     int
	at        time.Time
	build     ids.Build // of the last try; zero: it was not minted
	overtaken int       // tries after which others made a newer build, in a row
}

// wait is the least time after the last try; raised is the shard's build.
func (t *tried) wait(raised ids.Build, after time.Duration) time.Duration {
	if !t.build.IsZero() && raised.Compare(t.build) > 0 {
		t.overtaken, t.build = t.overtaken+1, ids.Build{}
	}
	if t.overtaken > 0 {
		return min(overtakenWait<<min(t.overtaken-1, 8), overtakenLongest)
	}
	return min(after<<(t.times-1), longestWait)
}

// New makes a loop; scopes names the mirrors that have a baseline, at each look.
func New(cfg Config, s Shard, m Mirror, log Log, scopes func() []admission.Scope, c clock.Clock, logger *slog.Logger) *Loop {
	for _, d := range []struct {
		at  *time.Duration
		def time.Duration
	}{{&cfg.Interval, 250 * time.Millisecond}, {&cfg.After, 3 * time.Second}, {&cfg.Timeout, 10 * time.Second}} {
		if *d.at <= 0 {
			*d.at = d.def
		}
	}
	l := &Loop{cfg: cfg, shard: s, mirror: m, log: log, scopes: scopes, clock: c, logger: logger, tries: map[admission.Scope]*tried{}}
	l.open.Store(&map[admission.Scope]bool{})
	return l
}

// Open implements api.Baselines: Redis is away from this process, and the shard alone sells.
func (l *Loop) Open(scope admission.Scope) bool { return (*l.open.Load())[scope] }

// Run looks every interval until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	tick := l.clock.NewTicker(l.cfg.Interval)
	defer tick.Stop()
	l.heard = l.clock.Now()
	for {
		if err := l.Look(ctx); err != nil && ctx.Err() == nil && !l.warned {
			l.warned = true
			l.logger.WarnContext(ctx, "a baseline could not be opened", telemetry.Event, "baseline_failed", telemetry.Error, err.Error(), telemetry.Retryable, true)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Look looks once. The error joins what went wrong; the next look goes on.
func (l *Loop) Look(ctx context.Context) error {
	scopes := l.scopes()
	writer, writes := l.shard.Writer()
	if len(scopes) == 0 || !writes || l.answers(ctx) {
		l.heard, l.warned = l.clock.Now(), false
		clear(l.tries)
		l.open.Store(&map[admission.Scope]bool{})
		return nil
	}
	if l.clock.Now().Sub(l.heard) < l.cfg.After {
		return nil
	}
	open := map[admission.Scope]bool{}
	var failed error
	for _, s := range scopes {
		ok, err := l.lookAt(ctx, s, writer.FenceVersion)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("baseline of %s: %w", s.Tag(), err))
		}
		open[s] = ok
	}
	l.open.Store(&open)
	return failed
}

// answers tells whether Redis is there: one that answers anything is the rebuild's affair.
func (l *Loop) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := l.mirror.Server(ctx)
	return !errors.Is(err, admission.ErrUnavailable)
}

// lookAt finds a scope's baseline open, or opens it.
func (l *Loop) lookAt(ctx context.Context, s admission.Scope, fence int64) (bool, error) {
	raised, open, err := l.shard.Baseline(ctx, s.Campaign, s.Key())
	if err != nil || open && raised.Fence == fence {
		return open && err == nil, err
	}
	t := l.tries[s]
	if t == nil {
		t = &tried{}
		l.tries[s] = t
	}
	if t.times > 0 && l.clock.Now().Sub(t.at) < t.wait(raised, l.cfg.After) {
		return false, nil
	}
	t.times, t.at = min(t.times+1, 16), l.clock.Now()
	build, err := l.begin(ctx, s, t)
	if errors.Is(err, shard.ErrBusy) {
		t.times-- // another process is at it
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.logger.WarnContext(ctx, "Redis is away: the shard alone sells, slowly", telemetry.Event, "baseline_opened",
		telemetry.CampaignID, string(s.Campaign), telemetry.SKUID, string(s.SKU), "build", build.String())
	return true, nil
}

// begin mints, raises and opens.
func (l *Loop) begin(ctx context.Context, s admission.Scope, t *tried) (ids.Build, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	mint, err := l.shard.MintBuild(ctx, s.Campaign, s.Key(), l.cfg.Owner, 2*l.cfg.Timeout)
	if err != nil {
		return ids.Build{}, err
	}
	t.build = mint.Build
	if err := l.raise(ctx, s, mint); err != nil {
		return ids.Build{}, err
	}
	return mint.Build, l.shard.OpenBaseline(ctx, s.Campaign, s.Key(), l.cfg.Owner, mint.Build)
}

// raise waits until no admission of an older build can become an order.
func (l *Loop) raise(ctx context.Context, s admission.Scope, mint shard.Mint) error {
	if !mint.NeedsBarrier {
		return l.shard.RaiseBuild(ctx, s.Campaign, s.Key(), mint.Build)
	}
	if err := l.log.Barrier(ctx, s, mint.Build); err != nil {
		return err
	}
	return l.shard.AwaitRaised(ctx, s.Campaign, s.Key(), mint.Build)
}
