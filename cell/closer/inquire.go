package closer

import (
	"context"

	"github.com/cellquota/cellquota/cell/payment/provider"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// inquire turns the channel's answer about an attempt into steps.
func (l *Loop) inquire(ctx context.Context, a shard.OpenAttempt) []shard.Step {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if a.ByOrder {
		return l.inquireOrder(ctx, a)
	}
	answer, err := l.channel.Inquire(ctx, a.Order, a.Payment)
	return []shard.Step{l.step(a, l.heard(a, answer, err))}
}

// inquireOrder asks for every payment of an order whose attempts may have been lost. What took the money is
// recorded under its own id, and only then the attempt that stood for it ends; that one ends without a payment
// only where a whole list has none that took the money, or still may.
func (l *Loop) inquireOrder(ctx context.Context, a shard.OpenAttempt) []shard.Step {
	found, err := l.channel.InquireOrder(ctx, a.Order)
	var steps []shard.Step
	rest := provider.Answer{Status: provider.None}
	for _, f := range found {
		switch f.Status {
		case provider.Succeeded:
			steps = append(steps, l.step(shard.OpenAttempt{Order: a.Order, Payment: f.Payment}, f.Answer))
		case provider.Failed, provider.Refunded: // nobody's money is here by it
		default:
			rest.Status = provider.Unknown
		}
	}
	return append(steps, l.step(a, l.heard(a, rest, err)))
}

// heard counts an answer; what is none is Unknown.
func (l *Loop) heard(a shard.OpenAttempt, answer provider.Answer, err error) provider.Answer {
	if err != nil {
		answer.Status = provider.Unknown
		l.log.Warn("the payment channel gave no answer", telemetry.Event, "payment_inquiry_failed", telemetry.OrderID, a.Order,
			telemetry.PaymentID, a.Payment, telemetry.Error, err)
	}
	l.asked.WithLabelValues(string(answer.Status)).Inc()
	return answer
}

// step is what an answer says of an attempt. None means that nobody paid by it: it has failed.
func (l *Loop) step(a shard.OpenAttempt, answer provider.Answer) shard.Step {
	step := shard.Step{Order: a.Order, Payment: a.Payment}
	if answer.Amount.Currency != "" {
		step.Amount, step.FromChannel = answer.Amount, true
	}
	switch answer.Status {
	case provider.Succeeded:
		step.Kind = shard.StepSucceeded
	case provider.Failed, provider.None:
		step.Kind = shard.StepFailed
	default:
		step.Kind, step.FromChannel = shard.StepPending, false
		if a.PastGrace {
			step.Kind = shard.StepSilent
			l.log.Error("the payment channel stays silent; the order waits for a person", telemetry.Event, "order_manual_review",
				telemetry.OrderID, a.Order, telemetry.PaymentID, a.Payment)
		}
	}
	return step
}
