package payment

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/telemetry"
)

type metrics struct {
	steps     *prometheus.CounterVec // kind, outcome
	refunds   prometheus.Counter
	conflicts prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "payment_steps_total", Help: "Steps of orders by customers and the payment channel.",
		}, []string{"kind", "outcome"}),
		refunds: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "refunds_total", Help: "Refunds asked of the payment channel.",
		}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "payment_close_conflicts_total", Help: "Payments that succeeded after their order was closed.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.steps), reg.Register(m.refunds), reg.Register(m.conflicts))
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "accepted"
	case errors.Is(err, shard.ErrPaymentMismatch):
		return "mismatch"
	case errors.Is(err, shard.ErrNotFound):
		return "unknown"
	case errors.Is(err, reservation.ErrTransition):
		return "refused"
	}
	return "failed"
}
