package boot

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

func run(t *testing.T, steps ...step) error {
	t.Helper()
	return runSteps(testkit.Deadline(t), slog.New(slog.DiscardHandler), clock.System(), steps)
}

func TestStepsWaitForWhatTheyComeAfterAndForNothingElse(t *testing.T) {
	var mu sync.Mutex
	var order []string
	note := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, name)
	}
	meet := make(chan struct{})
	// left and right each wait for the other: they must run at the same time.
	err := run(t,
		step{"first", nil, func(context.Context) error { note("first"); return nil }},
		step{"left", []string{"first"}, func(ctx context.Context) error { return give(ctx, meet) }},
		step{"right", []string{"first"}, func(ctx context.Context) error { return take(ctx, meet) }},
		step{"last", []string{"left", "right"}, func(context.Context) error { note("last"); return nil }},
	)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "first last" {
		t.Errorf("order %q", got)
	}
}

func give(ctx context.Context, meet chan struct{}) error {
	select {
	case meet <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func take(ctx context.Context, meet chan struct{}) error {
	select {
	case <-meet:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestTheFirstFailureEndsTheOthers(t *testing.T) {
	broken := errors.New("broken")
	late := false
	err := run(t,
		step{"bad", nil, func(context.Context) error { return broken }},
		step{"slow", nil, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		step{"after", []string{"bad"}, func(context.Context) error { late = true; return nil }},
	)
	if !errors.Is(err, broken) || err.Error() != "bad: broken" {
		t.Errorf("got %v", err)
	}
	if late {
		t.Error("a step ran although the one before it failed")
	}
}

func TestAStepAfterAnUnknownOneIsADefect(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	err := run(t, step{"b", []string{"a"}, nothing}, step{"a", nil, nothing})
	if err == nil || !strings.Contains(err.Error(), "not listed before it") {
		t.Errorf("got %v", err)
	}
}
