package risk_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellquota/cellquota/edge/risk"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// bench is a judge that a test talks to.
type bench struct {
	mu    sync.Mutex
	told  []risk.Event
	calls int
	err   error
	say   []risk.Verdict
	gate  chan struct{} // not nil: each call waits for it
}

func (b *bench) Judge(ctx context.Context, events []risk.Event) ([]risk.Verdict, error) {
	b.mu.Lock()
	gate := b.gate
	b.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if b.err == nil {
		b.told = append(b.told, events...)
	}
	return b.say, b.err
}

func (b *bench) set(f func(*bench)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

type fixture struct {
	*risk.Feed
	*bench
	clk      *clock.Manual
	registry *prometheus.Registry
}

func start(t *testing.T, queue int) *fixture {
	t.Helper()
	f := &fixture{bench: &bench{}, clk: clock.NewManual(time.Unix(1_800_000_000, 0)), registry: prometheus.NewRegistry()}
	feed, err := risk.New(risk.Settings{Queue: queue, Batch: 2, Wait: time.Second, Verdicts: 100}, f.bench, f.clk, slog.New(slog.DiscardHandler), f.registry)
	if err != nil {
		t.Fatal(err)
	}
	f.Feed = feed
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- feed.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
	return f
}

// until waits for the counters of events: dropped, failed, sent.
func (f *fixture) until(t *testing.T, dropped, failed, sent int) {
	t.Helper()
	want := fmt.Sprintf(`# HELP cellquota_edge_risk_events_total Calls that the risk judge was to be told of, by what became of that.
# TYPE cellquota_edge_risk_events_total counter
cellquota_edge_risk_events_total{outcome="dropped"} %d
cellquota_edge_risk_events_total{outcome="failed"} %d
cellquota_edge_risk_events_total{outcome="sent"} %d
`, dropped, failed, sent)
	testkit.Eventually(t, 5*time.Second, func() error {
		f.clk.Advance(time.Second)
		return testutil.GatherAndCompare(f.registry, strings.NewReader(want), "cellquota_edge_risk_events_total")
	})
}

func TestEventsReachTheJudge(t *testing.T) {
	f := start(t, 10)
	for i := range 5 {
		f.Offer(risk.Event{User: fmt.Sprint(i)})
	}
	f.until(t, 0, 0, 5)
	f.set(func(b *bench) {
		if len(b.told) != 5 || b.told[4].User != "4" || b.calls < 3 {
			t.Errorf("%d calls told %v", b.calls, b.told)
		}
		b.err = errors.New("busy")
	})
	f.Offer(risk.Event{})
	f.until(t, 0, 1, 5)
	f.set(func(b *bench) {
		if b.calls < 6 {
			t.Errorf("%d calls: a batch is tried three times", b.calls)
		}
		b.err = nil
	})
	f.Offer(risk.Event{})
	f.until(t, 0, 1, 6)
}

// A judge that does not answer holds up nobody, and memory is bounded.
func TestASlowJudge(t *testing.T) {
	f := start(t, 3)
	gate := make(chan struct{})
	f.set(func(b *bench) { b.gate = gate })
	for range 100 {
		f.Offer(risk.Event{})
	}
	if n := f.dropped(t); n < 95 {
		t.Errorf("%v of 100 were dropped; five have room", n)
	}
	close(gate)
}

func (f *fixture) dropped(t *testing.T) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == "dropped" {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// Verdicts about a user stand above those about his device, and both above the token, for their time.
func TestVerdicts(t *testing.T) {
	f := start(t, 10)
	hear := func(sent int, say ...risk.Verdict) {
		f.set(func(b *bench) { b.say = say })
		f.Offer(risk.Event{})
		f.until(t, 0, 0, sent)
	}
	hear(1, risk.Verdict{User: "u", Tier: "blocked", TTL: 3_600_000}, risk.Verdict{Device: "d", Tier: "high", TTL: 1 << 62},
		risk.Verdict{User: "x", Device: "y", Tier: "both", TTL: 1000}, risk.Verdict{Tier: "none", TTL: 1000}, risk.Verdict{User: "z", Tier: "no time"},
		risk.Verdict{User: "long", Tier: strings.Repeat("t", 65), TTL: 1000})
	for _, row := range [][4]string{
		{"u", "d", "low", "blocked"},
		{"v", "d", "low", "high"},
		{"v", "", "low", "low"},
		{"", "", "", ""},
		{"x", "", "low", "low"},
		{"v", "y", "low", "low"},
		{"z", "", "low", "low"},
		{"long", "", "low", "low"},
	} {
		if got := f.Tier(row[0], row[1], row[2]); got != row[3] {
			t.Errorf("%v: %q", row, got)
		}
	}
	hear(2, risk.Verdict{User: "u"}) // taken back
	if got := f.Tier("u", "", "low"); got != "low" {
		t.Errorf("a verdict that was taken back: %q", got)
	}
	f.clk.Advance(time.Hour)
	if got := f.Tier("v", "d", "low"); got != "low" {
		t.Errorf("after its time: %q", got)
	}
	var none *risk.Feed
	none.Offer(risk.Event{})
	if none.Tier("u", "d", "low") != "low" {
		t.Error("nobody judges, and yet")
	}
}
