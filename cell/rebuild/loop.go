package rebuild

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Shard is the shard as the loop needs it.
type Shard interface {
	Writer() (shard.Writer, bool)
	Identity(ctx context.Context) (string, error)
	RaisedBuild(ctx context.Context, campaign ids.CampaignID, scopeKey string) (ids.Build, error)
	MintBuild(ctx context.Context, campaign ids.CampaignID, scopeKey, owner string, lease time.Duration) (shard.Mint, error)
	RaiseBuild(ctx context.Context, campaign ids.CampaignID, scopeKey string, build ids.Build) error
	AwaitRaised(ctx context.Context, campaign ids.CampaignID, scopeKey string, build ids.Build) error
	ReleaseMint(ctx context.Context, campaign ids.CampaignID, scopeKey, owner string) error
	MirrorSnapshot(ctx context.Context, campaign ids.CampaignID, scopeKey string) (*shard.MirrorSnapshot, error)
}

// Mirror is Redis as the loop needs it; admission.Client is one.
type Mirror interface {
	Check(ctx context.Context) error
	Acknowledge(ctx context.Context) (string, error)
	Changed() <-chan struct{}
	Expect(scope admission.Scope, build ids.Build)
	Forget(scope admission.Scope)
	Expected(scope admission.Scope) (ids.Build, bool)
	Facts(ctx context.Context, scope admission.Scope, sku ids.SKUID) (admission.Facts, error)
	RaiseFence(ctx context.Context, scope admission.Scope, fence int64) (admission.Change, error)
	Pause(ctx context.Context, scope admission.Scope, build ids.Build) (admission.Change, error)
	SetWindow(ctx context.Context, scope admission.Scope, build ids.Build, w admission.Window) (admission.Change, error)
	SetBuckets(ctx context.Context, scope admission.Scope, build ids.Build, domain string, set admission.BucketSet) (admission.Change, error)
	Writable(ctx context.Context, scope admission.Scope) error
	Install(ctx context.Context, im admission.Image) error
	Sweep(ctx context.Context, scope admission.Scope, keep ids.Build) (int64, error)
}

// Log is the cell's topic as the loop needs it.
type Log interface {
	// Barrier writes a build's barrier into every partition.
	Barrier(ctx context.Context, scope admission.Scope, build ids.Build) error
}

// Drainer brings what is left in a mirror's stream to the log.
type Drainer interface {
	Sweep(ctx context.Context, scope admission.Scope, age time.Duration) error
}

// Config of a Loop. Zero values are the defaults.
type Config struct {
	Owner    string        // names this process's claims; not empty
	Interval time.Duration // between looks; 0: 250 ms
	Drain    time.Duration // how long older entries get to reach the log; 0: 1 s
	Timeout  time.Duration // of one rebuild, barrier included; 0: 10 s
}

const (
	defaultInterval = 250 * time.Millisecond
	defaultDrain    = time.Second
	defaultTimeout  = 10 * time.Second
	faultLogEvery   = 100
)

// Deps of a Loop.
type Deps struct {
	Clock    clock.Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Loop looks after every mirror that plans names. It runs in every process that
// admits: each has its own expectations.
type Loop struct {
	cfg     Config
	shard   Shard
	mirror  Mirror
	log     Log
	drain   Drainer
	plans   func() []Plan
	deps    Deps
	metrics *metrics

	state  map[admission.Scope]*watched
	faults int
	last   error
}

// watched is what the loop remembers of one mirror.
type watched struct {
	fitAt   time.Time // last found fit by this process; zero: never
	applied int64     // version of the rules that build has
	build   ids.Build
	buckets map[string]admission.BucketSet // that build has, by domain
}

// New makes a loop. plans is asked at every look.
func New(cfg Config, sh Shard, m Mirror, log Log, drain Drainer, plans func() []Plan, deps Deps) (*Loop, error) {
	if cfg.Owner == "" {
		return nil, errors.New("rebuild: owner must not be empty")
	}
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Drain <= 0 {
		cfg.Drain = defaultDrain
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	ms, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, err
	}
	return &Loop{
		cfg: cfg, shard: sh, mirror: m, log: log, drain: drain, plans: plans, deps: deps, metrics: ms,
		state: map[admission.Scope]*watched{},
	}, nil
}

// Run looks at every interval, and at once when the admitting pool met another
// Redis, until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	tick := l.deps.Clock.NewTicker(l.cfg.Interval)
	defer tick.Stop()
	for {
		l.note(ctx, l.Look(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		case <-l.mirror.Changed():
		}
	}
}

// Look looks once at every mirror and rebuilds the ones that are not fit. The
// error joins what went wrong; the next look starts over.
func (l *Loop) Look(ctx context.Context) error {
	plans := l.plans()
	l.dropUnplanned(plans)
	writer, ok := l.shard.Writer()
	if !ok {
		l.forgetAll()
		return nil
	}
	// Until the server is known fit and the same, nothing may be admitted. A Redis
	// that does not answer admits nothing by itself and is left expected: its
	// customers are told PAUSED, and it may come back as it was.
	server, err := l.mirror.Acknowledge(ctx)
	if err == nil {
		err = l.mirror.Check(ctx)
	}
	if err != nil {
		if !errors.Is(err, admission.ErrUnavailable) {
			l.forgetAll()
			return err
		}
		return errors.Join(err, l.forgetOvertaken(ctx, plans))
	}
	identity, err := l.shard.Identity(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, p := range plans {
		if err := l.lookAt(ctx, p, writer.FenceVersion, server, identity); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

func (l *Loop) lookAt(ctx context.Context, p Plan, fence int64, server, identity string) error {
	s, err := l.see(ctx, p, sight{server: server, shard: identity, fence: fence})
	if err != nil {
		return err
	}
	w := l.watched(p.Scope)
	cause := judge(s)
	if cause != Fit {
		l.mirror.Forget(p.Scope)
		l.age(p.Scope, w)
		if cause == Stale {
			return nil // another process knows a higher fence: not ours to build
		}
		if err := l.rebuild(ctx, p, s, cause); err != nil {
			return err
		}
		w.build, w.applied = ids.Build{}, 0
		return nil // the next look expects it
	}
	l.mirror.Expect(p.Scope, s.raised)
	w.fitAt = l.deps.Clock.Now()
	l.age(p.Scope, w)
	return l.refresh(ctx, p, s.raised, w)
}

// see fills in what the mirror and the shard say now.
func (l *Loop) see(ctx context.Context, p Plan, s sight) (sight, error) {
	s.facts = make([]admission.Facts, len(p.SKUs))
	for i, sku := range p.SKUs {
		var err error
		if s.facts[i], err = l.mirror.Facts(ctx, p.Scope, sku); err != nil {
			return s, err
		}
	}
	var err error
	s.raised, err = l.shard.RaisedBuild(ctx, p.Scope.Campaign, p.Scope.Key())
	return s, err
}

// refresh brings newer rules, and buckets that a handover moved, to a mirror that is fit.
func (l *Loop) refresh(ctx context.Context, p Plan, build ids.Build, w *watched) error {
	buckets := p.bucketSets()
	if w.build == build && w.applied >= p.Version && maps.Equal(w.buckets, buckets) {
		return nil
	}
	if _, err := l.mirror.SetWindow(ctx, p.Scope, build, p.Window); err != nil {
		return err
	}
	for _, b := range p.Buckets {
		if _, err := l.mirror.SetBuckets(ctx, p.Scope, build, b.Domain, b.Set); err != nil {
			return err
		}
	}
	w.build, w.applied, w.buckets = build, p.Version, buckets
	return nil
}

func (l *Loop) watched(scope admission.Scope) *watched {
	w, ok := l.state[scope]
	if !ok {
		w = &watched{}
		l.state[scope] = w
	}
	return w
}

func (l *Loop) forgetAll() {
	for scope, w := range l.state {
		l.mirror.Forget(scope)
		l.age(scope, w)
	}
}

// forgetOvertaken ends the admission into builds that another process replaced meanwhile: it may see a
// Redis that this one cannot, and what is admitted below the raised build is lost.
func (l *Loop) forgetOvertaken(ctx context.Context, plans []Plan) error {
	for _, p := range plans {
		expected, ok := l.mirror.Expected(p.Scope)
		if !ok {
			continue
		}
		raised, err := l.shard.RaisedBuild(ctx, p.Scope.Campaign, p.Scope.Key())
		if err != nil {
			return err
		}
		if raised != expected {
			l.mirror.Forget(p.Scope)
			l.age(p.Scope, l.watched(p.Scope))
		}
	}
	return nil
}

// dropUnplanned ends what no plan names any more.
func (l *Loop) dropUnplanned(plans []Plan) {
	keep := make(map[admission.Scope]bool, len(plans))
	for _, p := range plans {
		keep[p.Scope] = true
	}
	for scope := range l.state {
		if !keep[scope] {
			l.mirror.Forget(scope)
			l.metrics.drop(scope)
			delete(l.state, scope)
		}
	}
}

func (l *Loop) age(scope admission.Scope, w *watched) {
	if !w.fitAt.IsZero() {
		l.metrics.age(scope, l.deps.Clock.Now().Sub(w.fitAt))
	}
}

// note logs a fault when it is new, every hundredth time it repeats, and its end.
func (l *Loop) note(ctx context.Context, err error) {
	same := err != nil && l.last != nil && err.Error() == l.last.Error()
	switch {
	case err == nil && l.last != nil:
		l.deps.Logger.Info("mirrors are looked after again", telemetry.Event, "rebuild_recovered", telemetry.RetryCount, l.faults)
		l.faults = 0
	case err != nil && ctx.Err() == nil && (!same || l.faults%faultLogEvery == 0):
		l.deps.Logger.Warn("mirrors are not fit", telemetry.Event, "rebuild_failed", telemetry.Error, err,
			telemetry.RetryCount, l.faults, telemetry.Retryable, !errors.Is(err, admission.ErrUnfit) && !errors.Is(err, admission.ErrLibrary))
	}
	if l.last = err; err != nil {
		l.faults++
	}
}
