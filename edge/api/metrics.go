package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// metrics of contract §7. Every label value is a name of this package: layers, codes and calls are
// closed sets, so no client can make a series (K56).
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	repeats  *prometheus.CounterVec
	running  prometheus.GaugeFunc
}

// Kinds of repeats.
const (
	repeatCollapsed = "collapsed" // joined a call that was under way
	repeatReplayed  = "replayed"  // the home cell had answered it before
	repeatAttempt   = "attempt"   // came with Retry-Attempt
)

func newMetrics(reg prometheus.Registerer, running func() float64) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_requests_total", Help: "Calls by the layer that answered and the code it answered.",
		}, []string{"layer", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_request_duration_seconds", Help: "Time from the call's header to its answer.",
			Buckets: telemetry.DurationBuckets,
		}, []string{"call"}),
		repeats: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_repeats_total", Help: "Requests that were made before, by how that was seen.",
		}, []string{"kind"}),
		running: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_requests_running", Help: "Calls being answered.",
		}, running),
	}
	for _, kind := range []string{repeatCollapsed, repeatReplayed, repeatAttempt} {
		m.repeats.WithLabelValues(kind)
	}
	reg.MustRegister(m.requests, m.duration, m.repeats, m.running)
	return m
}

func (m *metrics) answered(name string, rep *reply, took time.Duration) {
	m.requests.WithLabelValues(string(rep.layer), rep.code).Inc()
	m.duration.WithLabelValues(name).Observe(took.Seconds())
}
