package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cellquota/cellquota/edge/routes"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// keysEvery is how often the key files are read again.
const keysEvery = 2 * time.Second

// keyRings are the keys an edge works with, by use.
type keyRings map[signed.Use]*signed.Ring

func loadRings(keysDir string) (keyRings, error) {
	rings := keyRings{}
	var errs []error
	for _, use := range []signed.Use{signed.UsePermit, signed.UseReceipt, signed.UsePayment} {
		ring, err := signed.LoadRing(keysDir, use)
		if err != nil {
			errs = append(errs, fmt.Errorf("keys_dir: %w", err))
		}
		rings[use] = ring
	}
	return rings, errors.Join(errs...)
}

// follow makes the rings go by a snapshot's key states. A use that it does not name keeps what was
// heard before.
func (k keyRings) follow(s *routes.Snapshot, log *slog.Logger) {
	for use, ring := range k {
		states := s.KeyStates(use)
		if len(states) == 0 {
			continue
		}
		if err := ring.Follow(states); err != nil {
			failed(log, err)
		}
	}
}

// run reads the files again and again until ctx ends.
func (k keyRings) run(ctx context.Context, c clock.Clock, log *slog.Logger) error {
	for c.Sleep(ctx, keysEvery) == nil {
		for _, ring := range k {
			before := ring.Fault()
			if err := ring.Reload(); err != nil && ring.Fault() != before {
				failed(log, err)
			}
		}
	}
	return nil
}

func failed(log *slog.Logger, err error) {
	log.Error("keys not read again", slog.String(telemetry.Event, "keys_reload_failed"), slog.Any(telemetry.Error, err))
}

// names are the keys whose bytes are here, "USE/KID".
func (k keyRings) names() (names []string) {
	for _, use := range []signed.Use{signed.UsePermit, signed.UseReceipt, signed.UsePayment} {
		names = append(names, k[use].Names()...)
	}
	return names
}

// faults are what is wrong with key files, for readiness.
func (k keyRings) faults() map[string]string {
	out := map[string]string{}
	for use, ring := range k {
		if fault := ring.Fault(); fault != "" {
			out["keys_"+string(use)] = fault
		}
	}
	return out
}
