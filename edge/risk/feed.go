package risk

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Event is what one call came to. Fields that the edge does not know are empty.
type Event struct {
	At          time.Time `json:"at"`
	Call        string    `json:"call"` // as in edge_request_duration_seconds
	Code        string    `json:"code"` // as in edge_requests_total
	Campaign    string    `json:"campaign_id,omitempty"`
	SKU         string    `json:"sku_id,omitempty"`
	User        string    `json:"user_id,omitempty"`
	Device      string    `json:"device_id,omitempty"`
	Network     string    `json:"network,omitempty"`
	Tier        string    `json:"risk_tier,omitempty"`
	Reservation string    `json:"reservation_id,omitempty"`
	Order       string    `json:"order_id,omitempty"`
	Payment     string    `json:"payment_id,omitempty"`
	Status      string    `json:"payment_status,omitempty"` // the channel's word
}

// Verdict is the judge's word about a user or a device; exactly one of the two is named.
type Verdict struct {
	User   string `json:"user_id"`
	Device string `json:"device_id"`
	Tier   string `json:"risk_tier"` // "" takes an earlier verdict back
	TTL    int64  `json:"ttl_ms"`    // how long it counts; at most an hour
}

// Judge takes events and says what it thinks. An error means that it may not have taken them.
type Judge interface {
	Judge(ctx context.Context, events []Event) ([]Verdict, error)
}

// Bounds of what a judge says.
const (
	maxTTL   = time.Hour
	maxTier  = 64  // bytes
	maxNamed = 128 // bytes of a user or device
	tries    = 3
	pause    = 100 * time.Millisecond // between two tries, doubled
)

// Settings are the bounds of a Feed.
type Settings struct {
	Queue    int           // events that wait
	Batch    int           // events of one call of the judge
	Wait     time.Duration // longest wait of the first event of a batch
	Verdicts int           // verdicts that are remembered
}

// Feed takes events to a judge and keeps its verdicts. The nil Feed does nothing. It is safe for
// concurrent use.
type Feed struct {
	set      Settings
	judge    Judge
	clock    clock.Clock
	log      *slog.Logger
	queue    chan Event
	verdicts *otter.Cache[subject, verdict]
	events   *prometheus.CounterVec
	heard    prometheus.Counter
}

// subject is who a verdict is about.
type subject struct{ user, device string }

type verdict struct {
	tier  string
	until time.Time
}

// Outcomes of events.
const (
	sent    = "sent"
	dropped = "dropped" // the queue was full
	failed  = "failed"  // the judge did not take them
)

// New returns a feed; Run takes events to the judge.
func New(set Settings, j Judge, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*Feed, error) {
	cache, err := otter.New(&otter.Options[subject, verdict]{MaximumSize: max(set.Verdicts, 1)})
	if err != nil {
		return nil, fmt.Errorf("risk: %w", err)
	}
	f := &Feed{
		set: set, judge: j, clock: clk, log: log, queue: make(chan Event, set.Queue), verdicts: cache,
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_risk_events_total", Help: "Calls that the risk judge was to be told of, by what became of that.",
		}, []string{"outcome"}),
		heard: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: telemetry.Namespace,
			Name:      "edge_risk_verdicts_total", Help: "Verdicts of the risk judge about users and devices.",
		}),
	}
	for _, outcome := range []string{sent, dropped, failed} {
		f.events.WithLabelValues(outcome)
	}
	reg.MustRegister(f.events, f.heard)
	return f, nil
}

// Offer hands an event over. It never blocks: what does not fit is dropped.
func (f *Feed) Offer(e Event) {
	if f == nil {
		return
	}
	select {
	case f.queue <- e:
	default:
		f.events.WithLabelValues(dropped).Inc()
	}
}

// Tier is a customer's risk tier: the judge's word about him, else about his device, else the token's.
func (f *Feed) Tier(user, device, token string) string {
	if f == nil {
		return token
	}
	if tier, ok := f.live(subject{user: user}); ok {
		return tier
	}
	if device != "" {
		if tier, ok := f.live(subject{device: device}); ok {
			return tier
		}
	}
	return token
}

func (f *Feed) live(s subject) (string, bool) {
	v, ok := f.verdicts.GetIfPresent(s)
	return v.tier, ok && f.clock.Now().Before(v.until)
}

// Run takes events to the judge until ctx ends, which is the only way it ends.
func (f *Feed) Run(ctx context.Context) error {
	timer := f.clock.NewTimer(f.set.Wait)
	defer timer.Stop()
	batch := make([]Event, 0, f.set.Batch)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case first := <-f.queue:
			batch = f.fill(ctx, append(batch[:0], first), timer)
		}
		verdicts, err := f.tell(ctx, batch)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.events.WithLabelValues(failed).Add(float64(len(batch)))
			f.log.WarnContext(ctx, "the risk judge did not take events", slog.String(telemetry.Event, "risk_events_lost"),
				slog.Int("events", len(batch)), slog.Any(telemetry.Error, err))
			continue
		}
		f.learn(verdicts)
		f.events.WithLabelValues(sent).Add(float64(len(batch)))
	}
}

// fill adds what comes within Wait.
func (f *Feed) fill(ctx context.Context, batch []Event, timer clock.Timer) []Event {
	timer.Reset(f.set.Wait)
	for len(batch) < f.set.Batch {
		select {
		case e := <-f.queue:
			batch = append(batch, e)
		case <-timer.C():
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// tell asks the judge, a bounded number of times.
func (f *Feed) tell(ctx context.Context, batch []Event) (verdicts []Verdict, err error) {
	for try := range tries {
		if verdicts, err = f.judge.Judge(ctx, batch); err == nil {
			return verdicts, nil
		}
		if try+1 < tries && f.clock.Sleep(ctx, pause<<try) != nil {
			break
		}
	}
	return nil, err
}

// learn keeps verdicts; one that is none is passed over.
func (f *Feed) learn(verdicts []Verdict) {
	now := f.clock.Now()
	for _, v := range verdicts {
		ttl := min(time.Duration(min(v.TTL, maxTTL.Milliseconds()))*time.Millisecond, maxTTL)
		if (v.User == "") == (v.Device == "") || len(v.User) > maxNamed || len(v.Device) > maxNamed || len(v.Tier) > maxTier || ttl <= 0 && v.Tier != "" {
			continue
		}
		f.heard.Inc()
		s := subject{v.User, v.Device}
		if v.Tier == "" {
			f.verdicts.Invalidate(s)
			continue
		}
		f.verdicts.Set(s, verdict{v.Tier, now.Add(ttl)})
	}
}
