package load

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/edge/load/history"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/signed"
)

// Options of a run.
type Options struct {
	Client   *client.Client
	Clock    clock.Clock
	Campaign string
	// Identity of the customers (development tokens).
	Secret           []byte
	Issuer, Audience string
	HomeRegions      []string // given in turn; empty: none
	// Payment is the channel's key set and the key id to sign with.
	Payment    *signed.KeySet
	PaymentKID string
	// Receipts are the keys that open receipts, so that the history knows under which fence version a
	// cell promised; nil: it only knows the cell.
	Receipts *signed.KeySet
	// History records every operation; nil records none.
	History *history.Writer
}

// Result of a run.
type Result struct {
	Plan      Plan              `json:"plan"`
	Snapshot  Snapshot          `json:"totals"`
	Counts    Counts            `json:"answers"`
	Latencies map[Stage]Latency `json:"latencies"`
	// Elapsed is from the first customer to the last one's end.
	Elapsed time.Duration `json:"elapsed_ns"`
	// OpenToLastOrder is from the first customer to the last first sight of an order.
	OpenToLastOrder time.Duration `json:"open_to_last_order_ns"`
	// OrdersPerSecond is the best second.
	OrdersPerSecond int64 `json:"orders_per_second_peak"`
	// Late is how many customers started more than 1 s after their planned time.
	Late int64 `json:"late_starts"`
}

// Run is a load under way.
type Run struct {
	o     Options
	plan  Plan
	meter *meter
	start time.Time
	late  atomic.Int64
}

// New checks the plan. The error names the field.
func New(o Options, p Plan) (*Run, error) {
	p = p.withDefaults()
	if err := p.Check(); err != nil {
		return nil, err
	}
	return &Run{o: o, plan: p, meter: newMeter()}, nil
}

// Progress is where the run stands; safe to call at any time.
func (r *Run) Progress() Snapshot { return r.meter.snapshot() }

// Do runs the plan until every customer has ended. When ctx ends no further customer starts and those
// under way stop at their next step; what they did is recorded.
func (r *Run) Do(ctx context.Context) (Result, error) {
	r.start = r.o.Clock.Now()
	slots := make(chan struct{}, r.plan.MaxActive)
	var wg sync.WaitGroup
	for i := range r.plan.Users {
		planned := r.start
		if r.plan.Rate > 0 {
			planned = r.start.Add(time.Duration(float64(i) / r.plan.Rate * float64(time.Second)))
		}
		if !r.wait(ctx, planned, slots) {
			break
		}
		r.meter.tally(func(s *Snapshot) { s.Started++; s.Active++ })
		wg.Go(func() {
			defer func() { <-slots }()
			r.visit(ctx, i, planned)
			r.meter.tally(func(s *Snapshot) { s.Finished++; s.Active-- })
		})
	}
	wg.Wait()
	return r.result(), ctx.Err()
}

// wait sleeps until the planned moment and for a free slot; false when ctx ended first.
func (r *Run) wait(ctx context.Context, planned time.Time, slots chan struct{}) bool {
	if d := planned.Sub(r.o.Clock.Now()); d > time.Millisecond {
		if r.o.Clock.Sleep(ctx, d) != nil {
			return false
		}
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if r.plan.Rate > 0 && r.o.Clock.Now().Sub(planned) > time.Second {
		r.late.Add(1)
	}
	return true
}

func (r *Run) result() Result {
	end := r.o.Clock.Now()
	m := r.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	out := Result{Plan: r.plan, Snapshot: m.now, Counts: maps.Clone(m.counts), Latencies: m.latencies(), Elapsed: end.Sub(r.start), Late: r.late.Load()}
	if !m.last.IsZero() {
		out.OpenToLastOrder = m.last.Sub(r.start)
	}
	for _, n := range m.ordered {
		out.OrdersPerSecond = max(out.OrdersPerSecond, n)
	}
	return out
}

func (r *Run) token(i int, user string) (string, error) {
	claims := client.TokenClaims{Issuer: r.o.Issuer, Audience: r.o.Audience, User: user, Expires: r.o.Clock.Now().Add(time.Hour)}
	if n := len(r.o.HomeRegions); n > 0 {
		claims.HomeRegion, claims.HomeRegionSince = r.o.HomeRegions[i%n], r.start.Add(-24*time.Hour)
	}
	token, err := client.SignToken(r.o.Secret, claims)
	if err != nil {
		return "", fmt.Errorf("token of %s: %w", user, err)
	}
	return token, nil
}
