package orders

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

type metrics struct {
	orders     *prometheus.CounterVec // outcome: ORDERED, a reason, DUPLICATE, PARKED, LOST
	batch      prometheus.Histogram
	queue      prometheus.Histogram
	endToEnd   prometheus.Histogram
	mismatches prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	hist := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: telemetry.Namespace, Name: name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		orders: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "orders_total",
			Help: "Messages of the log by outcome: ORDERED, a reason of rejection, DUPLICATE, PARKED; LOST counts batches dropped for a lost position.",
		}, []string{"outcome"}),
		batch:    hist("order_batch_size", "Messages in one transaction.", []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}),
		queue:    hist("order_queue_duration_seconds", "Time the oldest message of a batch lay in the log until its batch was committed.", telemetry.DurationBuckets),
		endToEnd: hist("order_end_to_end_seconds", "Time from admission to the order.", telemetry.DurationBuckets),
		mismatches: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "order_position_mismatches_total", Help: "Stored positions that did not belong to the log.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.orders), reg.Register(m.batch), reg.Register(m.queue), reg.Register(m.endToEnd), reg.Register(m.mismatches))
}

func (m *metrics) outcome(name string) { m.orders.WithLabelValues(name).Inc() }
