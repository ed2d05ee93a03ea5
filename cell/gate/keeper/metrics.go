package keeper

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/gate"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// maxLabels bounds the campaigns and SKUs that have series of their own.
const maxLabels = 200

type metrics struct {
	outstanding *prometheus.GaugeVec
	oldest      *prometheus.GaugeVec
	state       *prometheus.GaugeVec
	bound       *prometheus.GaugeVec
	campaigns   *telemetry.LabelSet
	skus        *telemetry.LabelSet
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: telemetry.Namespace, Name: name, Help: help},
			append([]string{telemetry.CampaignID, telemetry.SKUID}, more...))
	}
	m := &metrics{
		outstanding: gauge("admission_outstanding", "Admissions of the mirror without an outcome."),
		oldest:      gauge("oldest_unsettled_age_seconds", "Age of the oldest of them, by Redis TIME; 0: none."),
		state:       gauge("gate_state", "1 for the state the gate is in, 0 for the others.", "state"),
		bound:       gauge("gate_bound_admissions", "Outstanding admissions that the gate allows."),
		campaigns:   telemetry.NewLabelSet(maxLabels), skus: telemetry.NewLabelSet(maxLabels),
	}
	return m, errors.Join(reg.Register(m.outstanding), reg.Register(m.oldest), reg.Register(m.state), reg.Register(m.bound))
}

func (m *metrics) show(v View) {
	c, s := m.labels(v.Place)
	m.outstanding.WithLabelValues(c, s).Set(float64(v.Facts.Outstanding))
	m.oldest.WithLabelValues(c, s).Set(float64(v.Facts.OldestAgeMS()) / 1000)
	m.bound.WithLabelValues(c, s).Set(float64(v.Gate.Bound))
	for _, state := range gate.States() {
		on := 0.0
		if state == v.Gate.State {
			on = 1
		}
		m.state.WithLabelValues(c, s, state.String()).Set(on)
	}
}

func (m *metrics) drop(p Place) {
	c, s := m.labels(p)
	m.outstanding.DeleteLabelValues(c, s)
	m.oldest.DeleteLabelValues(c, s)
	m.bound.DeleteLabelValues(c, s)
	for _, state := range gate.States() {
		m.state.DeleteLabelValues(c, s, state.String())
	}
}

func (m *metrics) labels(p Place) (campaign, sku string) {
	return m.campaigns.Value(string(p.Scope.Campaign)), m.skus.Value(string(p.SKU))
}
