package link

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Metrics registers what is known of the right to sell (contract, section 7).
func Metrics(reg prometheus.Registerer, s *Standing, writer func() (shard.Writer, bool), c clock.Clock) error {
	gauge := func(name, help string, value func() float64) error {
		return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: telemetry.Namespace, Name: name, Help: help}, value))
	}
	return errors.Join(
		gauge("fence_version", "Fence version this process writes under; 0: none.", func() float64 {
			w, _ := writer()
			return float64(w.FenceVersion)
		}),
		gauge("lease_remaining_seconds", "What is left of this process's lease; 0: none.", func() float64 {
			return s.LeaseRemaining(c.Now()).Seconds()
		}),
		gauge("link_up", "1 while a stream to the control plane's leader stands.", func() float64 {
			if ok, _ := s.Linked(); ok {
				return 1
			}
			return 0
		}),
	)
}
