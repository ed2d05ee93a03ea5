package load

import (
	"context"
	"time"

	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/edge/load/history"
	"github.com/cellquota/cellquota/internal/signed"
)

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
