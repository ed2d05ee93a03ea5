package payment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// gate is a store that waits at each transaction until the test lets it through, and remembers.
type gate struct {
	mu      sync.Mutex
	batches [][]shard.Step
	enter   chan struct{}
	pass    chan struct{}
	bad     ids.OrderID // a batch that has this order fails
	fault   error       // with this
}

func newGate() *gate { return &gate{enter: make(chan struct{}, 100), pass: make(chan struct{}, 100)} }

func (g *gate) StepOrders(ctx context.Context, _ time.Duration, steps []shard.Step) ([]shard.StepResult, error) {
	g.enter <- struct{}{}
	select {
	case <-g.pass:
	case <-ctx.Done():
		return nil, shard.ErrUnavailable
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.batches = append(g.batches, steps)
	out := make([]shard.StepResult, len(steps))
	for i, s := range steps {
		if s.Order == g.bad {
			return nil, g.fault
		}
		out[i].Order = shard.Order{ID: s.Order, State: reservation.OrderPaid, Amount: "1.00", Currency: "EUR"}
		out[i].Payment = shard.PaymentSucceeded
		if s.Payment == "late" {
			out[i].Refund = shard.RefundAfterClose
		}
	}
	return out, nil
}

func run(t *testing.T, g *gate, cfg Config) (*Service, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	s, err := New(g, cfg, slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s, reg
}

func paid(s *Service, order, payment string) error {
	out, err := s.Callback(context.Background(), Callback{Order: ids.OrderID(order), Payment: ids.PaymentID(payment), Status: Succeeded})
	if err == nil && out.Order != reservation.OrderPaid {
		err = fmt.Errorf("answered %+v", out)
	}
	return err
}

func queued(t *testing.T, s *Service, n int) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() error {
		if got := len(s.queue); got < n {
			return fmt.Errorf("%d calls wait, not %d", got, n)
		}
		return nil
	})
}

// TestCallsShareTransactions: calls that arrive while one is under way go together, one per order.
func TestCallsShareTransactions(t *testing.T) {
	g := newGate()
	s, reg := run(t, g, Config{})
	var wg sync.WaitGroup
	call := func(order, payment string) {
		wg.Go(func() {
			if err := paid(s, order, payment); err != nil {
				t.Error(err)
			}
		})
	}
	call("first", "p")
	<-g.enter
	for i := range 50 {
		call(fmt.Sprint("o", i), "p")
	}
	call("o7", "late")
	queued(t, s, 51) // the worker is held at the gate, so they stay
	for range 10 {
		g.pass <- struct{}{}
	}
	wg.Wait()
	if len(g.batches) != 3 || len(g.batches[0]) != 1 || len(g.batches[1]) != 50 || len(g.batches[2]) != 1 {
		t.Errorf("batches of %d", len(g.batches))
	}
	if n, err := testutil.GatherAndCount(reg, "cellquota_payment_steps_total"); err != nil || n != 1 {
		t.Errorf("payment_steps_total: %d, %v", n, err)
	}
}

// TestOnlyTheCulpritHears: one call that the database refuses, or whose refund_id is another order's,
// does not fail the others; a fault that no call brought is not asked for once more for each.
func TestOnlyTheCulpritHears(t *testing.T) {
	for name, row := range map[string]struct {
		fault error
		alone bool
	}{
		"bad data":         {shard.ErrBadData, true},
		"conflict":         {fmt.Errorf("%w: 1 of 2 refunds written", shard.ErrConflict), true},
		"of no known kind": {errors.New("SQLSTATE 21000"), true},
		"unavailable":      {shard.ErrUnavailable, false},
		"state":            {shard.ErrState, false},
		"unknown":          {shard.ErrUnknownCommit, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			g.bad, g.fault = "o3", row.fault
			s, _ := run(t, g, Config{})
			var wg sync.WaitGroup
			wg.Go(func() { _ = paid(s, "first", "p") })
			<-g.enter
			for i := range 6 {
				wg.Go(func() {
					err := paid(s, fmt.Sprint("o", i), "p")
					if hears := i == 3 || !row.alone; hears != errors.Is(err, row.fault) || !hears && err != nil {
						t.Errorf("o%d: %v", i, err)
					}
				})
			}
			queued(t, s, 6) // the worker is held at the gate, so they go together
			for range 8 {
				g.pass <- struct{}{}
			}
			wg.Wait()
			if tried := len(g.batches) - 2; (tried != 0) != row.alone {
				t.Errorf("%d calls were tried alone", tried)
			}
		})
	}
}

// TestBoundsAndEnds: a full queue says so at once; a caller that leaves is told that it may have
// happened; those who wait at the end are told that it did not.
func TestBoundsAndEnds(t *testing.T) {
	g := newGate()
	s, err := New(g, Config{QueueMax: 1}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Cancel(ctx, "o1", "u"); !errors.Is(err, shard.ErrUnknownCommit) {
		t.Errorf("left: %v", err)
	}
	if _, err := s.Start(t.Context(), "o2", "u", "p"); !errors.Is(err, ErrQueueFull) || !shard.SafeToRetry(err) {
		t.Errorf("full: %v", err)
	}
	<-s.queue
	waiting := make(chan error, 1)
	go func() { _, err := s.Cancel(t.Context(), "o3", "u"); waiting <- err }()
	queued(t, s, 1)
	if err := s.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.refuseAll(nil)
	if err := <-waiting; !errors.Is(err, shard.ErrUnavailable) {
		t.Errorf("at the end: %v", err)
	}
	if _, err := s.Callback(t.Context(), Callback{Status: "PERHAPS"}); !errors.Is(err, shard.ErrInvalid) {
		t.Error(err)
	}
}
