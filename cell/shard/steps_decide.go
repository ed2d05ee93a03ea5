package shard

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// step decides one step on the locked order and notes what is to be written. The error is a fault;
// refusals are in the result.
func (r *stepRun) step(s *Step) (StepResult, error) {
	o := r.orders[s.Order]
	fromUser := s.Kind == StepStart || s.Kind == StepCancel
	switch {
	case o == nil && s.FromChannel:
		r.out.refuse(s, "ORDER_UNKNOWN")
		return StepResult{Err: ErrOrderUnknown}, nil
	case o == nil, fromUser && o.User != s.User:
		return StepResult{Err: ErrNotFound}, nil
	case o.rules.unreadable && s.needsRules():
		return StepResult{Err: ErrRulesUnreadable, Order: o.Order}, nil
	case s.Kind == StepRefunded: // its amount may be a part
		return r.refunded(s, o), nil
	case s.FromChannel && s.Amount != o.total:
		return r.mismatch(s, o), nil
	}
	switch s.Kind {
	case StepStart:
		return r.start(s, o)
	case StepCancel:
		return r.advance(o, reservation.Cancel, reservation.Cancelled)
	case StepSucceeded:
		return r.succeeded(s, o)
	case StepFailed:
		return r.undecided(s, o, PaymentFailed, reservation.Fail)
	case StepPending:
		return r.undecided(s, o, PaymentUnknown, reservation.Doubt)
	case StepSilent:
		return r.undecided(s, o, PaymentUnknown, reservation.Silence)
	case StepRefund:
		return r.refund(s, o), nil
	case StepRefunded: // above
	}
	return StepResult{Err: ErrInvalid}, nil
}

// needsRules: whether the campaign was cancelled, or its refunded units return to sale, is said by the
// part of its rules that is in no column.
func (s *Step) needsRules() bool {
	return s.Kind == StepStart || s.Kind == StepRefund || s.Kind == StepRefunded
}

// mismatch records what was refused, once per callback, and marks the attempt unless money is known
// to be with us by it.
func (r *stepRun) mismatch(s *Step, o *held) StepResult {
	r.out.refuse(s, "PAYMENT_MISMATCH")
	state := PaymentMismatch
	if a := o.find(s.Payment); a != nil && (a.state.taken() || a.state == PaymentMismatch) {
		return StepResult{Err: ErrPaymentMismatch, Order: o.Order, Payment: a.state}
	}
	r.out.pay(o, s.Payment, s.Amount, state, "")
	return StepResult{Err: ErrPaymentMismatch, Order: o.Order, Payment: state}
}

// start records an attempt; the same attempt again is answered as it stands.
func (r *stepRun) start(s *Step, o *held) (StepResult, error) {
	if a := o.find(s.Payment); a != nil {
		return StepResult{Order: o.Order, Payment: a.state}, nil
	}
	if o.rules.cancelled && o.life == reservation.Open {
		return StepResult{Err: reservation.ErrOrderClosed, Order: o.Order}, nil // the closer is on its way
	}
	res, err := r.advance(o, reservation.Start, reservation.NoReason)
	if err == nil && res.Err == nil {
		r.out.pay(o, s.Payment, o.total, PaymentInitiated, "")
		res.Payment = PaymentInitiated
	}
	return res, err
}

// succeeded: the money was taken. By an attempt that had taken it before, this is a repeat.
func (r *stepRun) succeeded(s *Step, o *held) (StepResult, error) {
	if a := o.find(s.Payment); a != nil && a.state.taken() {
		return StepResult{Order: o.Order, Payment: o.firstTold(a)}, nil
	}
	was := o.life
	res, err := r.advance(o, reservation.Pay, reservation.NoReason)
	if err != nil || res.Err != nil {
		return res, err
	}
	switch was {
	case reservation.Paid:
		res.Payment, res.Refund = PaymentPaidAfterClose, RefundDuplicate
	case reservation.Closed:
		res.Payment, res.Refund = PaymentPaidAfterClose, RefundAfterClose
	default:
		res.Payment = PaymentSucceeded
	}
	refund := ""
	if res.Refund != "" {
		refund = refundID(o.ID, s.Payment)
		r.requestRefund(o, refundRow{id: refund, payment: s.Payment, amount: o.total, cause: res.Refund})
	}
	r.out.pay(o, s.Payment, o.total, res.Payment, refund)
	return res, nil
}

// undecided handles what takes no money: a failure, a doubt, silence. An attempt that has taken
// money, or is over, is not changed by a late word.
func (r *stepRun) undecided(s *Step, o *held, state PaymentState, event reservation.Event) (StepResult, error) {
	a := o.find(s.Payment)
	switch {
	case a == nil && event == reservation.Silence:
		return StepResult{Err: ErrNotFound}, nil
	case a != nil && !a.state.open():
		return StepResult{Order: o.Order, Payment: a.state}, nil
	case a != nil:
		a.state = state
	default:
		o.attempts = append(o.attempts, attempt{id: s.Payment, state: state})
	}
	res, err := r.advance(o, event, reservation.NoReason)
	if err == nil && res.Err == nil {
		r.out.pay(o, s.Payment, o.total, state, "")
		res.Payment = state
	}
	return res, err
}

// expire closes a due order that has no open attempt.
func (r *stepRun) expire(o *held) (StepResult, error) {
	return r.advance(o, reservation.Expire, reservation.Expired)
}

// advance asks the table and notes the change of the order. Two refusals of the table are repeats of
// what is asked: they are answered as such by the table itself.
func (r *stepRun) advance(o *held, event reservation.Event, reason reservation.Reason) (StepResult, error) {
	out, err := reservation.Step(reservation.Subject{Life: o.life, OpenAttempts: o.countOpen(), Expired: !o.now.Before(o.ExpiresAt)}, event)
	if err != nil {
		return StepResult{Err: err, Order: o.Order}, nil //nolint:nilerr // a refusal by name is the result of this step and fails no other
	}
	if !out.Changed {
		return StepResult{Order: o.Order}, nil
	}
	change := orderChange{held: o, was: o.Order, reason: reason, closeAfter: o.closeAfter}
	for _, e := range out.Effects {
		switch e {
		case reservation.Postpone:
			change.closeAfter = o.postponed(r.grace)
		case reservation.Recall:
			if change.closeAfter = o.ExpiresAt; o.countOpen() > 0 {
				change.closeAfter = o.postponed(r.grace)
			}
		case reservation.Park:
			change.park = true
		case reservation.Confirm, reservation.Release, reservation.Refund: // stock_move and outbox follow the lives
		}
	}
	res := StepResult{Closed: out.Next == reservation.Closed && o.life != reservation.Closed, DueFor: o.now.Sub(o.closeAfter)}
	o.become(out.Next, reason)
	res.Order = o.Order
	r.out.changes = append(r.out.changes, change)
	return res, nil
}

// become keeps the order in memory as the row will be.
func (o *held) become(next reservation.Life, reason reservation.Reason) {
	o.life = next
	o.State, o.ReservationState = next.States()
	o.Reason = reason
	o.Version++
	switch next {
	case reservation.Paid:
		o.PaidAt = o.now
	case reservation.Closed:
		o.ClosedAt = o.now
	default: // the others have no case of their own: what follows the switch holds
	}
}

// postponed is when the closer looks at an order with an open attempt: after the grace, and a moment after
// whatever was heard last; never later than the end of all patience, however often the channel says PENDING.
func (o *held) postponed(grace time.Duration) time.Time {
	at := later(o.ExpiresAt.Add(grace), o.now.Add(reask))
	if at.After(o.graceEnds) {
		return o.graceEnds
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// refundID is derived, so that however often a late payment is told, its refund is one.
func refundID(order ids.OrderID, payment ids.PaymentID) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(order), string(payment)}, "\x00")))
	return "rf-" + hex.EncodeToString(sum[:16])
}
