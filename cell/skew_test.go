package cell

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
)

func TestSkewCountsNoTravel(t *testing.T) {
	clk := clock.NewManual(time.Unix(1000, 0))
	for theirs, want := range map[time.Duration]time.Duration{
		-time.Second: -time.Second, 0: 0, 3 * time.Second: 0, 5 * time.Second: 0, 6 * time.Second: time.Second,
	} {
		at := clk.Now().Add(theirs)
		got, err := skewOf(t.Context(), clk, func(context.Context) (time.Time, error) {
			clk.Advance(5 * time.Second) // the answer takes long
			return at, nil
		})
		if err != nil || got != want {
			t.Errorf("a clock that said %s after the question: skew %s (%v), want %s", theirs, got, err, want)
		}
	}
	if _, err := skewOf(t.Context(), clk, func(context.Context) (time.Time, error) { return time.Time{}, errors.New("down") }); err == nil {
		t.Error("no answer is no skew")
	}
}

func TestSkewFault(t *testing.T) {
	for _, row := range []struct {
		redis, shard time.Duration
		fault        bool
	}{
		{0, 0, false},
		{400 * time.Millisecond, 0, false},
		{600 * time.Millisecond, 0, true},
		{0, -600 * time.Millisecond, true},
		{300 * time.Millisecond, -300 * time.Millisecond, true},
		{-450 * time.Millisecond, -450 * time.Millisecond, false},
	} {
		if got := skewFault(500*time.Millisecond, row.redis, row.shard); (got != "") != row.fault {
			t.Errorf("redis %s, shard %s: %q", row.redis, row.shard, got)
		}
	}
}
