package routes

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// metrics say how far the copy is behind; alarms hang on the first two.
type metrics struct {
	revision    prometheus.Gauge
	heard       prometheus.Gauge
	cycles      prometheus.Counter
	quarantined prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		revision: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_routes_revision", Help: "Revision of the control plane's view that this edge goes by.",
		}),
		heard: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_routes_applied_timestamp_seconds", Help: "When this edge last applied a change of routes, Unix time.",
		}),
		cycles: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_routes_watch_cycles_total", Help: "How often the watch of routes was begun.",
		}),
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_routes_quarantined_total", Help: "Records of the control plane that this edge could not read.",
		}),
	}
	reg.MustRegister(m.revision, m.heard, m.cycles, m.quarantined)
	return m
}

func (m *metrics) applied(revision int64, now time.Time) {
	m.revision.Set(float64(revision))
	m.heard.Set(float64(now.UnixMilli()) / 1000)
}
