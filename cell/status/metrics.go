package status

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// newStaleness makes the metric and, with a registry, registers it.
func newStaleness(reg prometheus.Registerer) (prometheus.Histogram, error) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: telemetry.Namespace, Name: "status_staleness_seconds", Buckets: telemetry.DurationBuckets,
		Help: "How far the mirror was behind the shard when a request that it shows as ADMITTED or QUEUED was asked for: " +
			"time since the shard recorded the outcome, by the database's clock; 0: the shard had none either.",
	})
	if reg == nil {
		return h, nil
	}
	return h, reg.Register(h)
}
