package reservation

import (
	"errors"
	"fmt"
)

// Life is the state of an order together with its reservation's: the pairs that exist, and no other.
type Life uint8

// The lives of an order.
const (
	// Open: PENDING_PAYMENT, RESERVED. Holds its units until it is paid or closed.
	Open Life = iota
	// Review: PENDING_PAYMENT, MANUAL_REVIEW. The payment channel stayed silent; a person or a late
	// answer of the channel decides. Holds its units.
	Review
	// Paid: PAID, CONFIRMED. Terminal: no timeout closes it.
	Paid
	// Closed: CLOSED, RELEASED. Terminal: a late payment is refunded, never revived (K25).
	Closed

	lives
)

// OrderState and ReservationState are the words of the contract.
type (
	OrderState       string
	ReservationState string
)

// The states that rows hold.
const (
	PendingPayment OrderState = "PENDING_PAYMENT"
	OrderPaid      OrderState = "PAID"
	OrderClosed    OrderState = "CLOSED"

	Reserved     ReservationState = "RESERVED"
	Confirmed    ReservationState = "CONFIRMED"
	Released     ReservationState = "RELEASED"
	ManualReview ReservationState = "MANUAL_REVIEW"
)

// Event is what happens to an order.
type Event uint8

// The events of an order's life.
const (
	// Start: its user starts a payment attempt.
	Start Event = iota
	// Doubt: the channel does not know yet about an attempt.
	Doubt
	// Fail: the channel refused an attempt.
	Fail
	// Pay: the channel took the money by an attempt that had not succeeded before.
	Pay
	// Cancel: its user gives it up.
	Cancel
	// Expire: its time is over and no attempt is open.
	Expire
	// Silence: the channel stayed silent about an open attempt beyond its grace.
	Silence
	// End: a person ends a review without the channel's word. Money that comes later is refunded.
	End

	events
)

// Effect is what the shard does in the transaction of the step.
type Effect uint8

// The effects of a step.
const (
	// Postpone moves closing to the deadline of the open attempt.
	Postpone Effect = iota
	// Recall moves closing back to expires_at, when no other attempt is open.
	Recall
	// Confirm turns reserved units into confirmed ones.
	Confirm
	// Release gives reserved units back, to the shard and then to the mirror.
	Release
	// Refund asks for exactly one refund of the attempt.
	Refund
	// Park stops closing until somebody decides.
	Park
)

// Refusals by name; they cross to the edge as 409.
var (
	// ErrTransition is wrapped by every refusal of the table.
	ErrTransition = errors.New("not in this state")
	// ErrOrderPaid: the order is paid.
	ErrOrderPaid = fmt.Errorf("%w: the order is paid", ErrTransition)
	// ErrOrderClosed: the order is closed.
	ErrOrderClosed = fmt.Errorf("%w: the order is closed", ErrTransition)
	// ErrPaymentInProgress: an attempt is open, so the order cannot be cancelled now.
	ErrPaymentInProgress = fmt.Errorf("%w: a payment is in progress", ErrTransition)
	// ErrNotInReview: there is nothing for a person to end.
	ErrNotInReview = fmt.Errorf("%w: it is not in MANUAL_REVIEW", ErrTransition)
	// errImpossible: the shard's locks make this pair impossible; seeing it is a bug.
	errImpossible = fmt.Errorf("%w: impossible step", ErrTransition)
)

// cell is one field of the table.
type cell struct {
	next    Life
	effects []Effect
	refuse  error // nil: allowed
	noop    bool  // allowed, nothing changes, not even the version
}

func to(next Life, effects ...Effect) cell { return cell{next: next, effects: effects} }
func no(why error) cell                    { return cell{refuse: why} }

var same = cell{noop: true}

// table is the state machine.
var table = [lives][events]cell{
	//        Start                 Doubt                 Fail               Pay                     Cancel               Expire               Silence            End
	Open:   {to(Open, Postpone), to(Open, Postpone), to(Open, Recall), to(Paid, Confirm), to(Closed, Release), to(Closed, Release), to(Review, Park), no(ErrNotInReview)},
	Review: {no(ErrPaymentInProgress), same, to(Open, Recall), to(Paid, Confirm), no(ErrPaymentInProgress), no(errImpossible), same, to(Closed, Release)},
	Paid:   {no(ErrOrderPaid), same, same, to(Paid, Refund), no(ErrOrderPaid), no(ErrOrderPaid), no(ErrOrderPaid), no(ErrNotInReview)},
	Closed: {no(ErrOrderClosed), same, same, to(Closed, Refund), same, same, no(ErrOrderClosed), no(ErrNotInReview)},
}

// Subject is what a step needs to know of an order.
type Subject struct {
	Life Life
	// OpenAttempts counts its INITIATED and UNKNOWN payments, after the event was applied to its
	// own attempt.
	OpenAttempts int
	// Expired: the database's clock has passed expires_at.
	Expired bool
}

// Outcome is what a step decides.
type Outcome struct {
	Next    Life
	Effects []Effect
	// Changed: the order's version grows. False: a repeat, or an event that is only recorded.
	Changed bool
}

// Step decides what event does to s, or refuses it by name with s unchanged.
func Step(s Subject, event Event) (Outcome, error) {
	c := table[s.Life][event]
	if err := guard(s, event); err != nil {
		return Outcome{Next: s.Life}, err
	}
	if c.refuse != nil {
		return Outcome{Next: s.Life}, c.refuse
	}
	if c.noop {
		return Outcome{Next: s.Life}, nil
	}
	// A refund is the attempt's business; a terminal order does not change for it.
	changed := c.next != s.Life || s.Life == Open
	return Outcome{Next: c.next, Effects: c.effects, Changed: changed}, nil
}

// guard holds the conditions that a table cannot: they refuse, they never lead elsewhere.
func guard(s Subject, event Event) error {
	if s.Life != Open {
		return nil
	}
	switch {
	case event == Start && s.Expired:
		return ErrOrderClosed // no attempt starts after expires_at; the closer is on its way
	case (event == Cancel || event == Expire) && s.OpenAttempts > 0:
		return ErrPaymentInProgress
	case event == Expire && !s.Expired:
		return errImpossible
	}
	return nil
}

// LifeOf reads a pair of columns; a pair that does not exist is an error: a row was written by
// somebody else.
func LifeOf(order OrderState, res ReservationState) (Life, error) {
	for l := Open; l < lives; l++ {
		if o, r := l.States(); o == order && r == res {
			return l, nil
		}
	}
	return 0, fmt.Errorf("no order is %s with a reservation %s", order, res)
}

// States are the columns of a life.
func (l Life) States() (OrderState, ReservationState) {
	switch l {
	case Open:
		return PendingPayment, Reserved
	case Review:
		return PendingPayment, ManualReview
	case Paid:
		return OrderPaid, Confirmed
	case Closed:
		return OrderClosed, Released
	default: // the others have no case of their own: what follows the switch holds
	}
	return "", ""
}

// Terminal lives are never left.
func (l Life) Terminal() bool { return l == Paid || l == Closed }

var (
	lifeNames   = [lives]string{"Open", "Review", "Paid", "Closed"}
	eventNames  = [events]string{"Start", "Doubt", "Fail", "Pay", "Cancel", "Expire", "Silence", "End"}
	effectNames = [...]string{"Postpone", "Recall", "Confirm", "Release", "Refund", "Park"}
)

// String is the life's name in the table.
func (l Life) String() string { return lifeNames[l] }

// String is the event's name in the table.
func (e Event) String() string { return eventNames[e] }

// String is the effect's name in the table.
func (e Effect) String() string { return effectNames[e] }
