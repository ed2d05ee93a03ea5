package shard

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
)

// Asked is why and by whose word an order's money goes back.
type Asked struct {
	Cause  string // RefundRequested or RefundCancelled
	Actor  string
	Reason string
	// CheckOnly decides and writes nothing.
	CheckOnly bool
}

// The causes of a refund.
const (
	RefundAfterClose = "PAID_AFTER_CLOSE"   // the money came after the order was closed
	RefundDuplicate  = "DUPLICATE_PAYMENT"  // a second attempt on a paid order succeeded
	RefundRequested  = "REQUESTED"          // an operator asked
	RefundCancelled  = "CAMPAIGN_CANCELLED" // its campaign was cancelled
	RefundByChannel  = "CHANNEL"            // nobody here asked: the channel told of it
)

// The states of a refund row.
const (
	refundPending  = "PENDING"
	refundRefunded = "REFUNDED"
)

// Refusals of StepRefund by name.
var (
	// ErrNeverPaid: no money of the order is with us.
	ErrNeverPaid = fmt.Errorf("%w: the order was never paid", reservation.ErrTransition)
	// ErrRefundUnderWay: its money goes back already, under another refund_id, which the text names.
	ErrRefundUnderWay = fmt.Errorf("%w: its refund is under way", reservation.ErrTransition)
	// ErrRefunded: its money went back under another refund_id, which the text names.
	ErrRefunded = fmt.Errorf("%w: it was refunded", reservation.ErrTransition)
	// ErrRefundIDUsed: the refund_id names a refund of another order.
	ErrRefundIDUsed = fmt.Errorf("%w: refund_id names a refund of another order", ErrConflict)
)

// refundRow is one row of the table of refunds.
type refundRow struct {
	id      string
	order   ids.OrderID
	payment ids.PaymentID
	amount  reservation.Money
	state   string
	cause   string
	part    bool // less than the order's total: its units never return to sale
	ask     Asked
	// restocked: its units returned to sale by the transaction that ended it.
	restocked bool
	of        *held
	// lowered: the row is there, and a part took some of what it asks for. rest: it asks for what a part
	// under its predecessor's id left. Neither is another wish.
	lowered, rest bool
}

// late: the money came when the order could not be paid any more.
func (f *refundRow) late() bool { return f.cause == RefundAfterClose || f.cause == RefundDuplicate }

func lateCause(o *held) string {
	if o.life == reservation.Closed {
		return RefundAfterClose
	}
	return RefundDuplicate
}

// collectRefunds takes the refunds of the locked orders, and whose the other ones are.
func (r *stepRun) collectRefunds(res pgx.BatchResults) error {
	var f refundRow
	var amount, currency string
	return eachRow(res, []any{&f.id, &f.order, &f.payment, &amount, &currency, &f.state, &f.cause, &f.part}, func() error {
		var err error
		if f.amount, err = reservation.ParseMoney(amount, currency); err != nil {
			return fmt.Errorf("refund %s: %w", f.id, err)
		}
		if o := r.orders[f.order]; o != nil {
			o.refunds = append(o.refunds, f)
		}
		r.refundOf[f.id] = f.order
		return nil
	})
}

// refund asks for the money of the order that paid it to go back: SUCCEEDED → REFUND_PENDING. The
// same refund_id again is answered as it stands, and has the channel asked at once.
func (r *stepRun) refund(s *Step, o *held) StepResult {
	if !r.store.keepsRefunds {
		return StepResult{Err: fmt.Errorf("%w: refunds need step %d of the shard's schema: run cellquotad migrate up", ErrUnsupported, refundsStep), Order: o.Order}
	}
	if r.usedElsewhere(s.RefundID, o) {
		return StepResult{Err: ErrRefundIDUsed, Order: o.Order}
	}
	if f := o.refundByID(s.RefundID); f != nil {
		return r.standing(s, o, f)
	}
	paid := o.inState(PaymentSucceeded)
	if paid == nil {
		return r.refuseRefund(s, o)
	}
	row := refundRow{id: s.RefundID, payment: paid.id, amount: o.left(paid.id), cause: s.Ask.Cause, ask: s.Ask}
	row.part = row.amount != o.total
	if !s.Ask.CheckOnly {
		paid.state = PaymentRefundPending
		r.out.pay(o, paid.id, o.total, PaymentRefundPending, row.id)
		r.requestRefund(o, row)
		return StepResult{Order: o.Order, Payment: PaymentRefundPending, Refund: row.cause, RefundID: row.id, RefundOf: paid.id}
	}
	return StepResult{Order: o.Order, Payment: paid.state, RefundID: row.id, RefundOf: paid.id}
}

// standing answers with a refund that is there already.
func (r *stepRun) standing(s *Step, o *held, f *refundRow) StepResult {
	res := StepResult{Order: o.Order, RefundID: f.id, RefundOf: f.payment}
	if a := o.find(f.payment); a != nil {
		res.Payment = a.state
	}
	if f.state == refundPending && s.Ask.Cause == RefundRequested && !s.Ask.CheckOnly {
		r.out.kicks = append(r.out.kicks, f.id)
	}
	return res
}

// refuseRefund: no attempt holds the order's money. Money that came too late is going back without
// being asked for: that refund is the answer.
func (r *stepRun) refuseRefund(s *Step, o *held) StepResult {
	err := ErrNeverPaid
	for i := range o.refunds {
		f := &o.refunds[i]
		switch {
		case f.part && f.cause == RefundByChannel:
			continue
		case f.late() && o.life == reservation.Closed:
			return r.standing(s, o, f)
		case f.late():
			continue
		case f.state == refundPending:
			err = fmt.Errorf("%w under %s", ErrRefundUnderWay, f.id)
		default:
			err = fmt.Errorf("%w under %s", ErrRefunded, f.id)
		}
	}
	return StepResult{Err: err, Order: o.Order}
}

// refunded: the money of an attempt went back, all that was left of it or a part. A paid order stays
// PAID; its units return to sale only for the whole sum, where the campaign's rule says so.
func (r *stepRun) refunded(s *Step, o *held) StepResult {
	a := o.find(s.Payment)
	if r.usedElsewhere(s.RefundID, o) || a == nil || !a.state.taken() {
		return r.refuseRefunded(s, o)
	}
	known := o.refundByID(s.RefundID)
	open := o.openRefund(a.id)
	switch {
	case known != nil && (known.state == refundRefunded || known.payment != s.Payment), a.state == PaymentRefunded && open == nil:
		return StepResult{Order: o.Order, Payment: a.state}
	case a.state == PaymentRefunded:
		return r.endLeft(o, a, open)
	}
	due := o.left(a.id)
	switch {
	case !s.FromChannel, s.Amount == due:
		return r.endRefund(s, o, a, open, due)
	case s.Amount.Currency == due.Currency && s.Amount.Tenthousandths > 0 && s.Amount.Tenthousandths < due.Tenthousandths && s.RefundID != "" && r.store.keepsRefunds:
		return r.part(s, o, a, open, due)
	}
	return r.refuseRefunded(s, o)
}

// part: the channel gave back less than was left. What it gave back is asked for no longer; a refund that
// went on asking for the whole sum would be refused by the channel for ever.
func (r *stepRun) part(s *Step, o *held, a *attempt, open *refundRow, due reservation.Money) StepResult {
	left := due
	left.Tenthousandths -= s.Amount.Tenthousandths
	if open != nil && open.id == s.RefundID { // ended as a part: the id is used up at the channel
		ended, rest := *open, *open
		ended.amount, ended.state, ended.part = s.Amount, refundRefunded, true
		rest.id, rest.amount, rest.part, rest.rest = refundID(o.ID, ids.PaymentID("\x00"+open.id)), left, true, true // no payment_id has a NUL
		rest.ask = Asked{Actor: "cellquota", Reason: "what was left of " + open.id}
		r.addRefund(o, ended) // before the next one: a payment has one that is open
		r.requestRefund(o, rest)
		r.out.pay(o, a.id, o.total, a.state, rest.id)
		return StepResult{Order: o.Order, Payment: a.state}
	}
	r.addRefund(o, refundRow{id: s.RefundID, payment: a.id, amount: s.Amount, state: refundRefunded, cause: RefundByChannel, part: true})
	if open != nil {
		lower := *open
		lower.amount, lower.part, lower.lowered = left, true, true
		r.requestRefund(o, lower)
	}
	return StepResult{Order: o.Order, Payment: a.state}
}

func (r *stepRun) refuseRefunded(s *Step, o *held) StepResult {
	r.out.refuse(s, "PAYMENT_MISMATCH")
	return StepResult{Err: ErrPaymentMismatch, Order: o.Order}
}

// endRefund ends the refund that was asked for, or records one that nobody here asked for.
func (r *stepRun) endRefund(s *Step, o *held, a *attempt, open *refundRow, due reservation.Money) StepResult {
	row := refundRow{payment: a.id, amount: due, cause: RefundByChannel, part: due != o.total}
	switch {
	case open != nil:
		row = *open
		row.amount, row.part = due, due != o.total
	case a.state == PaymentPaidAfterClose: // asked for by an older program
		row.id, row.cause = a.refund, lateCause(o)
	case a.refund != "":
		row.id = a.refund
	case s.RefundID != "":
		row.id = s.RefundID
	default:
		row.id = refundID(o.ID, a.id)
	}
	row.state = refundRefunded
	if !row.part && (a.state == PaymentSucceeded || a.state == PaymentRefundPending) {
		r.out.restocks = append(r.out.restocks, restock{held: o, refund: row.id})
	}
	r.addRefund(o, row)
	r.out.pay(o, a.id, o.total, PaymentRefunded, row.id)
	return StepResult{Order: o.Order, Payment: PaymentRefunded, RefundID: row.id, RefundOf: a.id}
}

// endLeft ends a refund whose payment is REFUNDED already: a program that knows no rows took the
// channel's word, and returned no unit of a payment that was REFUND_PENDING.
func (r *stepRun) endLeft(o *held, a *attempt, open *refundRow) StepResult {
	row := *open
	row.state, row.of = refundRefunded, o
	if !row.part && !row.late() {
		r.out.restocks = append(r.out.restocks, restock{held: o, refund: row.id, unless: []string{row.id, a.refund}})
	}
	r.out.refunds = append(r.out.refunds, row)
	return StepResult{Order: o.Order, Payment: a.state, RefundID: row.id, RefundOf: a.id}
}

func (o *held) inState(state PaymentState) *attempt {
	for i := range o.attempts {
		if o.attempts[i].state == state {
			return &o.attempts[i]
		}
	}
	return nil
}

func (o *held) refundByID(id string) *refundRow {
	for i := range o.refunds {
		if id != "" && o.refunds[i].id == id {
			return &o.refunds[i]
		}
	}
	return nil
}

func (o *held) openRefund(payment ids.PaymentID) *refundRow {
	for i := range o.refunds {
		if o.refunds[i].payment == payment && o.refunds[i].state == refundPending {
			return &o.refunds[i]
		}
	}
	return nil
}

// left is what of an attempt's money has not gone back in parts.
func (o *held) left(payment ids.PaymentID) reservation.Money {
	m := o.total
	for i := range o.refunds {
		if f := &o.refunds[i]; f.payment == payment && f.part && f.state == refundRefunded {
			m.Tenthousandths -= min(f.amount.Tenthousandths, m.Tenthousandths)
		}
	}
	return m
}

// firstTold is what the attempt's success was answered with the first time; a repeat is answered the
// same, however far its refund has come since.
func (o *held) firstTold(a *attempt) PaymentState {
	if a.state == PaymentSucceeded || a.state == PaymentPaidAfterClose {
		return a.state
	}
	for i := range o.refunds {
		if o.refunds[i].payment == a.id && o.refunds[i].late() {
			return PaymentPaidAfterClose
		}
	}
	if o.life == reservation.Paid {
		return PaymentSucceeded
	}
	return a.state
}
