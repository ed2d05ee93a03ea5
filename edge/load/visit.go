package load

import (
	"context"
	"time"

	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/edge/load/history"
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
	// request as last seen, its order and receipt, and the permit that it was accepted with.
	seen client.Request
	pass string
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
	bought := v.buy(ctx, c.request, planned)
	for moves := 0; bought && moves < maxMoves; moves++ {
		if v.follow(ctx); !v.seen.Moved() {
			break
		}
		bought = v.buy(ctx, c.request, v.o.Clock.Now()) // under the same id: the new home decides
	}
	if bought {
		v.quirks(ctx)
		v.settle(ctx)
	}
}

// maxMoves bounds how often a customer goes after his bucket.
const maxMoves = 3

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
			v.seen, v.pass = answered, permit
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

// once makes one attempt and records it: with a fresh permit where one is given, else (who has an order
// gets none) with the one that was accepted, as a client repeats a call.
func (v *visitor) once(ctx context.Context, request string, quantity, attempt int) {
	start := v.o.Clock.Now()
	p, a, err := v.o.Client.Permit(ctx, v.token, v.o.Campaign, v.sku)
	v.record(history.Record{Op: history.OpPermit}, start, a, err, nil)
	permit := p.Permit
	if permit == "" {
		permit = v.pass
	}
	start = v.o.Clock.Now()
	answered, a, err := v.o.Client.Buy(ctx, v.token, v.o.Campaign, v.sku, client.Try{RequestID: request, Quantity: quantity, Permit: permit, RetryAttempt: attempt})
	v.record(history.Record{Op: history.OpRequest, Request: request, Quantity: int32(quantity), Attempt: attempt}, start, a, err, &answered)
}

// pause waits as long as the answer asked for, spread by a quarter so that visitors do not march in
// step; false when the visit is over.
func (v *visitor) pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		d = idle
	}
	return v.o.Clock.Sleep(ctx, d+time.Duration(v.jitter.Int64N(int64(d)/4+1))) == nil
}
