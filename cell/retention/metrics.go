package retention

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

type metrics struct {
	archived, inbox, keys prometheus.Counter
	parts                 prometheus.Gauge
}

func newMetrics() metrics {
	return metrics{
		archived: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "campaigns_archived_total", Help: "Settled campaigns whose ledger this process moved to the archive.",
		}),
		inbox: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "inbox_pruned_total", Help: "Inbox rows of archived campaigns deleted because their message cannot be replayed any more.",
		}),
		keys: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace, Name: "mirror_keys_pruned_total", Help: "Redis keys removed with the mirrors of archived campaigns.",
		}),
		parts: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace, Name: "ledger_partitions", Help: "Partitions of the shard's ledger: one per campaign that is not archived, and one for what comes after an archive.",
		}),
	}
}

func (m metrics) register(registry prometheus.Registerer) error {
	if registry == nil {
		return nil
	}
	return errors.Join(registry.Register(m.archived), registry.Register(m.inbox), registry.Register(m.keys), registry.Register(m.parts))
}
