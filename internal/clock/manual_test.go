package clock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
)

var start = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

// received returns what waits in c, without waiting for more.
func received(c <-chan time.Time) []time.Duration {
	var out []time.Duration
	for {
		select {
		case at := <-c:
			out = append(out, at.Sub(start))
		default:
			return out
		}
	}
}

func TestManualTimerFiresAtItsInstantAndOnce(t *testing.T) {
	m := clock.NewManual(start)
	timer := m.NewTimer(3 * time.Second)
	m.Advance(3*time.Second - 1)
	if got := received(timer.C()); got != nil {
		t.Fatalf("fired early at %v", got)
	}
	m.Advance(10 * time.Second)
	if got := received(timer.C()); !slices.Equal(got, []time.Duration{3 * time.Second}) {
		t.Fatalf("got %v, want its own instant 3s", got)
	}
	if m.Waiters() != 0 {
		t.Fatalf("%d waiters left", m.Waiters())
	}
}

func TestManualTimerOfNoDurationFiresAtOnce(t *testing.T) {
	m := clock.NewManual(start)
	if got := received(m.NewTimer(-1).C()); !slices.Equal(got, []time.Duration{0}) {
		t.Fatalf("got %v", got)
	}
}

func TestManualFiresInOrderOfInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := clock.NewManual(start)
		late, early := m.NewTimer(2*time.Second), m.NewTimer(time.Second)
		first := make(chan string, 1)
		go func() {
			select {
			case <-late.C():
				first <- "late"
			case <-early.C():
				first <- "early"
			}
		}()
		synctest.Wait() // until it waits for both
		m.Advance(time.Minute)
		if got := <-first; got != "early" {
			t.Fatalf("%s fired first", got)
		}
		if received(late.C()) == nil {
			t.Fatal("the later one fires in the same Advance")
		}
	})
}

func TestManualStopAndResetLeaveNoOldInstant(t *testing.T) {
	m := clock.NewManual(start)
	timer := m.NewTimer(time.Second)
	m.Advance(time.Second)
	if !timer.Reset(5 * time.Second) {
		t.Error("fired but unread: Reset must say it was still going to fire")
	}
	if got := received(timer.C()); got != nil {
		t.Fatalf("an instant of the earlier setting: %v", got)
	}
	m.Advance(5 * time.Second)
	if !timer.Stop() {
		t.Error("fired but unread: Stop must say it was still going to fire")
	}
	if got := received(timer.C()); got != nil {
		t.Fatalf("an instant after Stop: %v", got)
	}
	if timer.Stop() {
		t.Error("a stopped timer is not stopped again")
	}
}

func TestManualTickerTicksAndDropsForSlowReaders(t *testing.T) {
	m := clock.NewManual(start)
	ticker := m.NewTicker(time.Second)
	m.Advance(3 * time.Second)
	if got := received(ticker.C()); !slices.Equal(got, []time.Duration{time.Second}) {
		t.Fatalf("got %v, want the first tick only", got)
	}
	m.Advance(time.Second)
	if got := received(ticker.C()); !slices.Equal(got, []time.Duration{4 * time.Second}) {
		t.Fatalf("got %v", got)
	}
	ticker.Stop()
	m.Advance(time.Minute)
	if got := received(ticker.C()); got != nil || m.Waiters() != 0 {
		t.Fatalf("ticked %v after Stop, %d waiters", got, m.Waiters())
	}
}

func TestManualStepMovesTheWallClockOnly(t *testing.T) {
	for name, step := range map[string]func(*clock.Manual){
		"step back":    func(m *clock.Manual) { m.Step(-time.Hour) },
		"set back":     func(m *clock.Manual) { m.Set(start.Add(-time.Hour)) },
		"step forward": func(m *clock.Manual) { m.Step(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			m := clock.NewManual(start)
			timer := m.NewTimer(time.Second)
			step(m)
			if m.Now().Equal(start) {
				t.Fatal("the wall clock did not move")
			}
			if received(timer.C()) != nil {
				t.Fatal("a step must not fire a timer")
			}
			m.Advance(time.Second)
			if received(timer.C()) == nil {
				t.Fatal("a step must not postpone a timer")
			}
		})
	}
}

func TestManualSetForwardFires(t *testing.T) {
	m := clock.NewManual(start)
	timer := m.NewTimer(time.Second)
	m.Set(start.Add(time.Minute))
	if !m.Now().Equal(start.Add(time.Minute)) || received(timer.C()) == nil {
		t.Fatalf("now %v", m.Now())
	}
}

func TestManualAdvanceRefusesTheWayBack(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	clock.NewManual(start).Advance(-1)
}

func TestManualBlockUntilSeesSleepers(t *testing.T) {
	m := clock.NewManual(start)
	var woken sync.WaitGroup
	for range 3 {
		woken.Add(1)
		go func() {
			defer woken.Done()
			if err := m.Sleep(t.Context(), time.Second); err != nil {
				t.Errorf("sleep: %v", err)
			}
		}()
	}
	if err := m.BlockUntil(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	m.Advance(time.Second)
	woken.Wait()
}

func TestManualBlockUntilEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := clock.NewManual(start).BlockUntil(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestManualUnderConcurrency(t *testing.T) {
	m := clock.NewManual(start)
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 200 {
				timer := m.NewTimer(time.Millisecond)
				m.Advance(time.Millisecond)
				timer.Reset(time.Second)
				timer.Stop()
				_ = m.Now()
			}
		}()
	}
	all.Wait()
	if m.Waiters() != 0 {
		t.Fatalf("%d waiters left", m.Waiters())
	}
	if want := start.Add(8 * 200 * time.Millisecond); !m.Now().Equal(want) {
		t.Fatalf("now %v, want %v", m.Now(), want)
	}
}
