package load

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/edge/load/history"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
)

const (
	// tries bounds the attempts of one call that was not answered for good.
	tries = 60
	// idle is the pause before a call is made again when the answer names none.
	idle = 500 * time.Millisecond
	// followFor bounds how long a request is followed in one go.
	followFor = 90 * time.Second
)

// visitor is one customer under way.
type visitor struct {
	*Run
	customer
	token string
	// leaveBy ends the tries to get in; zero: never.
	leaveBy time.Time
	// request as last seen, its order and receipt.
	seen client.Request
}

// visit is one customer's whole stay, bounded by the plan's patience.
func (r *Run) visit(ctx context.Context, i int, planned time.Time) {
	ctx, cancel := context.WithTimeout(ctx, r.plan.Patience)
	defer cancel()
	c := r.plan.customer(i)
	token, err := r.token(i, c.user)
	if err != nil {
		r.meter.answer("token failed")
		return
	}
	v := &visitor{Run: r, customer: c, token: token}
	if r.plan.GiveUp > 0 {
		v.leaveBy = r.o.Clock.Now().Add(r.plan.GiveUp)
	}
	if v.buy(ctx, c.request, planned) {
		v.follow(ctx)
		v.quirks(ctx)
		v.settle(ctx)
	}
}

// buy claims a permit and tries until the answer stands; true when the request was accepted.
func (v *visitor) buy(ctx context.Context, request string, planned time.Time) bool {
	permit, ok := v.permit(ctx)
	if !ok {
		return false
	}
	from := planned // waiting for the permit is the visit's own time, waiting for a slot is not
	if now := v.o.Clock.Now(); v.plan.Rate == 0 || now.Sub(planned) < time.Second {
		from = now
	}
	pressed, attempt := 0, 0
	for range tries {
		start := v.o.Clock.Now()
		answered, a, err := v.o.Client.Buy(ctx, v.token, v.o.Campaign, v.sku, client.Try{RequestID: request, Quantity: v.plan.Quantity, Permit: permit, RetryAttempt: attempt})
		v.record(history.Record{Op: history.OpRequest, Request: request, Quantity: int32(v.plan.Quantity), Attempt: attempt}, start, a, err, &answered)
		if err == nil {
			v.meter.took(StageCall, v.o.Clock.Now().Sub(start))
		}
		if err == nil && a.OK() {
			v.meter.took(StageRequest, v.o.Clock.Now().Sub(from))
			v.meter.tally(func(s *Snapshot) { s.Accepted++ })
			v.seen = answered
			return true
		}
		step := client.Next(a, err, attempt)
		if refusedForStock(a.Code) {
			if pressed++; pressed == 1 {
				v.meter.took(StageRequest, v.o.Clock.Now().Sub(from))
			}
			if pressed > v.plan.Mix.Press {
				v.meter.tally(func(s *Snapshot) { s.SoldOut++ })
				return false
			}
		}
		if !step.Again || v.hadEnough(step.After) || !v.pause(ctx, step.After) {
			return false
		}
		if attempt = step.RetryAttempt; step.NewPermit {
			if permit, ok = v.permit(ctx); !ok {
				return false
			}
		}
		from = v.o.Clock.Now()
	}
	return false
}

// hadEnough tells whether the customer leaves instead of trying again after so long.
func (v *visitor) hadEnough(after time.Duration) bool {
	if v.leaveBy.IsZero() || !v.o.Clock.Now().Add(after).After(v.leaveBy) {
		return false
	}
	v.meter.tally(func(s *Snapshot) { s.GaveUp++ })
	return true
}

func refusedForStock(code string) bool {
	switch code {
	case "TEMP_SOLD_OUT", "QUEUE_FULL", "THROTTLED":
		return true
	}
	return false
}

func (v *visitor) permit(ctx context.Context) (string, bool) {
	for attempt := range tries {
		start := v.o.Clock.Now()
		p, a, err := v.o.Client.Permit(ctx, v.token, v.o.Campaign, v.sku)
		v.record(history.Record{Op: history.OpPermit}, start, a, err, nil)
		if err == nil && a.OK() {
			v.meter.took(StagePermit, v.o.Clock.Now().Sub(start))
			return p.Permit, true
		}
		step := client.Next(a, err, attempt)
		if a.Code == "TEMP_SOLD_OUT" || !step.Again || v.hadEnough(step.After) || !v.pause(ctx, step.After) {
			return "", false
		}
	}
	return "", false
}

// follow asks for the request's state until it is no longer on its way.
func (v *visitor) follow(ctx context.Context) {
	accepted := v.o.Clock.Now()
	deadline := accepted.Add(followFor)
	for v.seen.OnItsWay() && v.o.Clock.Now().Before(deadline) {
		if !v.pause(ctx, time.Duration(v.seen.PollAfterMS)*time.Millisecond) || !v.look(ctx, v.seen.RequestID) && ctx.Err() != nil {
			return
		}
	}
	if v.seen.OrderID != "" {
		now := v.o.Clock.Now()
		v.meter.took(StageOrdered, now.Sub(accepted))
		v.meter.order(now, v.start)
	}
}

// look asks once with the receipt and keeps what it saw; false when nothing was learnt.
func (v *visitor) look(ctx context.Context, request string) bool {
	start := v.o.Clock.Now()
	state, a, err := v.o.Client.Status(ctx, v.token, v.o.Campaign, v.sku, request, v.seen.Receipt, 0)
	v.record(history.Record{Op: history.OpStatus, Request: request, Receipt: v.seen.Receipt != ""}, start, a, err, &state)
	if err != nil || !a.OK() {
		return false
	}
	v.meter.took(StageStatus, v.o.Clock.Now().Sub(start))
	receipt := v.seen.Receipt
	if v.seen = state; v.seen.Receipt == "" {
		v.seen.Receipt = receipt
	}
	return true
}

// quirks does what customers should not: the same again, the same id for something else, one more.
func (v *visitor) quirks(ctx context.Context) {
	if v.repeat {
		v.once(ctx, v.request, v.plan.Quantity, 0)
		v.once(ctx, v.request, v.plan.Quantity, 1)
	}
	if v.clash {
		v.once(ctx, v.request, v.plan.Quantity+1, 0)
	}
	if v.second {
		v.once(ctx, v.request+"-2", v.plan.Quantity, 0)
	}
}

// once makes one attempt with a fresh permit where one is given, and records it.
func (v *visitor) once(ctx context.Context, request string, quantity, attempt int) {
	start := v.o.Clock.Now()
	p, a, err := v.o.Client.Permit(ctx, v.token, v.o.Campaign, v.sku)
	v.record(history.Record{Op: history.OpPermit}, start, a, err, nil)
	permit := p.Permit
	if permit == "" {
		permit = "none"
	}
	start = v.o.Clock.Now()
	answered, a, err := v.o.Client.Buy(ctx, v.token, v.o.Campaign, v.sku, client.Try{RequestID: request, Quantity: quantity, Permit: permit, RetryAttempt: attempt})
	v.record(history.Record{Op: history.OpRequest, Request: request, Quantity: int32(quantity), Attempt: attempt}, start, a, err, &answered)
}

// settle pays, cancels, or walks away.
func (v *visitor) settle(ctx context.Context) {
	if v.seen.OrderID == "" {
		return
	}
	switch {
	case v.pays:
		if v.pause(ctx, v.payDelay) {
			v.pay(ctx)
		}
	case v.cancels:
		v.cancel(ctx)
	case v.lingers:
		for range tries {
			if !v.pause(ctx, 2*time.Second) || v.look(ctx, v.request) && v.seen.State != "PENDING_PAYMENT" {
				return
			}
		}
	}
}

// pay starts an attempt and lets the channel say that it succeeded; both are tried again until they
// are answered, because their ids make a repeat safe.
func (v *visitor) pay(ctx context.Context) {
	payment := "p-" + v.request
	var due client.Payment
	ok := v.persist(ctx, StagePayment, func(ctx context.Context) (client.Answer, error) {
		start := v.o.Clock.Now()
		p, a, err := v.o.Client.StartPayment(ctx, v.token, v.seen.OrderID, payment)
		due = p
		v.record(history.Record{Op: history.OpPayment, Order: v.seen.OrderID, Payment: payment}, start, a, err, nil)
		return a, err
	})
	if !ok {
		return
	}
	v.callback(ctx, payment, due)
	if v.payTwice {
		v.callback(ctx, payment, due)
	}
}

func (v *visitor) callback(ctx context.Context, payment string, due client.Payment) {
	message := client.Callback{PaymentID: payment, OrderID: v.seen.OrderID, Amount: due.Amount, Currency: due.Currency, Status: "SUCCEEDED"}
	sign := func(body []byte) (string, error) {
		return signed.SignPayment(v.o.Clock.Now(), body, v.o.Payment, v.o.PaymentKID)
	}
	v.persist(ctx, StageCallback, func(ctx context.Context) (client.Answer, error) {
		start := v.o.Clock.Now()
		out, a, err := v.o.Client.SendCallback(ctx, message, sign)
		v.record(history.Record{Op: history.OpCallback, Order: v.seen.OrderID, Payment: payment, State: out.OrderState, PaymentState: out.PaymentState}, start, a, err, nil)
		if err == nil && a.OK() && out.PaymentState == "SUCCEEDED" {
			v.meter.tally(func(s *Snapshot) { s.Paid++ })
		}
		return a, err
	})
}

func (v *visitor) cancel(ctx context.Context) {
	v.persist(ctx, "", func(ctx context.Context) (client.Answer, error) {
		start := v.o.Clock.Now()
		o, a, err := v.o.Client.Cancel(ctx, v.token, v.seen.OrderID)
		v.record(history.Record{Op: history.OpCancel, Order: v.seen.OrderID, State: o.State}, start, a, err, nil)
		if err == nil && a.OK() {
			v.meter.tally(func(s *Snapshot) { s.Cancelled++ })
		}
		return a, err
	})
}

// persist repeats a call until its answer stands; true when it succeeded.
func (v *visitor) persist(ctx context.Context, stage Stage, call func(context.Context) (client.Answer, error)) bool {
	for attempt := range tries {
		start := v.o.Clock.Now()
		a, err := call(ctx)
		if err == nil && a.OK() {
			if stage != "" {
				v.meter.took(stage, v.o.Clock.Now().Sub(start))
			}
			return true
		}
		step := client.Next(a, err, attempt)
		if !step.Again && a.Status < 500 || !v.pause(ctx, step.After) {
			return false
		}
	}
	return false
}

// pause waits as long as the answer asked for, spread by a quarter so that visitors do not march in
// step; false when the visit is over.
func (v *visitor) pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		d = idle
	}
	return v.o.Clock.Sleep(ctx, d+time.Duration(v.jitter.Int64N(int64(d)/4+1))) == nil
}

// record counts an answer and writes it to the history. body, when given, is the request in the answer.
func (v *visitor) record(r history.Record, start time.Time, a client.Answer, err error, body *client.Request) {
	r.Start, r.End = start.UnixMicro(), v.o.Clock.Now().UnixMicro()
	r.Campaign, r.SKU, r.User, r.Scope = v.o.Campaign, v.sku, v.user, v.plan.Scope
	if r.Scope == "" {
		r.Scope = v.sku
	}
	r.Status, r.Code, r.Unknown = a.Status, a.Code, err != nil
	if err != nil {
		r.Status = 0
	}
	if body != nil && err == nil && a.OK() {
		r.State, r.Reason, r.Reservation, r.Order = body.State, body.Reason, body.ReservationID, body.OrderID
		r.Cell, r.Fence = v.promisedBy(body)
	}
	v.meter.answer(answerKey(r))
	if r.Unknown {
		v.meter.tally(func(s *Snapshot) { s.Unknown++ })
	}
	if v.o.History != nil {
		v.o.History.Add(r)
	}
}

// promisedBy is the cell that accepted a request, and its fence version where the receipt can be opened.
func (v *visitor) promisedBy(body *client.Request) (cell string, fence int64) {
	if v.o.Receipts != nil && body.Receipt != "" {
		if receipt, err := signed.VerifyReceipt(body.Receipt, v.o.Receipts); err == nil {
			return string(receipt.Cell), receipt.Build.Fence
		}
	}
	if id, err := ids.ParseReservation(body.ReservationID); err == nil {
		return string(id.Cell()), 0
	}
	return "", 0
}

// answerKey is the name under which an answer is counted: few, never with an id.
func answerKey(r history.Record) string {
	switch {
	case r.Unknown:
		return string(r.Op) + " unknown"
	case r.Code != "":
		return fmt.Sprintf("%s %d %s", r.Op, r.Status, r.Code)
	case r.State != "":
		return fmt.Sprintf("%s %d %s", r.Op, r.Status, r.State)
	}
	return string(r.Op) + " " + strconv.Itoa(r.Status)
}
