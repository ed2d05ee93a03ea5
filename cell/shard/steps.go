package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// StepKind is what is reported about an order.
type StepKind string

// The kinds: the first two come from its user, the last from the closer, the others from the
// payment channel.
const (
	StepStart     StepKind = "START"
	StepCancel    StepKind = "CANCEL"
	StepSucceeded StepKind = "SUCCEEDED"
	StepFailed    StepKind = "FAILED"
	StepPending   StepKind = "PENDING"
	StepRefunded  StepKind = "REFUNDED"
	StepSilent    StepKind = "SILENT" // asked beyond the attempt's grace, and still no answer
	StepRefund    StepKind = "REFUND" // an operator, or a cancelled campaign, asks for the money to go back
)

// Step is one thing that happened to one order.
type Step struct {
	Kind     StepKind
	Order    ids.OrderID
	User     ids.UserID    // START, CANCEL: who asks; another user's order is not found
	Payment  ids.PaymentID // all but CANCEL
	Amount   reservation.Money
	RefundID string // REFUNDED: the channel's; REFUND: its asker's, required
	Ask      Asked  // REFUND
	// FromChannel: Amount is what a signed callback said and must fit. The closer's own inquiries
	// carry none.
	FromChannel bool
	// Traceparent is the W3C context of the call that brought the step, or "": the outbox rows that the step
	// leaves carry it.
	Traceparent string
}

// Refusals that are recorded and answered, beside those of package reservation.
var (
	// ErrOrderUnknown: a callback for an order that is not here. Recorded once.
	ErrOrderUnknown = fmt.Errorf("%w: the order of the callback is unknown", ErrNotFound)
	// ErrPaymentMismatch: amount, currency or order differ. Recorded once; the channel must not
	// repeat it.
	ErrPaymentMismatch = errors.New("the payment does not fit the order")
	// ErrRulesUnreadable: the campaign's rules in the shard cannot be read; ask again when they were
	// overwritten.
	ErrRulesUnreadable = fmt.Errorf("%w: the rules of the order's campaign cannot be read", ErrUnavailable)
)

// StepResult is what a step led to, the same when it is repeated.
type StepResult struct {
	Err     error // a refusal by name; nil: accepted, perhaps as a repeat
	Order   Order
	Payment PaymentState
	// Refund: this very step asked for a refund of the attempt, for the named cause.
	Refund string
	// RefundID and RefundOf are REFUND's: the refund that stands, and the attempt whose money it is.
	RefundID string
	RefundOf ids.PaymentID
	// Closed: this step closed the order; DueFor is how long it had been due.
	Closed bool
	DueFor time.Duration
	// Traceparent is the W3C context of the request that a closed order comes from, or "".
	Traceparent string
}

// maxSteps bounds one transaction of steps.
const maxSteps = 500

// reask is how long an order that is due waits before its open attempt is asked about again.
const reask = time.Second

// askLease is how long a due order that was named to an asker is left to it.
const askLease = 5 * time.Second

// maxAskedOfOne bounds the attempts of one order that a call names: the longest unasked come first, so that
// one that stays UNKNOWN keeps no other from being asked about.
const maxAskedOfOne = 4

// maxAsked bounds the orders of cancelled campaigns that one call names open attempts of: their asker
// has due orders to close as well, and a channel that is silent takes its time for each.
const maxAsked = 40

// StepOrders applies steps in one transaction, at most one per order and 500 in all. Each gets its
// own result; a refusal never fails the others. attemptGrace is how long after expires_at closing
// waits for an open attempt.
func (s *Store) StepOrders(ctx context.Context, attemptGrace time.Duration, steps []Step) ([]StepResult, error) {
	if err := checkSteps(steps); err != nil {
		return nil, err
	}
	var out []StepResult
	var run *stepRun // of the attempt that was committed
	err := s.resolved(ctx, func() error {
		return s.inTx(ctx, "step_orders", needOf(steps), func(ctx context.Context, t tx) error {
			run = newStepRun(s, t, attemptGrace)
			if err := run.lock(ctx, steps); err != nil {
				return err
			}
			out = make([]StepResult, len(steps))
			for i := range steps {
				var err error
				if out[i], err = run.step(&steps[i]); err != nil {
					return err
				}
			}
			return run.write(ctx)
		})
	})
	if err != nil {
		return nil, err
	}
	s.metrics.settled(run)
	return out, nil
}

// needOf is what the steps need of the fence: money waits while the shard is being recovered, because
// the units that it is for may not be there yet.
func needOf(steps []Step) need {
	for i := range steps {
		switch steps[i].Kind {
		case StepStart, StepSucceeded, StepRefunded, StepRefund:
			return needPay
		default: // closes, or only tells
		}
	}
	return needSettle
}

func checkSteps(steps []Step) error {
	if len(steps) > maxSteps {
		return fmt.Errorf("%w: at most %d steps at once", ErrInvalid, maxSteps)
	}
	seen := make(map[ids.OrderID]bool, len(steps))
	for i := range steps {
		if seen[steps[i].Order] {
			return fmt.Errorf("%w: one step per order at once", ErrInvalid)
		}
		seen[steps[i].Order] = true
	}
	return nil
}

// OpenAttempt is a due order's attempt that the channel must be asked about.
type OpenAttempt struct {
	Order   ids.OrderID
	Payment ids.PaymentID
	Amount  reservation.Money
	// ByOrder: the attempt stands for whatever was lost with the shard's past; its id is nobody's. The channel
	// is asked for every payment of the order.
	ByOrder   bool
	PastGrace bool // each of the order's was asked long enough: silence of all now means MANUAL_REVIEW
}

// CloseWaits are the waits of the closer.
type CloseWaits struct {
	Payment time.Duration // after the shard came back: callbacks first (payment.grace)
	Restore time.Duration // after a restore (restore_close_grace)
	Attempt time.Duration // for open attempts (payment.attempt_grace)
}

// CloseDue closes up to limit due orders without an open attempt, and names the open attempts of the
// others, up to four of each, the longest unasked first. Those orders are not due again for five seconds,
// within which their asker tells what it heard: they take no due order's place meanwhile.
func (s *Store) CloseDue(ctx context.Context, limit int, waits CloseWaits) (closed []StepResult, open []OpenAttempt, err error) {
	return s.closeThose(ctx, "close_due", waits, func(ctx context.Context, r *stepRun) error {
		if err := r.lockDue(ctx, min(limit, maxSteps), waits); err != nil {
			return err
		}
		return r.lease(ctx)
	}, (*stepRun).expire)
}

// CloseCancelled closes up to limit unpaid orders of cancelled campaigns, whatever their time, and
// names the open attempts of up to 40 others, the longest unasked first: the channel is asked about
// each once a second at most. Orders without an open attempt come first.
func (s *Store) CloseCancelled(ctx context.Context, campaigns []ids.CampaignID, limit int, waits CloseWaits) (closed []StepResult, open []OpenAttempt, err error) {
	if len(campaigns) == 0 {
		return nil, nil, nil
	}
	return s.closeThose(ctx, "close_cancelled", waits, func(ctx context.Context, r *stepRun) error {
		return r.lockCancelled(ctx, campaigns, min(limit, maxSteps), waits)
	}, func(r *stepRun, o *held) (StepResult, error) {
		return r.advance(o, reservation.Cancel, reservation.Cancelled)
	})
}

// closeThose ends the orders that lock chose, by end, except those with an open attempt.
func (s *Store) closeThose(ctx context.Context, verb string, waits CloseWaits, lock func(context.Context, *stepRun) error,
	end func(*stepRun, *held) (StepResult, error),
) (closed []StepResult, open []OpenAttempt, err error) {
	var run *stepRun // of the attempt that was committed
	err = s.inTx(ctx, verb, needSettle, func(ctx context.Context, t tx) error {
		closed, open = nil, nil
		run = newStepRun(s, t, waits.Attempt)
		if err := lock(ctx, run); err != nil {
			return err
		}
		for _, o := range run.inOrder {
			if attempts := o.openAttempts(); len(attempts) > 0 {
				open = append(open, attempts...)
				continue
			}
			res, err := end(run, o)
			if err != nil {
				return err
			}
			res.Traceparent = o.traceparent
			closed = append(closed, res)
		}
		return run.write(ctx)
	})
	if err == nil {
		s.metrics.settled(run)
	}
	return closed, open, err
}

// attempt is one payment row.
type attempt struct {
	id     ids.PaymentID
	state  PaymentState
	refund string
	told   time.Time // when something was last heard, or asked, of it
}

// held is an order under the lock, with its attempts.
type held struct {
	Order
	life         reservation.Life
	total        reservation.Money
	closeAfter   time.Time
	now          time.Time
	rulesVersion int64
	rules        spec
	device       string
	traceparent  string // of the request that it comes from
	attempts     []attempt
	refunds      []refundRow
	graceEnds    time.Time
}

func (o *held) find(id ids.PaymentID) *attempt {
	for i := range o.attempts {
		if o.attempts[i].id == id {
			return &o.attempts[i]
		}
	}
	return nil
}

func (o *held) countOpen() int {
	n := 0
	for _, a := range o.attempts {
		if a.state.open() {
			n++
		}
	}
	return n
}

// openAttempts names the open attempts to be asked about now. Silence is for a person only once each of
// them, the others too, was asked about beyond the grace.
func (o *held) openAttempts() []OpenAttempt {
	var open []attempt
	for _, a := range o.attempts {
		if a.state.open() {
			open = append(open, a)
		}
	}
	slices.SortStableFunc(open, func(a, b attempt) int { return a.told.Compare(b.told) })
	pastGrace := !o.now.Before(o.graceEnds)
	for _, a := range open[min(maxAskedOfOne, len(open)):] {
		pastGrace = pastGrace && !a.told.Before(o.graceEnds)
	}
	var out []OpenAttempt
	for _, a := range open[:min(maxAskedOfOne, len(open))] {
		out = append(out, OpenAttempt{Order: o.ID, Payment: a.id, Amount: o.total, ByOrder: a.id == recoveryAttempt, PastGrace: pastGrace})
	}
	return out
}

// stepRun is one attempt at a transaction of steps.
type stepRun struct {
	store   *Store
	tx      tx
	grace   time.Duration
	trace   map[ids.OrderID]string // of the step on it, where a call brought it
	orders  map[ids.OrderID]*held
	inOrder []*held
	// refundIDs of the steps, and whose each refund is: of the orders held, of others that have one of
	// the ids, and those that this run adds.
	refundIDs []string
	refundOf  map[string]ids.OrderID
	out       stepWrites
	// source and actor are what the ledger says of its entries.
	source, actor string
}

func newStepRun(s *Store, t tx, grace time.Duration) *stepRun {
	return &stepRun{
		store: s, tx: t, grace: grace, trace: map[ids.OrderID]string{}, orders: map[ids.OrderID]*held{}, refundOf: map[string]ids.OrderID{},
		source: "orders", actor: "cell",
	}
}

func (r *stepRun) lock(ctx context.Context, steps []Step) error {
	wanted := make([]string, len(steps))
	for i := range steps {
		wanted[i] = string(steps[i].Order)
		r.trace[steps[i].Order] = steps[i].Traceparent
		if steps[i].RefundID != "" {
			r.refundIDs = append(r.refundIDs, steps[i].RefundID)
		}
	}
	slices.Sort(wanted)
	if _, err := r.tx.Exec(ctx, sql("step_lock"), wanted); err != nil {
		return err
	}
	return r.read(ctx, wanted)
}

func (r *stepRun) lockDue(ctx context.Context, limit int, waits CloseWaits) error {
	rows, err := r.tx.Query(ctx, sql("step_lock_due"), limit, waits.Payment.Seconds(), r.tx.writer.FenceVersion, waits.Restore.Seconds())
	if err != nil {
		return err
	}
	due, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(due) == 0 {
		return err
	}
	return r.read(ctx, due)
}

// lease leaves the orders with an open attempt to their asker. Their version stays: nothing happened to them.
func (r *stepRun) lease(ctx context.Context) error {
	var asked []string
	for _, o := range r.inOrder {
		if o.countOpen() > 0 {
			asked = append(asked, string(o.ID))
		}
	}
	if len(asked) == 0 {
		return nil
	}
	tag, err := r.tx.Exec(ctx, sql("step_lease"), asked, askLease.Seconds())
	if err != nil {
		return err
	}
	return exactly("leases", tag.RowsAffected(), len(asked))
}

func (r *stepRun) lockCancelled(ctx context.Context, campaigns []ids.CampaignID, limit int, waits CloseWaits) error {
	rows, err := r.tx.Query(ctx, sql("step_lock_cancelled"), campaigns, limit, waits.Payment.Seconds(), r.tx.writer.FenceVersion, waits.Restore.Seconds(),
		reask.Seconds(), maxAsked)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(found) == 0 {
		return err
	}
	return r.read(ctx, found)
}

// read reads the locked orders, in statements later than the lock's: what it waited for is seen.
func (r *stepRun) read(ctx context.Context, orders []string) error {
	if _, err := r.store.hasReviews(ctx, r.tx); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(sql(r.store.since5("step_read", "step_read_step4")), orders)
	b.Queue(sql("step_payments"), orders)
	if r.store.keepsRefunds {
		b.Queue(sql("step_refunds"), orders, r.refundIDs)
	}
	if err := r.tx.send(ctx, b, r.collect); err != nil {
		return err
	}
	for _, o := range r.inOrder {
		var err error
		if o.rules, err = r.store.specFor(ctx, r.tx, o.Campaign, o.rulesVersion); err != nil {
			return err
		}
	}
	return nil
}

// collect takes the answers of read.
func (r *stepRun) collect(res pgx.BatchResults) error {
	rows, err := res.Query()
	if err != nil {
		return err
	}
	if r.inOrder, err = pgx.CollectRows(rows, r.scan); err != nil {
		return err
	}
	for _, o := range r.inOrder {
		r.orders[o.ID] = o
	}
	var order ids.OrderID
	var a attempt
	if err := eachRow(res, []any{&order, &a.id, &a.state, &a.refund, &a.told}, func() error {
		if o := r.orders[order]; o != nil {
			o.attempts = append(o.attempts, a)
		}
		return nil
	}); err != nil || !r.store.keepsRefunds {
		return err
	}
	return r.collectRefunds(res)
}

func (r *stepRun) scan(row pgx.CollectableRow) (*held, error) {
	o := &held{}
	var paid, closed *time.Time
	var after any // may be infinity
	err := row.Scan(&o.ID, &o.Reservation, &o.Request, &o.Campaign, &o.SKU, &o.User, &o.Quantity, &o.Amount, &o.Currency,
		&o.State, &o.ReservationState, &o.Reason, &o.Version, &o.CreatedAt, &o.ExpiresAt, &paid, &closed, &o.PaymentState, &after, &o.now, &o.rulesVersion, &o.device, &o.traceparent)
	if err != nil {
		return nil, err
	}
	o.PaidAt, o.ClosedAt = orZero(paid), orZero(closed)
	o.closeAfter, _ = after.(time.Time)
	o.graceEnds = o.ExpiresAt.Add(2 * r.grace)
	if o.life, err = reservation.LifeOf(o.State, o.ReservationState); err != nil {
		return nil, fmt.Errorf("order %s: %w", o.ID, err)
	}
	o.total, err = reservation.ParseMoney(o.Amount, o.Currency)
	return o, err
}
