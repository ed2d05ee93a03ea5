//go:build chaos

package system

import (
	"slices"
	"testing"
	"time"
)

// The same faults for as long as operators see them: what a short fault throttles, a long one stops, and it
// still comes back by itself.
func TestChaosOfStores(t *testing.T) {
	list := hurts(20 * time.Second)
	for i := range list {
		list[i].back *= 2
	}
	list = append(list,
		hurt{
			name: "R-195: Kafka is gone for 120 s", hold: 2 * time.Minute, back: 30 * time.Second, shared: true,
			do: func(w *wired) { w.kafka.Break() }, must: paused,
		},
		hurt{
			name: "R-197: PostgreSQL is gone for 60 s", hold: time.Minute, back: 30 * time.Second,
			do: func(w *wired) { w.shard.Break() }, must: paused,
		},
		hurt{
			name: "R-197: PostgreSQL is slow for 60 s, each statement 100 ms", hold: time.Minute, back: 30 * time.Second,
			do: func(w *wired) { w.shard.Delay(50 * time.Millisecond) }, must: slices.Concat(throttled, paused),
		},
	)
	startWired(t, 2, "--restart", "--set", "cell.payment.attempt_grace=2s").suffer("stores-long", list)
}
