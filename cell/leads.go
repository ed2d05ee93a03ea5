package cell

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// leadEvery is the time between two tries for the lock of the gates' writer; whoever has it says
// something to the shard as often, and loses it when it falls silent.
const leadEvery = time.Second

// gateLock is the shard's lock of which one process of the cell has one; *shard.Store is one.
type gateLock interface {
	TryGateLock(ctx context.Context) (held bool, err error)
}

// leads elects, among the processes that admit, the one that writes the gates into the mirrors: all of
// them judge, and two that disagreed would pull a gate to and fro. Whoever has lost the shard does not
// lead; gates then stand as they were, and every process refuses for itself.
type leads struct {
	lock  gateLock
	clock clock.Clock
	log   *slog.Logger
	held  atomic.Bool
}

// run tries until ctx ends.
func (l *leads) run(ctx context.Context) error {
	tick := l.clock.NewTicker(leadEvery)
	defer tick.Stop()
	for {
		l.elect(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

func (l *leads) elect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pulseTimeout)
	defer cancel()
	held, err := l.lock.TryGateLock(ctx)
	held = held && err == nil
	if held != l.held.Swap(held) {
		l.log.Info("the writer of the gates changed", telemetry.Event, "gate_writer", "writes", held)
	}
}
