package relay

import (
	"context"
	"errors"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
)

// What the scanner finds of an admission that waits too long.
const (
	notPublished   = "not_published"    // its entry is in the stream: the sweeper's
	unknownResult  = "unknown"          // published, and the shard has no outcome
	notWrittenBack = "not_written_back" // decided, and the mirror was not told
	messageLost    = "message_lost"     // the mirror lost its message and the shard has no outcome
)

// Decided is what the shard decided about one admission.
type Decided struct {
	Known bool // there is an outcome
	// Pending: effects of it are on their way through the outbox; wait for them.
	Pending bool
	// Effects are all of its effects, in order; applying them again changes nothing
	// that was applied.
	Effects []*eventsv1.MirrorEffect
	// Build is the one raised for the mirror, read with the effects.
	Build ids.Build
}

// Shard is the shard as the scanner needs it.
type Shard interface {
	// Decided reads what the shard decided about a reservation of a request.
	Decided(ctx context.Context, g admission.Granted) (Decided, error)
}

// Waiting is the mirror as the scanner needs it.
type Waiting interface {
	// Outstanding reads admissions of a SKU that wait since at least age.
	Outstanding(ctx context.Context, scope admission.Scope, sku ids.SKUID, age time.Duration, limit int64) ([]admission.Waiting, error)
	// ApplyEffects applies effects in order.
	ApplyEffects(ctx context.Context, effects []admission.Effect) []admission.EffectResult
}

// Place is one SKU of one mirror.
type Place struct {
	Scope admission.Scope
	SKU   ids.SKUID
}

// ScanConfig of a Scanner. Zero values are the defaults.
type ScanConfig struct {
	After    time.Duration // age at which an admission is looked at; 0: 10 s
	Interval time.Duration // between scans, and before the first repeat of a message is repeated; 0: 5 s
	Limit    int64         // admissions per SKU and scan; 0: 200
}

const (
	defaultScanAfter    = 10 * time.Second
	defaultScanInterval = 5 * time.Second
	defaultScanLimit    = 200
)

// Scanner finds admissions that got stuck after they left the stream.
type Scanner struct {
	cfg      ScanConfig
	mirror   Waiting
	shard    Shard
	producer *Producer
	places   func() []Place
	deps     Deps
	repeats  map[Place]map[ids.ReservationID]repeat // only of admissions that still wait
}

// repeat remembers how often and when a message was last produced again.
type repeat struct {
	times int
	last  time.Time
}

// maxBackoff bounds the doubling of the pause between two repeats.
const maxBackoff = 6

// NewScanner makes a scanner over the SKUs that places names at each scan.
func NewScanner(cfg ScanConfig, mirror Waiting, shard Shard, producer *Producer, places func() []Place, deps Deps) *Scanner {
	cfg.After = orElse(cfg.After, defaultScanAfter)
	cfg.Interval = orElse(cfg.Interval, defaultScanInterval)
	cfg.Limit = orElse(cfg.Limit, int64(defaultScanLimit))
	return &Scanner{
		cfg: cfg, mirror: mirror, shard: shard, producer: producer, places: places, deps: deps,
		repeats: map[Place]map[ids.ReservationID]repeat{},
	}
}

// Run scans every interval until ctx ends.
func (s *Scanner) Run(ctx context.Context) error {
	tick := s.deps.Clock.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
		for _, place := range s.places() {
			if err := s.Scan(ctx, place); err != nil && ctx.Err() == nil {
				s.deps.Logger.Warn("outstanding admissions not scanned", telemetry.Event, "relay_scan_failed",
					telemetry.CampaignID, string(place.Scope.Campaign), telemetry.SKUID, string(place.SKU),
					telemetry.Error, err, telemetry.Retryable, true)
			}
		}
	}
}

// Scan looks once at the oldest waiting admissions of a SKU and sets each one going
// again. Nothing is ever given back here: only the shard's outcome does that. A
// message is produced again with growing pauses, because a consumer that is merely
// behind looks the same from here. Not safe for concurrent use: Run calls it.
func (s *Scanner) Scan(ctx context.Context, place Place) error {
	waiting, err := s.mirror.Outstanding(ctx, place.Scope, place.SKU, s.cfg.After, s.cfg.Limit)
	if err != nil {
		return err
	}
	var failed error
	before, now := s.repeats[place], map[ids.ReservationID]repeat{}
	s.repeats[place] = now
	for _, w := range waiting {
		if r, ok := before[w.Reservation]; ok {
			now[w.Reservation] = r
		}
		finding, err := s.look(ctx, w, now)
		if err != nil {
			failed = errors.Join(failed, err)
			if ctx.Err() != nil {
				return failed
			}
			continue
		}
		if finding == "" {
			continue
		}
		s.deps.Metrics.found.WithLabelValues(finding).Inc()
		if finding != notPublished {
			s.deps.Logger.Info("stuck admission set going", telemetry.Event, "relay_stuck", "finding", finding,
				telemetry.ReservationID, string(w.Reservation), telemetry.EventID, ids.EventID(w.Reservation),
				telemetry.CampaignID, string(place.Scope.Campaign), telemetry.SKUID, string(place.SKU))
		}
	}
	return failed
}

// look tells one waiting admission apart and does what its case needs.
func (s *Scanner) look(ctx context.Context, w admission.Waiting, repeats map[ids.ReservationID]repeat) (finding string, err error) {
	if w.InStream {
		return notPublished, nil
	}
	if s.producer.onItsWay(w.Reservation) {
		return "", nil
	}
	d, err := s.shard.Decided(ctx, w.Granted)
	switch {
	case err != nil:
		return "", err
	case d.Pending:
		return "", nil
	case d.Known:
		return notWrittenBack, s.writeBack(ctx, w, d)
	case len(w.Message) == 0:
		return messageLost, nil
	}
	r, now := repeats[w.Reservation], s.deps.Clock.Now()
	if r.times > 0 && now.Sub(r.last) < s.cfg.Interval<<min(r.times-1, maxBackoff) {
		return "", nil
	}
	repeats[w.Reservation] = repeat{times: r.times + 1, last: now}
	// Sent without its stream entry: the answer is not needed, the next scan looks again.
	s.producer.send(w.Granted, func(error) {}) //nolint:contextcheck // it goes out whoever waits
	return unknownResult, nil
}

func (s *Scanner) writeBack(ctx context.Context, w admission.Waiting, d Decided) error {
	effects := make([]admission.Effect, len(d.Effects))
	for i, m := range d.Effects {
		effects[i] = admission.Effect{Scope: w.Scope, Build: d.Build, Effect: m}
	}
	if len(effects) == 0 {
		// The outcome is known and its effect rows were pruned: at least it no longer waits.
		effects = []admission.Effect{{Scope: w.Scope, Build: d.Build, Effect: &eventsv1.MirrorEffect{
			EffectId: events.SettleEffectID(string(w.Reservation)), CampaignId: string(w.Scope.Campaign), SkuId: string(w.SKU),
			Settle: true, UserId: string(w.User), RequestId: string(w.Request), ReservationId: string(w.Reservation),
		}}}
	}
	for _, r := range s.mirror.ApplyEffects(ctx, effects) {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}
