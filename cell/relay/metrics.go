package relay

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// Metrics are shared by the parts of the relay in one process.
type Metrics struct {
	published prometheus.Counter
	pending   prometheus.Gauge
	duration  prometheus.Histogram
	found     *prometheus.CounterVec
}

// NewMetrics registers the relay's metrics (contract §7).
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "relay_published_total",
			Help: "Admissions acknowledged by the log, repeats included.",
		}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace, Name: "relay_pending",
			Help: "Stream entries that the log has not acknowledged, at the last sweep.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: telemetry.Namespace, Name: "relay_publish_duration_seconds",
			Help: "Time from handing an admission to the driver until the log acknowledged it.", Buckets: telemetry.DurationBuckets,
		}),
		found: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "relay_stuck_total",
			Help: "Admissions the scanner found without an outcome, by what it found.",
		}, []string{"finding"}),
	}
	for _, f := range []string{notPublished, unknownResult, notWrittenBack, messageLost} {
		m.found.WithLabelValues(f)
	}
	return m, errors.Join(reg.Register(m.published), reg.Register(m.pending), reg.Register(m.duration), reg.Register(m.found))
}
