package testkit

import (
	"context"
	"testing"
	"time"
)

const (
	pollInterval    = 5 * time.Millisecond
	defaultDeadline = 60 * time.Second
	deadlineMargin  = 2 * time.Second
)

// Eventually calls check until it returns nil, every few milliseconds, and fails
// the test with the last error when that takes longer than timeout. It is for
// states that can only be looked at; where there is a signal, wait for the signal.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	if err := poll(t.Context(), timeout, check); err != nil {
		t.Fatalf("not within %s: %v", timeout, err)
	}
}

// poll is Eventually for code without a test: nil, or the last error of check.
func poll(ctx context.Context, timeout time.Duration, check func() error) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// Hold keeps a fault in place for d, real time, and logs why. It is the only
// sanctioned way for a test to let time pass: for a pause, a partition or an
// expiry by a server's own clock; never to wait for something to have happened,
// which is Eventually's job. It returns early when the test is over.
func Hold(t testing.TB, d time.Duration, reason string) {
	t.Helper()
	t.Logf("hold %s: %s", d, reason)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// Deadline is the test's context with an end: a minute from now, or two seconds
// before the test binary's own time-out when that is sooner, so that a call which
// hangs fails with its own error and not with a dump of all goroutines.
func Deadline(t testing.TB) context.Context {
	t.Helper()
	end := time.Now().Add(defaultDeadline)
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if last, set := d.Deadline(); set && last.Add(-deadlineMargin).Before(end) {
			end = last.Add(-deadlineMargin)
		}
	}
	ctx, cancel := context.WithDeadline(t.Context(), end)
	t.Cleanup(cancel)
	return ctx
}
