package rebuild

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// maxLabels bounds the campaigns and SKUs that have series of their own.
const maxLabels = 200

type metrics struct {
	ages      *prometheus.GaugeVec
	rebuilds  *prometheus.CounterVec
	campaigns *telemetry.LabelSet
	skus      *telemetry.LabelSet
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		ages: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace, Name: "mirror_age_seconds",
			Help: "Seconds since this process last found the mirror fit to admit into.",
		}, []string{telemetry.CampaignID, telemetry.SKUID}),
		rebuilds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "mirror_rebuilds_total",
			Help: "Mirrors built by this process, by what was wrong with the one before.",
		}, []string{"cause"}),
		campaigns: telemetry.NewLabelSet(maxLabels), skus: telemetry.NewLabelSet(maxLabels),
	}
	for _, c := range Causes() {
		m.rebuilds.WithLabelValues(string(c))
	}
	return m, errors.Join(reg.Register(m.ages), reg.Register(m.rebuilds))
}

func (m *metrics) rebuilt(c Cause) { m.rebuilds.WithLabelValues(string(c)).Inc() }

func (m *metrics) age(scope admission.Scope, d time.Duration) {
	m.ages.WithLabelValues(m.campaigns.Value(string(scope.Campaign)), m.skus.Value(scope.Key())).Set(d.Seconds())
}

func (m *metrics) drop(scope admission.Scope) {
	m.ages.DeleteLabelValues(m.campaigns.Value(string(scope.Campaign)), m.skus.Value(scope.Key()))
}
