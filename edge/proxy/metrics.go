package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// metrics of the streams. None carries a cell's name: what one cell answers is its own metric.
type metrics struct {
	streams prometheus.Gauge
	batch   prometheus.Histogram
	unknown prometheus.Counter
	late    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_exchange_streams", Help: "Open streams to processes of cells.",
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_exchange_batch_size", Help: "Asks sent in one message.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_asks_unknown_total", Help: "Asks that were sent and never answered: their outcome is unknown.",
		}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_answers_late_total", Help: "Answers that came after their asker's time was up.",
		}),
	}
	reg.MustRegister(m.streams, m.batch, m.unknown, m.late)
	return m
}
