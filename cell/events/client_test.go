package events_test

import (
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/events"
)

// The pause grows to a bound, is never nothing, and two clients seldom have the same.
func TestRetryBackoff(t *testing.T) {
	for tries, most := range map[int]time.Duration{0: 150, 1: 150, 2: 300, 3: 600, 4: 750, 70: 750} {
		seen := map[time.Duration]bool{}
		for range 50 {
			d := events.RetryBackoff(tries)
			if d < 50*time.Millisecond || d > most*time.Millisecond {
				t.Errorf("try %d waits %s, at most %s", tries, d, most*time.Millisecond)
			}
			seen[d] = true
		}
		if len(seen) < 25 {
			t.Errorf("try %d: %d different pauses of 50", tries, len(seen))
		}
	}
}
