package clock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Manual is a clock for tests: it stands still until Advance, Set or Step.
//
// Waits are measured on an inner stopwatch that only moves forwards, as the
// machine's monotonic clock does; stepping the wall clock therefore neither
// fires a timer nor postpones one.
type Manual struct {
	mu      sync.Mutex
	origin  time.Time     // the wall clock when elapsed was zero; moved by Step
	elapsed time.Duration // the stopwatch; never decreases
	waits   []*wait       // armed timers and tickers, in order of arming
	changed chan struct{} // closed and replaced whenever waits grows
}

// wait is one armed timer (every == 0) or ticker. Guarded by Manual.mu.
type wait struct {
	m     *Manual
	at    time.Duration
	every time.Duration
	ch    chan time.Time // capacity one: a slow reader loses ticks
}

// NewManual returns a clock that stands at start. Its readings carry no
// monotonic part, so they compare and print as plain instants.
func NewManual(start time.Time) *Manual {
	return &Manual{origin: start.Round(0), changed: make(chan struct{})}
}

// Now returns the instant the clock stands at.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now()
}

func (m *Manual) now() time.Time { return m.origin.Add(m.elapsed) }

// Advance moves the clock forward by d and fires, in order of their instants,
// every timer and tick that falls due on the way; each receives its own due
// instant. A negative d panics: time waits are never taken back.
func (m *Manual) Advance(d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("clock: Advance(%v): must not be negative; use Step", d))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	target := m.elapsed + d
	for {
		next := m.nextDue(target)
		if next == nil {
			break
		}
		m.elapsed = next.at
		m.fire(next)
	}
	m.elapsed = target
}

// Set moves the clock to t: forwards as Advance does, backwards as Step does.
func (m *Manual) Set(t time.Time) {
	d := t.Sub(m.Now())
	if d >= 0 {
		m.Advance(d)
		return
	}
	m.Step(d)
}

// Step shifts the wall clock by d, in either direction, without letting any
// time pass: no timer fires and none is postponed. It is what an operator or a
// bad NTP server does to a machine.
func (m *Manual) Step(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.origin = m.origin.Add(d)
}

// Waiters returns how many timers, tickers and sleeps are armed.
func (m *Manual) Waiters() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waits)
}

// BlockUntil returns nil as soon as at least n timers, tickers and sleeps are
// armed, or ctx.Err(). A test calls it before Advance, to know that the code
// under test has reached its wait.
func (m *Manual) BlockUntil(ctx context.Context, n int) error {
	for {
		m.mu.Lock()
		armed, changed := len(m.waits), m.changed
		m.mu.Unlock()
		if armed >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("clock: %d of %d waiters: %w", armed, n, ctx.Err())
		case <-changed:
		}
	}
}

// NewTimer implements Clock.
func (m *Manual) NewTimer(d time.Duration) Timer {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &wait{m: m, ch: make(chan time.Time, 1)}
	m.arm(w, d)
	return manualTimer{w}
}

// NewTicker implements Clock.
func (m *Manual) NewTicker(d time.Duration) Ticker {
	if d <= 0 {
		panic(fmt.Sprintf("clock: NewTicker(%v): must be positive", d))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &wait{m: m, every: d, ch: make(chan time.Time, 1)}
	m.arm(w, d)
	return manualTicker{w}
}

// Sleep implements Clock.
func (m *Manual) Sleep(ctx context.Context, d time.Duration) error { return sleep(ctx, m, d) }

// nextDue returns the earliest wait that is due by target; among equals, the
// one armed first.
func (m *Manual) nextDue(target time.Duration) *wait {
	var next *wait
	for _, w := range m.waits {
		if w.at <= target && (next == nil || w.at < next.at) {
			next = w
		}
	}
	return next
}

// arm starts w; one that is due already fires without being kept.
func (m *Manual) arm(w *wait, d time.Duration) {
	w.at = m.elapsed + d
	if d <= 0 {
		w.at = m.elapsed
		w.send()
		return
	}
	m.waits = append(m.waits, w)
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Manual) fire(w *wait) {
	w.send()
	if w.every > 0 {
		w.at += w.every
		return
	}
	m.disarm(w)
}

// disarm forgets w and reports whether it was armed.
func (m *Manual) disarm(w *wait) bool {
	i := slices.Index(m.waits, w)
	if i < 0 {
		return false
	}
	m.waits = slices.Delete(m.waits, i, i+1)
	return true
}

func (w *wait) send() {
	select {
	case w.ch <- w.m.origin.Add(w.at):
	default:
	}
}

// stop disarms w and takes back an instant nobody has received yet.
func (w *wait) stop() bool {
	armed := w.m.disarm(w)
	select {
	case <-w.ch:
		armed = true // fired, but nobody can know: as if it had not
	default:
	}
	return armed
}

type manualTimer struct{ w *wait }

func (t manualTimer) C() <-chan time.Time { return t.w.ch }

func (t manualTimer) Stop() bool {
	t.w.m.mu.Lock()
	defer t.w.m.mu.Unlock()
	return t.w.stop()
}

func (t manualTimer) Reset(d time.Duration) bool {
	t.w.m.mu.Lock()
	defer t.w.m.mu.Unlock()
	armed := t.w.stop()
	t.w.m.arm(t.w, d)
	return armed
}

type manualTicker struct{ w *wait }

func (t manualTicker) C() <-chan time.Time { return t.w.ch }

func (t manualTicker) Stop() {
	t.w.m.mu.Lock()
	defer t.w.m.mu.Unlock()
	t.w.stop()
}
