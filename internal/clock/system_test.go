package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
)

func TestSystemFollowsTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		begin := c.Now()
		if err := c.Sleep(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		<-c.NewTimer(time.Minute).C()
		ticker := c.NewTicker(time.Minute)
		defer ticker.Stop()
		<-ticker.C()
		if got := c.Now().Sub(begin); got != 3*time.Minute {
			t.Fatalf("waited %v, want 3m", got)
		}
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	m := clock.NewManual(start)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Sleep(ctx, time.Hour) }()
	if err := m.BlockUntil(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if m.Waiters() != 0 {
		t.Fatal("an interrupted sleep leaves its timer")
	}
	if err := m.Sleep(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("an ended context wins over no duration: %v", err)
	}
}

func TestOffsetShiftsNowAndNothingElse(t *testing.T) {
	m := clock.NewManual(start)
	c := clock.Offset(m, 2*time.Second)
	if got := c.Now(); !got.Equal(start.Add(2 * time.Second)) {
		t.Fatalf("now %v", got)
	}
	timer := c.NewTimer(time.Second)
	m.Advance(time.Second)
	if received(timer.C()) == nil {
		t.Fatal("a timer lasts as long as the base's")
	}
	if got := c.Now(); !got.Equal(start.Add(3 * time.Second)) {
		t.Fatalf("now %v after a second", got)
	}
}
