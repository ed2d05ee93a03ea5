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
	GiveUpGateLock()
}

// leads elects, among the processes that admit, the one that writes the gates into the mirrors: all of
// them judge, and two that disagreed would pull a gate to and fro. Whoever has lost the shard or Redis
// does not lead. Whoever cannot write one of the mirrors offers the lead to the others for some tries,
// and takes it again where nobody wanted it: the other mirrors have gates too. While nobody leads, gates
// stand as they were.
type leads struct {
	lock    gateLock
	redis   func() bool // it answered this process when it was last asked
	mirrors func() bool // this process admits into every mirror that the rules ask for
	clock   clock.Clock
	log     *slog.Logger
	held    atomic.Bool
	unfit   int // tries since a mirror was found missing
}

// Of so many tries with a mirror missing, the first ones leave the lead to another process.
const (
	unfitRound  = 30
	unfitOffers = 5
)

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
	held := false
	if l.may() {
		h, err := l.lock.TryGateLock(ctx)
		held = h && err == nil
	} else {
		l.lock.GiveUpGateLock()
	}
	if held != l.held.Swap(held) {
		l.log.Info("the writer of the gates changed", telemetry.Event, "gate_writer", "writes", held)
	}
}

// may tells whether this process should try to lead now.
func (l *leads) may() bool {
	if !l.redis() {
		return false
	}
	if l.mirrors() {
		l.unfit = 0
		return true
	}
	l.unfit++
	return (l.unfit-1)%unfitRound >= unfitOffers
}
