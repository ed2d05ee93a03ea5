package closer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/cell/payment/provider"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Store is what this package needs of the shard.
type Store interface {
	Heartbeat(ctx context.Context) error
	CloseDue(ctx context.Context, limit int, waits shard.CloseWaits) ([]shard.StepResult, []shard.OpenAttempt, error)
	CloseCancelled(ctx context.Context, campaigns []ids.CampaignID, limit int, waits shard.CloseWaits) ([]shard.StepResult, []shard.OpenAttempt, error)
	StepOrders(ctx context.Context, attemptGrace time.Duration, steps []shard.Step) ([]shard.StepResult, error)
}

// Config paces and bounds the loop.
type Config struct {
	Interval time.Duration // between rounds; default 200 ms
	Batch    int           // orders in one transaction; default 200
	Waits    shard.CloseWaits
	// Cancelled lists the campaigns whose unpaid orders are closed at once; nil: none.
	Cancelled func() []ids.CampaignID
}

const (
	maxRounds   = 50 // transactions in one round, so that heartbeat and shutdown get their turn
	inquiries   = 64 // at once: all of a chunk's, four of each order
	askTimeout  = 3 * time.Second
	retryFactor = 5 // rounds that are skipped while the shard is away
)

// Loop closes due orders until its context ends.
type Loop struct {
	store   Store
	channel provider.Provider
	cfg     Config
	clock   clock.Clock
	log     *slog.Logger
	delay   prometheus.Histogram
	asked   *prometheus.CounterVec
	asker   *asker
}

// New makes a loop.
func New(store Store, channel provider.Provider, cfg Config, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*Loop, error) {
	if cfg.Interval <= 0 {
		cfg.Interval = 200 * time.Millisecond
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 200
	}
	if cfg.Cancelled == nil {
		cfg.Cancelled = func() []ids.CampaignID { return nil }
	}
	l := &Loop{
		store: store, channel: channel, cfg: cfg, clock: clk, log: log, asker: newAsker(),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: telemetry.Namespace, Name: "release_delay_seconds", Buckets: telemetry.DurationBuckets,
			Help: "Time between an order's being due and its units' return to the shard.",
		}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "payment_inquiries_total", Help: "Questions to the payment channel about open attempts, by answer.",
		}, []string{"answer"}),
	}
	if reg == nil {
		return l, nil
	}
	return l, errors.Join(reg.Register(l.delay), reg.Register(l.asked))
}

// Run works in rounds until ctx ends. A round that fails is logged, and the next one comes later. The
// payment channel is asked beside the rounds.
func (l *Loop) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.answers(ctx) })
	g.Go(func() error { return l.rounds(ctx) })
	return g.Wait()
}

func (l *Loop) rounds(ctx context.Context) error {
	pause := l.cfg.Interval
	for {
		if err := l.clock.Sleep(ctx, pause); err != nil {
			return err
		}
		pause = l.cfg.Interval
		if err := l.round(ctx, func(_ context.Context, open []shard.OpenAttempt) error { l.asker.offer(open); return nil }); err != nil && ctx.Err() == nil {
			pause = retryFactor * l.cfg.Interval
			l.log.Log(ctx, level(err), "closing did not finish a round", telemetry.Event, "closer_round_failed", telemetry.Error, err,
				telemetry.Retryable, shard.SafeToRetry(err))
		}
	}
}

// level: a process that may not write does not warn every second.
func level(err error) slog.Level {
	if shard.MayNotWrite(err) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// Round does one round: everything that is due now, within its bounds. It waits for the channel's answers.
func (l *Loop) Round(ctx context.Context) error { return l.round(ctx, l.ask) }

// round gives the open attempts that it meets to ask.
func (l *Loop) round(ctx context.Context, ask func(context.Context, []shard.OpenAttempt) error) error {
	if err := l.store.Heartbeat(ctx); err != nil {
		return err
	}
	if err := l.close(ctx, maxRounds, ask, func() ([]shard.StepResult, []shard.OpenAttempt, error) {
		return l.store.CloseDue(ctx, l.cfg.Batch, l.cfg.Waits)
	}); err != nil {
		return err
	}
	cancelled := l.cfg.Cancelled()
	if len(cancelled) == 0 {
		return nil
	}
	// Only until the first batch that asks: these are not postponed by it, and while a channel is silent
	// the due orders of all others would wait.
	return l.close(ctx, 1, ask, func() ([]shard.StepResult, []shard.OpenAttempt, error) {
		return l.store.CloseCancelled(ctx, cancelled, l.cfg.Batch, l.cfg.Waits)
	})
}

// close takes batch after batch until one is not full, or asks batches had questions. Orders that were
// asked about take a place in their batch, and are not due again at once.
func (l *Loop) close(ctx context.Context, asks int, ask func(context.Context, []shard.OpenAttempt) error,
	take func() ([]shard.StepResult, []shard.OpenAttempt, error),
) error {
	for range maxRounds {
		began := l.clock.Now()
		closed, open, err := take()
		if err != nil {
			return err
		}
		_, span := telemetry.StartBatch(ctx, "closer.batch", len(closed), func(i int) string { return closed[i].Traceparent }, trace.WithTimestamp(began))
		telemetry.EndSpan(span, nil)
		for i := range closed {
			if closed[i].Closed { // of a cancelled campaign, perhaps before it was due
				l.delay.Observe(max(0, closed[i].DueFor.Seconds()))
			}
		}
		if err := ask(ctx, open); err != nil {
			return err
		}
		if len(open) > 0 {
			asks--
		}
		if asks == 0 || len(closed)+orders(open) < l.cfg.Batch {
			return nil
		}
	}
	return nil
}

// orders counts the orders of attempts, which stand beside each other.
func orders(open []shard.OpenAttempt) int {
	n := 0
	for i := range open {
		if i == 0 || open[i].Order != open[i-1].Order {
			n++
		}
	}
	return n
}

// ask puts the questions about open attempts and applies the answers, one of each order at a time.
func (l *Loop) ask(ctx context.Context, open []shard.OpenAttempt) error {
	if len(open) == 0 {
		return nil
	}
	answers := make([][]shard.Step, len(open))
	g := errgroup.Group{}
	g.SetLimit(inquiries)
	for i, a := range open {
		g.Go(func() error {
			answers[i] = l.inquire(ctx, a)
			return nil
		})
	}
	_ = g.Wait() // inquire has no error: what is not an answer is Unknown
	if ctx.Err() != nil {
		return ctx.Err()
	}
	free, paid := apart(slices.Concat(answers...))
	return errors.Join(l.applyAll(ctx, free), l.applyAll(ctx, paid))
}

// apart takes the steps of orders that were paid from the others: while a shard is being recovered payments
// wait, and its closings, which give units back, do not wait for them.
func apart(steps []shard.Step) (free, paid []shard.Step) {
	took := map[ids.OrderID]bool{}
	for _, s := range steps {
		took[s.Order] = took[s.Order] || s.Kind == shard.StepSucceeded
	}
	for _, s := range steps {
		if took[s.Order] {
			paid = append(paid, s)
		} else {
			free = append(free, s)
		}
	}
	return free, paid
}

func (l *Loop) applyAll(ctx context.Context, steps []shard.Step) error {
	for _, wave := range waves(steps) {
		if err := l.apply(ctx, wave); err != nil {
			return err
		}
	}
	return nil
}

// waves deals the answers so that each has an order once, the ones that decide before those that do not:
// silence about one attempt sends no order to a person that another attempt has paid.
func waves(steps []shard.Step) [][]shard.Step {
	sorted := slices.Clone(steps)
	slices.SortStableFunc(sorted, func(a, b shard.Step) int { return weight(a.Kind) - weight(b.Kind) })
	var out [][]shard.Step
	turn := map[ids.OrderID]int{}
	for _, s := range sorted {
		n := turn[s.Order]
		turn[s.Order]++
		if n == len(out) {
			out = append(out, nil)
		}
		out[n] = append(out[n], s)
	}
	return out
}

func weight(kind shard.StepKind) int {
	return slices.Index([]shard.StepKind{shard.StepSucceeded, shard.StepFailed, shard.StepPending, shard.StepSilent}, kind)
}

func (l *Loop) apply(ctx context.Context, steps []shard.Step) error {
	results, err := l.store.StepOrders(ctx, l.cfg.Waits.Attempt, steps)
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Err != nil {
			l.log.Info("the order had moved on", telemetry.Event, "closer_answer_refused", telemetry.OrderID, steps[i].Order,
				telemetry.PaymentID, steps[i].Payment, telemetry.Error, r.Err)
		}
	}
	return nil
}
