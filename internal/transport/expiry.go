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
	held  []watched
}

// watched is one certificate of one identity.
type watched struct {
	key  string
	look func() (Held, bool)
}

// Ending is a certificate that this process holds.
type Ending struct {
	Key string // tls, tls.ca, http, etcd.tls …
	Held
}

// NewExpiry makes a watch of nothing.
func NewExpiry(c clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*Expiry, error) {
	e := &Expiry{clock: c, log: log, ends: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "cellquota", Name: "certificate_not_after_seconds",
		Help: "End of a certificate that this process uses, Unix seconds, by configuration key (tls, http, etcd.tls, redis.tls, kafka.tls, shard); with .ca the first end among its authorities.",
	}, []string{"certificate"})}
	return e, reg.Register(e.ends)
}

// Add watches the identity of a configuration key, its authorities as key.ca; nil is
// nothing to watch. What it has later, when its files change, is watched too.
func (e *Expiry) Add(key string, t *TLS) {
	if t == nil {
		return
	}
	e.AddCertificate(key, t.Leaf)
	e.AddCertificate(key+".ca", t.Authority)
}

// AddCertificate watches what look finds, which reads it anew at each call.
func (e *Expiry) AddCertificate(key string, look func() (Held, bool)) {
	e.held = append(e.held, watched{key, look})
	e.look(e.held[len(e.held)-1])
}

// All lists the certificates as they are now, in the order of Add.
func (e *Expiry) All() []Ending {
	var out []Ending
	for _, w := range e.held {
		if held, ok := w.look(); ok {
			out = append(out, Ending{w.key, held})
		}
	}
	return out
}

// Run looks every hour until ctx ends, and returns nil then.
func (e *Expiry) Run(ctx context.Context) error {
	for {
		for _, w := range e.held {
			e.look(w)
		}
		if err := e.clock.Sleep(ctx, expiryEvery); err != nil {
			return nil //nolint:nilerr // asked to stop
		}
	}
}

func (e *Expiry) look(w watched) {
	held, ok := w.look()
	if !ok {
		return
	}
	e.ends.WithLabelValues(w.key).Set(float64(held.End.Unix()))
	if left := held.End.Sub(e.clock.Now()); left < Expiring {
		e.log.Warn("a certificate ends soon", "event", "certificate_expiring", "certificate", w.key, "name", held.Name, "not_after", held.End, "left", left.Round(time.Minute))
	}
}
