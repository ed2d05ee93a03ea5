package closer

import (
	"context"
	"sync"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

const (
	askedOrders = 16 // in one chunk: its answers are applied when the last of them is there
	waitChunks  = 16 // chunks that wait; what finds no place is named again by the shard
)

// asker takes questions off the closing loop, so that a channel that is silent keeps nobody's order from
// being closed. It is bounded: one chunk at a time is asked about, and a full queue takes no more.
type asker struct {
	queue chan []shard.OpenAttempt
	mu    sync.Mutex
	busy  map[ids.OrderID]bool // queued or being asked about
}

func newAsker() *asker {
	return &asker{queue: make(chan []shard.OpenAttempt, waitChunks), busy: map[ids.OrderID]bool{}}
}

// offer queues the attempts, which stand by order, except those of orders that are queued already.
func (a *asker) offer(open []shard.OpenAttempt) {
	for len(open) > 0 {
		var chunk []shard.OpenAttempt
		chunk, open = a.take(open)
		if len(chunk) == 0 {
			continue
		}
		select {
		case a.queue <- chunk:
		default:
			a.done(chunk)
			return
		}
	}
}

// take cuts one chunk, which has all attempts of each of its orders.
func (a *asker) take(open []shard.OpenAttempt) (chunk, rest []shard.OpenAttempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := 0; len(open) > 0 && n < askedOrders; {
		order, end := open[0].Order, 1
		for end < len(open) && open[end].Order == order {
			end++
		}
		if !a.busy[order] {
			a.busy[order] = true
			chunk = append(chunk, open[:end]...)
			n++
		}
		open = open[end:]
	}
	return chunk, open
}

func (a *asker) done(chunk []shard.OpenAttempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range chunk {
		delete(a.busy, chunk[i].Order)
	}
}

// answers asks chunk by chunk until ctx ends. What fails is named again by the shard, after a pause.
func (l *Loop) answers(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case chunk := <-l.asker.queue:
			err := l.ask(ctx, chunk)
			l.asker.done(chunk)
			if err != nil && ctx.Err() == nil {
				l.log.Log(ctx, level(err), "the payment channel's answers were not applied", telemetry.Event, "closer_round_failed", telemetry.Error, err,
					telemetry.Retryable, shard.SafeToRetry(err))
			}
		}
	}
}
