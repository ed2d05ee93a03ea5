package refund

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

type metrics struct {
	asks    *prometheus.CounterVec // answer
	pending prometheus.Gauge
	oldest  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		asks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "refund_asks_total", Help: "Questions to the payment channel to carry a refund out, by answer.",
		}, []string{"answer"}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace, Name: "refunds_pending", Help: "Refunds of this shard that have not ended.",
		}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace, Name: "refund_oldest_seconds", Help: "Age of the oldest of them, by the shard's clock; 0: none.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.asks), reg.Register(m.pending), reg.Register(m.oldest))
}
