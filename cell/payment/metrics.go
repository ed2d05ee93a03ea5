package payment

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/telemetry"
)

type metrics struct {
	steps *prometheus.CounterVec // kind, outcome
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "payment_steps_total", Help: "Steps of orders by customers and the payment channel.",
		}, []string{"kind", "outcome"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, reg.Register(m.steps)
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
