package testkit

import (
	"errors"
	"testing"
	"time"
)

func TestPollReturnsTheLastError(t *testing.T) {
	t.Parallel()
	last, calls := errors.New("still not"), 0
	err := poll(t.Context(), 50*time.Millisecond, func() error { calls++; return last })
	if !errors.Is(err, last) || calls < 2 {
		t.Fatalf("poll = %v after %d calls", err, calls)
	}
}

func TestPollEndsWithTheFirstSuccess(t *testing.T) {
	t.Parallel()
	calls := 0
	err := poll(t.Context(), time.Minute, func() error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Fatalf("poll = %v after %d calls, want 3", err, calls)
	}
}

func TestHoldLastsAsLongAsItSays(t *testing.T) {
	t.Parallel()
	start := time.Now()
	Hold(t, 30*time.Millisecond, "measure it")
	if took := time.Since(start); took < 30*time.Millisecond {
		t.Fatalf("a hold of 30 ms took %s", took)
	}
}

func TestDeadlineIsWithinAMinute(t *testing.T) {
	t.Parallel()
	end, set := Deadline(t).Deadline()
	if left := time.Until(end); !set || left > defaultDeadline || left <= 0 {
		t.Fatalf("deadline set %v, in %s", set, left)
	}
}
