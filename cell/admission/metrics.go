package admission

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// metrics are what an operator watches of the mirror's decisions (contract §7).
type metrics struct {
	total  *prometheus.CounterVec
	script prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "admission_total",
			Help: "Asks to admit, by what was decided; UNDECIDED: Redis gave no answer.",
		}, []string{"outcome"}),
		script: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: telemetry.Namespace, Name: "admission_script_duration_seconds",
			Help: "Time of one pipeline of asks, from sending to the last answer.", Buckets: telemetry.DurationBuckets,
		}),
	}
	for _, o := range Outcomes() {
		m.total.WithLabelValues(o.String())
	}
	return m, errors.Join(reg.Register(m.total), reg.Register(m.script))
}

func (m *metrics) admitted(results []Result, took time.Duration) {
	m.script.Observe(took.Seconds())
	m.counted(results)
}

func (m *metrics) counted(results []Result) {
	for _, r := range results {
		label := r.Outcome
		if r.Err != nil {
			label = Undecided
		}
		m.total.WithLabelValues(label.String()).Inc()
	}
}
