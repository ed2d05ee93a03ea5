package reconcile

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/telemetry"
)

type metrics struct {
	findings *prometheus.GaugeVec
	breaches *prometheus.CounterVec
	compared prometheus.Counter
	cycle    prometheus.Histogram
	repairs  *prometheus.CounterVec
}

// breaks is the invariant that a kind of finding breaks; kinds that break none are a delay.
var breaks = map[shard.FindingKind]string{
	shard.QuantityMismatch: "I5", shard.DuplicateAction: "I7", shard.MissingAction: "I7", shard.StateMismatch: "I7", shard.ReservationWithoutOrder: "I6",
	shard.OrphanBuyerMark: "I4",
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		findings: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace, Name: "ledger_findings",
			Help: "Differences between the cell's ledgers that are not repaired, by kind, as the process that compares counted them last.",
		}, []string{"kind"}),
		breaches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "invariant_breaches_total", Help: "New findings of this process that break an invariant, by invariant.",
		}, []string{"invariant"}),
		compared: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "reconcile_compared_total", Help: "Ids whose ledgers this process compared.",
		}),
		cycle: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: telemetry.Namespace, Name: "reconcile_cycle_seconds", Buckets: []float64{0.1, 1, 3, 10, 30, 60, 180, 600, 3600},
			Help: "Time of one comparison of everything, pauses included.",
		}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "reconcile_repairs_total", Help: "Repairs of findings, by action and outcome.",
		}, []string{"action", "outcome"}),
	}
	for _, k := range shard.FindingKinds() {
		m.findings.WithLabelValues(string(k))
	}
	for _, i := range breaks {
		m.breaches.WithLabelValues(i)
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.findings), reg.Register(m.breaches), reg.Register(m.compared), reg.Register(m.cycle), reg.Register(m.repairs))
}

func (m *metrics) cycled(took time.Duration, w *walk) {
	m.cycle.Observe(took.Seconds())
	m.compared.Add(float64(w.requests))
}

func (m *metrics) found(k shard.FindingKind) {
	if i, ok := breaks[k]; ok {
		m.breaches.WithLabelValues(i).Inc()
	}
}

// repaired counts a repair; a refused one is REFUSED.
func (m *metrics) repaired(a shard.RepairAction, outcome string, err error) {
	if err != nil {
		outcome = "REFUSED"
	}
	m.repairs.WithLabelValues(string(a), outcome).Inc()
}

// counts sets the gauge from the rows; a process that stopped comparing shows zero.
func (m *metrics) counts(list []shard.FindingCount) {
	of := map[shard.FindingKind]int64{}
	for _, c := range list {
		of[c.Kind] += c.N
	}
	for _, k := range shard.FindingKinds() {
		m.findings.WithLabelValues(string(k)).Set(float64(of[k]))
	}
}
