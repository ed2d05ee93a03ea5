package transport

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/clock"
)

// Expiring is when a certificate is close enough to its end for a warning.
const Expiring = 14 * 24 * time.Hour

// expiryEvery is how often certificates are looked at.
const expiryEvery = time.Hour

// Expiry watches the ends of a process's certificates: a metric always, a warning
// in the log every hour of the last 14 days. Add before Run.
type Expiry struct {
	clock clock.Clock
	log   *slog.Logger
	ends  *prometheus.GaugeVec
	names []string
	held  []*TLS
}

// NewExpiry makes a watch of nothing.
func NewExpiry(c clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*Expiry, error) {
	e := &Expiry{clock: c, log: log, ends: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "cellquota", Name: "certificate_not_after_seconds",
		Help: "End of a certificate that this process uses, Unix seconds, by configuration key (tls, http, etcd.tls).",
	}, []string{"certificate"})}
	return e, reg.Register(e.ends)
}

// Add watches the identity of a configuration key; nil, or one without a certificate,
// is nothing to watch.
func (e *Expiry) Add(key string, t *TLS) {
	if t == nil {
		return
	}
	if _, _, ok := t.Leaf(); ok {
		e.names, e.held = append(e.names, key), append(e.held, t)
		e.look(len(e.held) - 1)
	}
}

// Run looks every hour until ctx ends, and returns nil then.
func (e *Expiry) Run(ctx context.Context) error {
	for {
		for i := range e.held {
			e.look(i)
		}
		if err := e.clock.Sleep(ctx, expiryEvery); err != nil {
			return nil //nolint:nilerr // asked to stop
		}
	}
}

func (e *Expiry) look(i int) {
	name, end, ok := e.held[i].Leaf()
	if !ok {
		return
	}
	e.ends.WithLabelValues(e.names[i]).Set(float64(end.Unix()))
	if left := end.Sub(e.clock.Now()); left < Expiring {
		e.log.Warn("a certificate ends soon", "event", "certificate_expiring", "certificate", e.names[i], "name", name, "not_after", end, "left", left.Round(time.Minute))
	}
}
