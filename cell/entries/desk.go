// Package entries takes lotteries' entries for the shard: those that arrive together share one
// transaction, so that a crowd at entry_open_at costs the shard hundreds of commits and not hundreds of
// thousands.
//
// # Promise
//
// Whoever is told ENTERED is in the shard. What waits is bounded; more is refused with ErrQueueFull and
// nothing happened. An answer that did not come may have happened: the same customer again is told.
//
// Neighbours: cell/shard below (its transaction, its clock); cell/api above.
package entries

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/cell/shard"
)

// Store is the shard as a Desk needs it; *shard.Store is one.
type Store interface {
	AddEntries(ctx context.Context, asks []shard.EntryAsk) ([]shard.EntryResult, error)
}

// Config bounds a Desk. Zero values take the defaults in brackets.
type Config struct {
	Batch   int           // entries in one transaction [200], at most shard.MaxEntries
	Queue   int           // entries that wait for one [5,000]
	Timeout time.Duration // of one transaction, and the longest wait [2s]
}

// ErrQueueFull: nothing was done; try again later.
var ErrQueueFull = fmt.Errorf("%w: too many entries wait", shard.ErrUnavailable)

// Desk is safe for concurrent use; it answers while Run runs.
type Desk struct {
	store Store
	cfg   Config
	queue chan *call
	ended chan struct{}
}

type call struct {
	ask  shard.EntryAsk
	done chan answer // of room one: a customer that left is not waited for
}

type answer struct {
	result shard.EntryResult
	err    error
}

// New makes a Desk.
func New(store Store, cfg Config) *Desk {
	if cfg.Batch <= 0 || cfg.Batch > shard.MaxEntries {
		cfg.Batch = 200
	}
	if cfg.Queue <= 0 {
		cfg.Queue = 5_000
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 2 * time.Second
	}
	return &Desk{store: store, cfg: cfg, queue: make(chan *call, cfg.Queue), ended: make(chan struct{})}
}

// Enter takes one entry. The errors are ErrQueueFull and those of the shard; when ctx ends first the
// entry may have been taken.
func (d *Desk) Enter(ctx context.Context, ask shard.EntryAsk) (shard.EntryResult, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	c := &call{ask: ask, done: make(chan answer, 1)}
	select {
	case d.queue <- c:
	default:
		return shard.EntryResult{}, ErrQueueFull
	}
	select {
	case a := <-c.done:
		return a.result, a.err
	case <-ctx.Done():
		return shard.EntryResult{}, fmt.Errorf("%w: no answer in time: %w", shard.ErrUnavailable, ctx.Err())
	case <-d.ended:
		return shard.EntryResult{}, fmt.Errorf("%w: this process stops", shard.ErrUnavailable)
	}
}

// Run takes entries until ctx ends.
func (d *Desk) Run(ctx context.Context) error {
	defer close(d.ended)
	for {
		select {
		case <-ctx.Done():
			return nil
		case first := <-d.queue:
			d.take(ctx, d.gather(first))
		}
	}
}

// gather takes what else is there, up to a batch.
func (d *Desk) gather(first *call) []*call {
	batch := []*call{first}
	for len(batch) < d.cfg.Batch {
		select {
		case c := <-d.queue:
			batch = append(batch, c)
		default:
			return batch
		}
	}
	return batch
}

// take is one transaction, carried through whoever stops. Data that the database refuses is narrowed
// down by halving, so that it answers for itself alone.
func (d *Desk) take(ctx context.Context, batch []*call) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.Timeout)
	defer cancel()
	asks := make([]shard.EntryAsk, len(batch))
	for i, c := range batch {
		asks[i] = c.ask
	}
	results, err := d.store.AddEntries(within, asks)
	if errors.Is(err, shard.ErrBadData) && len(batch) > 1 {
		d.take(ctx, batch[:len(batch)/2])
		d.take(ctx, batch[len(batch)/2:])
		return
	}
	for i, c := range batch {
		if err != nil {
			c.done <- answer{err: err}
			continue
		}
		c.done <- answer{result: results[i]}
	}
}
