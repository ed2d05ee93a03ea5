package refund

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/cell/payment/provider"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Store is what this package needs of the shard.
type Store interface {
	StepOrders(ctx context.Context, attemptGrace time.Duration, steps []shard.Step) ([]shard.StepResult, error)
	ClaimRefunds(ctx context.Context, limit int, pace shard.RefundPace) ([]shard.DueRefund, error)
	NoteRefundAnswers(ctx context.Context, answers map[string]string) error
	AdoptRefunds(ctx context.Context, limit int) (int64, error)
	RefundBacklog(ctx context.Context) (count int64, oldest time.Duration, err error)
	PaidOrders(ctx context.Context, campaign ids.CampaignID, after shard.PaidOrder, limit int) ([]shard.PaidOrder, error)
}

// Config paces and bounds the loop.
type Config struct {
	Interval time.Duration // between rounds; default 500 ms
	Batch    int           // refunds claimed, or orders swept, in one round; default 100, at most 500
	Pace     shard.RefundPace
	// AttemptGrace is payment.attempt_grace.
	AttemptGrace time.Duration
	// Cancelled lists the campaigns whose paid orders are refunded; nil: none.
	Cancelled func() []ids.CampaignID
}

const (
	atOnce      = 8 // questions to the channel
	askTimeout  = 5 * time.Second
	adoptEvery  = 120 // rounds
	retryFactor = 5   // rounds that are skipped while the shard is away
)

// Loop drives refunds until its context ends.
type Loop struct {
	store   Store
	channel provider.Provider
	cfg     Config
	clock   clock.Clock
	log     *slog.Logger
	metrics *metrics
	rounds  int
	sweeps  map[ids.CampaignID]*sweep
}

// New makes a loop.
func New(store Store, channel provider.Provider, cfg Config, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*Loop, error) {
	if cfg.Interval <= 0 {
		cfg.Interval = 500 * time.Millisecond
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 100
	}
	if cfg.Pace.First <= 0 {
		cfg.Pace.First = time.Second
	}
	if cfg.Pace.Longest < cfg.Pace.First {
		cfg.Pace.Longest = max(time.Minute, cfg.Pace.First)
	}
	if cfg.Cancelled == nil {
		cfg.Cancelled = func() []ids.CampaignID { return nil }
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	return &Loop{store: store, channel: channel, cfg: cfg, clock: clk, log: log, metrics: m, sweeps: map[ids.CampaignID]*sweep{}}, nil
}

// Run works in rounds until ctx ends. A round that fails is logged, and the next one comes later.
func (l *Loop) Run(ctx context.Context) error {
	pause := l.cfg.Interval
	for {
		if err := l.clock.Sleep(ctx, pause); err != nil {
			return err
		}
		pause = l.cfg.Interval
		if err := l.Round(ctx); err != nil && ctx.Err() == nil {
			pause = retryFactor * l.cfg.Interval
			l.log.Log(ctx, level(err), "refunding did not finish a round", telemetry.Event, "refund_round_failed", telemetry.Error, err,
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

// Round does one round. What fails of taking up and wanting is in its error and does not keep what is
// due from being asked.
func (l *Loop) Round(ctx context.Context) error {
	// 1. Take up what a program without this loop left.
	var failed error
	if l.rounds%adoptEvery == 0 {
		_, failed = l.store.AdoptRefunds(ctx, l.cfg.Batch)
	}
	if failed == nil {
		l.rounds++
	}
	// 2. Want the refunds of cancelled campaigns.
	failed = errors.Join(failed, l.sweepAll(ctx))
	// 3. Claim what is due.
	due, err := l.store.ClaimRefunds(ctx, l.cfg.Batch, l.cfg.Pace)
	if err != nil {
		return errors.Join(failed, err)
	}
	// 4. Ask the channel.
	answers := l.ask(ctx, due)
	if ctx.Err() != nil {
		return ctx.Err() // due again after their pause
	}
	// 5. End those that it carried out, and keep its word about the others.
	if err := l.end(ctx, due, answers); err != nil {
		return errors.Join(failed, err)
	}
	return errors.Join(failed, l.measure(ctx))
}

func (l *Loop) measure(ctx context.Context) error {
	count, oldest, err := l.store.RefundBacklog(ctx)
	if err != nil {
		return err
	}
	l.metrics.pending.Set(float64(count))
	l.metrics.oldest.Set(oldest.Seconds())
	return nil
}

// ask asks about all, a few at once.
func (l *Loop) ask(ctx context.Context, due []shard.DueRefund) []provider.Answer {
	answers := make([]provider.Answer, len(due))
	g := errgroup.Group{}
	g.SetLimit(atOnce)
	for i := range due {
		g.Go(func() error {
			answers[i] = l.askOne(ctx, &due[i])
			return nil
		})
	}
	_ = g.Wait() // askOne has no error: what is not an answer is Unknown
	return answers
}

func (l *Loop) askOne(ctx context.Context, f *shard.DueRefund) provider.Answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := l.channel.Refund(ctx, provider.RefundOrder{ID: f.ID, Order: f.Order, Payment: f.Payment, Amount: f.Amount, Age: f.Age})
	if err != nil {
		answer = provider.Answer{Status: provider.Unknown}
	}
	l.metrics.asks.WithLabelValues(string(answer.Status)).Inc()
	if answer.Status == provider.Refunded || answer.Status == provider.Pending && !l.slow(f) {
		return answer
	}
	at := slog.LevelWarn
	if l.slow(f) {
		at = slog.LevelError
	}
	l.log.Log(ctx, at, "the payment channel did not carry a refund out", telemetry.Event, "refund_not_done", telemetry.OrderID, f.Order,
		telemetry.PaymentID, f.Payment, "refund_id", f.ID, "answer", answer.Status, telemetry.RetryCount, f.Asks, telemetry.Error, err)
	return answer
}

// slow: asked so often that the pause has reached its longest.
func (l *Loop) slow(f *shard.DueRefund) bool {
	pause := l.cfg.Pace.First
	for range f.Asks - 1 {
		if pause >= l.cfg.Pace.Longest {
			return true
		}
		pause *= 2
	}
	return pause >= l.cfg.Pace.Longest
}

// end tells the shard what became of the refunds, one per order at a time.
func (l *Loop) end(ctx context.Context, due []shard.DueRefund, answers []provider.Answer) error {
	words := map[string]string{}
	var steps []shard.Step
	seen := map[ids.OrderID]bool{}
	for i := range due {
		switch {
		case answers[i].Status != provider.Refunded:
			words[due[i].ID] = string(answers[i].Status)
		case !seen[due[i].Order]: // a second refund of the same order has its turn when it is due again
			seen[due[i].Order] = true
			steps = append(steps, shard.Step{
				Kind: shard.StepRefunded, Order: due[i].Order, Payment: due[i].Payment, RefundID: due[i].ID,
				Amount: answers[i].Amount, FromChannel: answers[i].Amount.Currency != "",
			})
		}
	}
	if len(steps) > 0 {
		results, err := l.store.StepOrders(ctx, l.cfg.AttemptGrace, steps)
		if err != nil {
			return err
		}
		for i := range results {
			if l.told(&steps[i], &results[i]); results[i].Err != nil {
				words[steps[i].RefundID] = string(provider.Refunded) // what it says, though it does not fit
			}
		}
	}
	return l.store.NoteRefundAnswers(ctx, words)
}

func (l *Loop) told(s *shard.Step, r *shard.StepResult) {
	if r.Err != nil {
		l.log.Error("a refund that the channel carried out does not fit its order", telemetry.Event, "refund_end_refused",
			telemetry.OrderID, s.Order, telemetry.PaymentID, s.Payment, "refund_id", s.RefundID, telemetry.Error, r.Err)
		return
	}
	l.log.Info("refunded", telemetry.Event, "refund_done", telemetry.OrderID, s.Order, telemetry.PaymentID, s.Payment, "refund_id", s.RefundID)
}
