package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Targets of outbox rows.
const (
	targetMirror = "MIRROR"
	targetEvents = "EVENTS"
)

// Store is the shard as the publishers need it.
type Store interface {
	ClaimOutbox(ctx context.Context, target string, limit int, owner string, lease time.Duration) ([]shard.OutboxRow, error)
	MarkPublished(ctx context.Context, owner string, rows []int64) error
	DeferOutbox(ctx context.Context, owner string, rows []int64, pause time.Duration) error
	ParkOutbox(ctx context.Context, owner string, row int64, cause error) error
	OutboxLag(ctx context.Context) (time.Duration, int64, error)
	Writer() (shard.Writer, bool)
}

// verdict is what a target says about one row.
type verdict int

const (
	published verdict = iota // it left, or needs not
	later                    // its own receiver cannot take it yet; others may leave
	held                     // nothing can leave; the claim stands and is taken again
	never                    // no receiver will ever take it
)

// answer is the verdict on one row and its cause, if it did not leave.
type answer struct {
	verdict verdict
	cause   error
}

// target delivers rows; it answers in the same order. writer is this process's, as
// the claim was made under it.
type target interface {
	deliver(ctx context.Context, writer shard.Writer, rows []shard.OutboxRow) []answer
}

// Config of a Publisher. Zero values are the defaults.
type Config struct {
	Owner    string        // names this process's claims; not empty
	Interval time.Duration // between looks while there is something to do; 0: 20 ms
	Batch    int           // rows claimed at once; 0: 500
	Lease    time.Duration // of a claim; 0: 10 s
	Pause    time.Duration // before a deferred row is claimed again; 0: 250 ms
}

const (
	defaultInterval = 20 * time.Millisecond
	defaultBatch    = 500
	defaultLease    = 10 * time.Second
	defaultPause    = 250 * time.Millisecond
	idleFactor      = 5   // how many intervals an idle loop waits at most
	repeatFaultLog  = 100 // every so many equal failures are logged again
)

// Deps of the publishers.
type Deps struct {
	Clock    clock.Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Publisher is one loop over the rows of one target.
type Publisher struct {
	cfg    Config
	name   string
	store  Store
	target target
	deps   Deps
	faults int
}

func newPublisher(cfg Config, name string, store Store, t target, deps Deps) *Publisher {
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Batch <= 0 {
		cfg.Batch = defaultBatch
	}
	if cfg.Lease <= 0 {
		cfg.Lease = defaultLease
	}
	if cfg.Pause <= 0 {
		cfg.Pause = defaultPause
	}
	return &Publisher{cfg: cfg, name: name, store: store, target: t, deps: deps}
}

// Run publishes until ctx ends. No failure ends it: the next look tries again.
func (p *Publisher) Run(ctx context.Context) error {
	wait := p.cfg.Interval
	for {
		n, err := p.Once(ctx)
		p.note(ctx, err)
		switch {
		case err == nil && n == p.cfg.Batch:
			wait = 0
		case err == nil && n > 0:
			wait = p.cfg.Interval
		default:
			wait = min(max(2*wait, p.cfg.Interval), idleFactor*p.cfg.Interval)
		}
		timer := p.deps.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// Once claims one batch, delivers it and records what became of each row. It
// returns how many rows left. A process that may not write has nothing to publish.
func (p *Publisher) Once(ctx context.Context) (int, error) {
	writer, ok := p.store.Writer()
	if !ok {
		return 0, nil
	}
	rows, err := p.store.ClaimOutbox(ctx, p.name, p.cfg.Batch, p.cfg.Owner, p.cfg.Lease)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	ctx, span := telemetry.StartBatch(ctx, "outbox.publish", len(rows), func(i int) string { return rows[i].Traceparent })
	n, err := p.publish(ctx, writer, rows)
	telemetry.EndSpan(span, err)
	return n, err
}

// publish delivers a claim and records what became of each row.
func (p *Publisher) publish(ctx context.Context, writer shard.Writer, rows []shard.OutboxRow) (int, error) {
	var done, wait []int64
	var cause error
	for i, a := range p.target.deliver(ctx, writer, rows) {
		switch a.verdict {
		case published:
			done = append(done, rows[i].ID)
		case later:
			wait = append(wait, rows[i].ID)
			cause = a.cause
		case held:
			cause = a.cause
		case never:
			if err := p.store.ParkOutbox(ctx, p.cfg.Owner, rows[i].ID, a.cause); err != nil {
				return 0, err
			}
		}
	}
	if err := p.store.MarkPublished(ctx, p.cfg.Owner, done); err != nil {
		return 0, err
	}
	if err := p.store.DeferOutbox(ctx, p.cfg.Owner, wait, p.cfg.Pause); err != nil {
		return len(done), err
	}
	return len(done), cause
}

// note logs the first of a row of failures, every hundredth after it, and the end.
func (p *Publisher) note(ctx context.Context, err error) {
	if err == nil {
		if p.faults > 0 {
			p.deps.Logger.Info("outbox publishes again", telemetry.Event, "outbox_recovered", "target", p.name, telemetry.RetryCount, p.faults)
		}
		p.faults = 0
		return
	}
	if ctx.Err() == nil && p.faults%repeatFaultLog == 0 {
		p.deps.Logger.Warn("outbox rows wait", telemetry.Event, "outbox_failed", "target", p.name,
			telemetry.Error, err, telemetry.Retryable, true, telemetry.RetryCount, p.faults)
	}
	p.faults++
}
