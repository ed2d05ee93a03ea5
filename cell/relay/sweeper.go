package relay

import (
	"context"
	"errors"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Stream is the mirror as the sweeper needs it.
type Stream interface {
	Acker
	// Unpublished pages through entries of the present build older than age.
	Unpublished(ctx context.Context, scope admission.Scope, age time.Duration, after string, limit int64) (admission.Page, error)
	// StreamLength is the number of entries in the present build's stream.
	StreamLength(ctx context.Context, scope admission.Scope) (int64, error)
}

// SweepConfig of a Sweeper. Zero values are the defaults.
type SweepConfig struct {
	After    time.Duration // age at which an entry is produced again; 0: 2 s
	Interval time.Duration // between sweeps; 0: After / 2
	Page     int64         // entries read at once; 0: 500
}

// Sweeper produces again what stayed in the streams.
type Sweeper struct {
	cfg      SweepConfig
	stream   Stream
	producer *Producer
	scopes   func() []admission.Scope
	deps     Deps
}

const (
	defaultSweepAfter = 2 * time.Second
	defaultPage       = 500
)

// NewSweeper makes a sweeper over the mirrors that scopes names at each sweep.
func NewSweeper(cfg SweepConfig, stream Stream, producer *Producer, scopes func() []admission.Scope, deps Deps) *Sweeper {
	cfg.After = orElse(cfg.After, defaultSweepAfter)
	cfg.Interval = orElse(cfg.Interval, cfg.After/2)
	cfg.Page = orElse(cfg.Page, int64(defaultPage))
	return &Sweeper{cfg: cfg, stream: stream, producer: producer, scopes: scopes, deps: deps}
}

// Run sweeps every interval until ctx ends. A scope that fails is tried again with
// the next sweep.
func (s *Sweeper) Run(ctx context.Context) error {
	tick := s.deps.Clock.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
		s.sweepAll(ctx)
	}
}

func (s *Sweeper) sweepAll(ctx context.Context) {
	var pending int64
	for _, scope := range s.scopes() {
		if err := s.Sweep(ctx, scope, s.cfg.After); err != nil && ctx.Err() == nil {
			s.deps.Logger.Warn("stream not swept", telemetry.Event, "relay_sweep_failed",
				telemetry.CampaignID, string(scope.Campaign), telemetry.SKUID, string(scope.SKU), telemetry.Error, err, telemetry.Retryable, true)
		}
		if n, err := s.stream.StreamLength(ctx, scope); err == nil {
			pending += n
		}
	}
	s.deps.Metrics.pending.Set(float64(pending))
}

// Sweep produces every entry of a scope's stream that is at least age old and
// returns when each was acknowledged or failed; the first error is returned, and
// what failed stays. Entries that this process has on their way are left to it. An
// entry that cannot be read is logged and stays, for a person.
func (s *Sweeper) Sweep(ctx context.Context, scope admission.Scope, age time.Duration) error {
	after := ""
	for {
		page, err := s.stream.Unpublished(ctx, scope, age, after, s.cfg.Page)
		if err != nil {
			return err
		}
		for _, id := range page.Broken {
			s.deps.Logger.Error("stream entry cannot be read", telemetry.Event, "relay_entry_broken",
				telemetry.CampaignID, string(scope.Campaign), "stream_id", id, telemetry.Retryable, false)
		}
		if err := s.produce(ctx, page.Entries); err != nil {
			return err
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

// produce sends a page and waits for all of it, at most for the producer's delivery
// time-out. When ctx ends first, what is on its way stays in the stream.
func (s *Sweeper) produce(ctx context.Context, list []admission.Granted) error {
	type answer struct {
		g   admission.Granted
		err error
	}
	answers := make(chan answer, len(list))
	sent := 0
	for _, g := range list {
		if s.producer.onItsWay(g.Reservation) {
			continue
		}
		sent++
		s.producer.send(g, func(err error) { answers <- answer{g, err} }) //nolint:contextcheck // it goes out whoever waits
	}
	var acked []admission.Granted
	var firstErr error
	for range sent {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-answers:
			if a.err == nil {
				acked = append(acked, a.g)
			} else if firstErr == nil {
				firstErr = a.err
			}
		}
	}
	if len(acked) == 0 {
		return firstErr
	}
	return errors.Join(firstErr, s.stream.Acked(ctx, acked))
}
