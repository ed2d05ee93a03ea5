package payment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Store is what this package needs of the shard.
type Store interface {
	StepOrders(ctx context.Context, attemptGrace time.Duration, steps []shard.Step) ([]shard.StepResult, error)
}

// Config bounds the service.
type Config struct {
	// AttemptGrace is how long after expires_at an open attempt keeps an order from being closed;
	// after twice that, silence of the channel means MANUAL_REVIEW.
	AttemptGrace time.Duration
	// BatchMax bounds one transaction; default 200, at most 500.
	BatchMax int
	// QueueMax bounds the calls that wait; beyond it ErrQueueFull. Default 4096.
	QueueMax int
}

// ErrQueueFull: nothing was done; try again later.
var ErrQueueFull = fmt.Errorf("%w: too many payment calls wait", shard.ErrUnavailable)

// Service is safe for concurrent use; calls are answered while Run runs.
type Service struct {
	store   Store
	cfg     Config
	log     *slog.Logger
	queue   chan *call
	metrics *metrics
}

// call is one step that waits for its result.
type call struct {
	step   shard.Step
	answer chan answer // buffered: a caller that left is not waited for
}

type answer struct {
	result shard.StepResult
	err    error
}

// New makes a service; Run must be running for calls to be answered.
func New(store Store, cfg Config, log *slog.Logger, reg prometheus.Registerer) (*Service, error) {
	if cfg.BatchMax <= 0 {
		cfg.BatchMax = 200
	}
	if cfg.QueueMax <= 0 {
		cfg.QueueMax = 4096
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	return &Service{store: store, cfg: cfg, log: log, queue: make(chan *call, cfg.QueueMax), metrics: m}, nil
}

// Attempt is a payment attempt and what it is to pay.
type Attempt struct {
	Payment ids.PaymentID
	State   shard.PaymentState
	Total   reservation.Money
	// ExpiresAt is the order's; a success after it may be refunded.
	ExpiresAt time.Time
}

// Start records an attempt, which postpones closing. reservation.ErrOrderClosed (also once expires_at
// has passed), ErrOrderPaid, ErrPaymentInProgress (in review); shard.ErrNotFound to anyone but the
// order's user.
func (s *Service) Start(ctx context.Context, order ids.OrderID, user ids.UserID, payment ids.PaymentID) (Attempt, error) {
	res, err := s.do(ctx, shard.Step{Kind: shard.StepStart, Order: order, User: user, Payment: payment})
	if err != nil {
		return Attempt{}, err
	}
	total, err := reservation.ParseMoney(res.Order.Amount, res.Order.Currency)
	return Attempt{Payment: payment, State: res.Payment, Total: total, ExpiresAt: res.Order.ExpiresAt}, err
}

// Cancel closes an unpaid order at once. reservation.ErrOrderPaid, ErrPaymentInProgress;
// shard.ErrNotFound to anyone but its user. A closed order is answered as it is.
func (s *Service) Cancel(ctx context.Context, order ids.OrderID, user ids.UserID) (shard.Order, error) {
	res, err := s.do(ctx, shard.Step{Kind: shard.StepCancel, Order: order, User: user})
	return res.Order, err
}

// RefundRequest asks for an order's money to go back.
type RefundRequest struct {
	Order ids.OrderID
	// ID is minted by the caller before its first try.
	ID            string
	Actor, Reason string
	// CheckOnly decides and changes nothing.
	CheckOnly bool
}

// RefundStanding is a refund as it stands.
type RefundStanding struct {
	Order   shard.Order
	ID      string
	Payment ids.PaymentID
	State   shard.PaymentState
}

// Refund wants the refund of a paid order; cell/payment/refund drives it from there. The same id again
// is answered as it stands; so is an order that was paid after it was closed, whose money goes back
// without being asked for: under the id that it has. shard.ErrNeverPaid, ErrRefundUnderWay,
// ErrRefunded, ErrRefundIDUsed, ErrNotFound.
func (s *Service) Refund(ctx context.Context, in RefundRequest) (RefundStanding, error) {
	res, err := s.do(ctx, shard.Step{
		Kind: shard.StepRefund, Order: in.Order, RefundID: in.ID,
		Ask: shard.Asked{Cause: shard.RefundRequested, Actor: in.Actor, Reason: in.Reason, CheckOnly: in.CheckOnly},
	})
	return RefundStanding{Order: res.Order, ID: res.RefundID, Payment: res.RefundOf, State: res.Payment}, err
}

// Callback is the channel's message; its signature was verified.
type Callback struct {
	Order    ids.OrderID
	Payment  ids.PaymentID
	Amount   reservation.Money
	Status   Status
	RefundID string // REFUNDED
}

// Status is the channel's word.
type Status string

// What a channel says.
const (
	Succeeded Status = "SUCCEEDED"
	Failed    Status = "FAILED"
	Pending   Status = "PENDING"
	Refunded  Status = "REFUNDED"
)

// Outcome is the state after a callback.
type Outcome struct {
	Order   reservation.OrderState
	Payment shard.PaymentState
}

// Callback applies the channel's word. shard.ErrOrderUnknown and shard.ErrPaymentMismatch are
// recorded: the channel must not repeat them. Everything else that is an error may be repeated.
func (s *Service) Callback(ctx context.Context, c Callback) (Outcome, error) {
	switch c.Status {
	case Succeeded, Failed, Pending, Refunded:
	default:
		return Outcome{}, fmt.Errorf("%w: status must be SUCCEEDED, FAILED, PENDING or REFUNDED", shard.ErrInvalid)
	}
	res, err := s.do(ctx, shard.Step{
		Kind: shard.StepKind(c.Status), Order: c.Order, Payment: c.Payment, Amount: c.Amount, RefundID: c.RefundID, FromChannel: true,
	})
	return Outcome{Order: res.Order.State, Payment: res.Payment}, err
}

// do queues a step and waits for its result.
func (s *Service) do(ctx context.Context, step shard.Step) (shard.StepResult, error) {
	step.Traceparent = telemetry.Traceparent(ctx)
	c := &call{step: step, answer: make(chan answer, 1)}
	select {
	case s.queue <- c:
	default:
		return shard.StepResult{}, ErrQueueFull
	}
	select {
	case a := <-c.answer:
		return a.result, errors.Join(a.err, a.result.Err)
	case <-ctx.Done():
		return shard.StepResult{}, fmt.Errorf("%w: %w", shard.ErrUnknownCommit, ctx.Err())
	}
}

// Run answers calls until ctx ends; those that wait then are told that nothing was done.
func (s *Service) Run(ctx context.Context) error {
	var left []*call
	for {
		batch, rest, err := s.gather(ctx, left)
		if err != nil {
			s.refuseAll(rest)
			return err
		}
		left = rest
		s.settle(ctx, batch)
	}
}

// gather waits for the first call and takes what else is there, one per order; a second call for an
// order waits for the next batch, as does what is over the bound.
func (s *Service) gather(ctx context.Context, left []*call) (batch, rest []*call, err error) {
	if len(left) == 0 {
		select {
		case c := <-s.queue:
			left = append(left, c)
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	if ctx.Err() != nil {
		return nil, left, ctx.Err()
	}
	for len(left) < s.cfg.BatchMax {
		select {
		case c := <-s.queue:
			left = append(left, c)
			continue
		default:
		}
		break
	}
	seen := map[ids.OrderID]bool{}
	for _, c := range left {
		if seen[c.step.Order] || len(batch) == s.cfg.BatchMax {
			rest = append(rest, c)
			continue
		}
		seen[c.step.Order] = true
		batch = append(batch, c)
	}
	return batch, rest, nil
}

// settle applies a batch. When it fails for what one of its calls may have brought, each call is tried
// alone, so that only the culprit hears of it.
func (s *Service) settle(ctx context.Context, batch []*call) {
	steps := make([]shard.Step, len(batch))
	for i, c := range batch {
		steps[i] = c.step
	}
	results, err := s.store.StepOrders(ctx, s.cfg.AttemptGrace, steps)
	if err != nil && len(batch) > 1 && !everybodys(err) {
		for _, c := range batch {
			s.settle(ctx, []*call{c})
		}
		return
	}
	for i, c := range batch {
		if err != nil {
			c.answer <- answer{err: err}
			continue
		}
		s.note(&c.step, &results[i])
		c.answer <- answer{result: results[i]}
	}
}

// everybodys tells a fault that no call brought: the shard is away, may not be written by this process
// or not now, or nobody knows what became of the transaction. Alone, each call would meet it too.
func everybodys(err error) bool {
	for _, fault := range []error{
		shard.ErrUnavailable, shard.ErrState, shard.ErrUnknownCommit, shard.ErrNoWriter, shard.ErrFenced, shard.ErrNoFence,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}

func (s *Service) note(step *shard.Step, r *shard.StepResult) {
	s.metrics.steps.WithLabelValues(string(step.Kind), outcomeOf(r.Err)).Inc()
	if r.Refund == "" {
		return
	}
	s.log.Warn("payment to be refunded", telemetry.Event, "payment_refund_requested", telemetry.OrderID, step.Order,
		telemetry.PaymentID, step.Payment, "cause", r.Refund)
}

func (s *Service) refuseAll(rest []*call) {
	for {
		select {
		case c := <-s.queue:
			rest = append(rest, c)
			continue
		default:
		}
		break
	}
	for _, c := range rest {
		c.answer <- answer{err: fmt.Errorf("%w: shutting down", shard.ErrUnavailable)}
	}
}
