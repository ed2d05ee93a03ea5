package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

const lagInterval = time.Second

// LagMeter measures how far the outbox is behind.
type LagMeter struct {
	store   Store
	deps    Deps
	lag     prometheus.Gauge
	waiting prometheus.Gauge
}

// NewLagMeter registers the outbox's metrics (contract §7).
func NewLagMeter(store Store, deps Deps) (*LagMeter, error) {
	m := &LagMeter{
		store: store, deps: deps,
		lag: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace, Name: "outbox_lag_seconds",
			Help: "Age of the oldest row that has not left, by the shard's clock; 0: none waits.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: telemetry.Namespace, Name: "outbox_waiting_rows",
			Help: "Rows that have not left.",
		}),
	}
	return m, errors.Join(deps.Registry.Register(m.lag), deps.Registry.Register(m.waiting))
}

// Run measures every second until ctx ends. While the shard cannot be read the last
// figures stand.
func (m *LagMeter) Run(ctx context.Context) error {
	tick := m.deps.Clock.NewTicker(lagInterval)
	defer tick.Stop()
	for {
		if oldest, n, err := m.store.OutboxLag(ctx); err == nil {
			m.lag.Set(oldest.Seconds())
			m.waiting.Set(float64(n))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}
