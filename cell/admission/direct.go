package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// DirectStore is the shard as Direct needs it; *shard.Store is one.
type DirectStore interface {
	ApplyDirect(ctx context.Context, asks []shard.DirectAsk) ([]shard.DirectResult, error)
	PrecheckDirect(ctx context.Context, asks []shard.DirectAsk) ([]shard.DirectResult, error)
	LookupRequest(ctx context.Context, campaign ids.CampaignID, sku ids.SKUID, user ids.UserID, request ids.RequestID) (shard.RequestRow, error)
}

// DirectConfig bounds a Direct. Zero values take the defaults in brackets.
type DirectConfig struct {
	Batch   int           // asks in one transaction [200]
	Queue   int           // asks that wait for one; more are QUEUE_FULL [2,000]
	Timeout time.Duration // of one transaction, and the longest wait of an ask [2s]
}

// Direct is the door of campaigns that are sold without a mirror (admission: DATABASE) and, while Redis
// is away, of those with a baseline: it answers as the mirror does, from the shard alone.
//
// Asks that arrive together share one transaction. There is one transaction of this process at a time:
// the stock row would hold a second one up anyway, and those who come meanwhile make the next one
// larger. An accepted ask has its order; nothing is on its way. Safe for concurrent use; Run works.
type Direct struct {
	store DirectStore
	cfg   DirectConfig
	count func([]Result)
	log   *slog.Logger
	queue chan *directCall
	ended chan struct{} // closed when Run has ended: nobody will answer
}

// directCall is one ask on its way.
type directCall struct {
	ask  Ask
	gone <-chan struct{} // closed when whoever asked was told PAUSED, or went away
	done chan Result     // of room one: whoever asked may have gone
}

// NewDirect makes a Direct whose outcomes are counted with those of the mirror.
func NewDirect(store DirectStore, cfg DirectConfig, counted *Client) *Direct {
	if cfg.Batch <= 0 {
		cfg.Batch = 200
	}
	if cfg.Queue <= 0 {
		cfg.Queue = 2000
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 2 * time.Second
	}
	d := &Direct{store: store, cfg: cfg, count: func([]Result) {}, log: slog.New(slog.DiscardHandler), queue: make(chan *directCall, cfg.Queue), ended: make(chan struct{})}
	if counted != nil {
		d.count, d.log = counted.metrics.counted, counted.log
	}
	return d
}

// Admit orders for asks and answers in the same order. ctx bounds the wait only: what ended early may
// have happened, and the same ask sent again finds out.
func (d *Direct) Admit(ctx context.Context, asks []Ask) []Result {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	results, calls := make([]Result, len(asks)), make([]*directCall, len(asks))
	for i, a := range asks {
		if a.Quantity < 1 || a.Quantity > events.MaxQuantity {
			results[i].Err = fmt.Errorf("%w: quantity must be 1 to %d", ErrInvalidAsk, events.MaxQuantity)
			continue
		}
		call := &directCall{a, ctx.Done(), make(chan Result, 1)}
		select {
		case d.queue <- call:
			calls[i] = call
		default:
			results[i].Outcome = QueueFull
		}
	}
	for i, call := range calls {
		if call != nil {
			results[i] = d.wait(ctx, call)
		}
	}
	d.count(results)
	return results
}

func (d *Direct) wait(ctx context.Context, call *directCall) Result {
	select {
	case r := <-call.done:
		return r
	case <-ctx.Done():
		return Result{Outcome: Paused, Err: fmt.Errorf("%w: no answer in time: %w", shard.ErrUnavailable, ctx.Err())}
	case <-d.ended:
		return Result{Outcome: Paused, Err: fmt.Errorf("%w: this process stops", shard.ErrUnavailable)}
	}
}

// Run orders for whoever asks until ctx ends.
func (d *Direct) Run(ctx context.Context) error {
	defer close(d.ended)
	var held []*directCall // asks of users who have another one in the batch before
	for {
		if len(held) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case call := <-d.queue:
				held = append(held, call)
			}
		}
		var batch []*directCall
		batch, held = d.gather(held)
		if batch = waiting(batch); len(batch) > 0 {
			d.apply(ctx, batch)
		}
	}
}

// gather takes what is there, up to a batch; a user's second ask waits for the next one.
func (d *Direct) gather(waiting []*directCall) (batch, held []*directCall) {
	users := map[ids.UserID]bool{}
	add := func(call *directCall) {
		if users[call.ask.User] || len(batch) == d.cfg.Batch {
			held = append(held, call)
			return
		}
		users[call.ask.User] = true
		batch = append(batch, call)
	}
	for _, call := range waiting {
		add(call)
	}
	for len(batch) < d.cfg.Batch && len(held) < d.cfg.Batch {
		select {
		case call := <-d.queue:
			add(call)
		default:
			return batch, held
		}
	}
	return batch, held
}

// waiting is the part of a batch that somebody still waits for. Whoever was told PAUSED gets no order
// behind it: it may have been told so long ago, and asks again if it still wants one.
func waiting(batch []*directCall) []*directCall {
	var out []*directCall
	for _, call := range batch {
		select {
		case <-call.gone:
			call.done <- Result{Outcome: Paused, Err: fmt.Errorf("%w: nobody waits for the answer", shard.ErrUnavailable)}
		default:
			out = append(out, call)
		}
	}
	return out
}

// apply is one transaction. What was begun is carried through, whoever stops (K58). Data that the
// database refuses is narrowed down by halving, so that it answers for itself alone.
func (d *Direct) apply(ctx context.Context, batch []*directCall) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.Timeout)
	defer cancel()
	asks := make([]shard.DirectAsk, len(batch))
	for i, call := range batch {
		asks[i] = call.ask.direct()
	}
	results, err := d.store.ApplyDirect(within, asks)
	switch {
	case err == nil:
		for i, r := range results {
			batch[i].done <- fromDirect(r)
		}
	case errors.Is(err, shard.ErrBadData) && len(batch) > 1:
		d.apply(ctx, batch[:len(batch)/2])
		d.apply(ctx, batch[len(batch)/2:])
	default:
		if errors.Is(err, shard.ErrBadData) { // what customers may write was checked: a fault of ours, and no word for them
			a := batch[0].ask
			d.log.ErrorContext(ctx, "the shard refuses the data of an ask", telemetry.Event, "direct_refused_by_data", telemetry.CampaignID, string(a.Scope.Campaign),
				telemetry.SKUID, string(a.SKU), telemetry.RequestID, string(a.Request), telemetry.Error, err.Error())
		}
		for _, call := range batch {
			call.done <- failedDirect(err)
		}
	}
}

// failedDirect is the answer where the shard gave none: never one about stock, and never the customer's fault.
func failedDirect(err error) Result {
	switch {
	case shard.MayNotWrite(err):
		return Result{Outcome: Fenced}
	case errors.Is(err, shard.ErrUnavailable), errors.Is(err, shard.ErrUnknownCommit):
		return Result{Outcome: Paused, Err: err}
	default:
		return Result{Outcome: NotReady, Err: err}
	}
}

// Lookup tells what the shard has of requests: Replayed, Clear, or Paused where nobody knows.
func (d *Direct) Lookup(ctx context.Context, asks []LookupAsk) []Result {
	results := make([]Result, len(asks))
	for i, a := range asks {
		row, err := d.store.LookupRequest(ctx, a.Scope.Campaign, a.SKU, a.User, a.Request)
		switch {
		case err != nil:
			results[i] = Result{Outcome: Paused, Err: err}
		case !row.Found:
			results[i].Outcome = Clear
		default:
			results[i] = fromRow(row)
			results[i].Outcome = Replayed
		}
	}
	return results
}

// Precheck answers Clear, or what stands against each ask.
func (d *Direct) Precheck(ctx context.Context, asks []PrecheckAsk) []Result {
	in := make([]shard.DirectAsk, len(asks))
	for i, a := range asks {
		in[i] = shard.DirectAsk{Campaign: a.Scope.Campaign, SKU: a.SKU, User: a.User, Domain: a.Domain}
	}
	results := make([]Result, len(asks))
	out, err := d.store.PrecheckDirect(ctx, in)
	for i := range results {
		if err != nil {
			results[i] = failedDirect(err)
			continue
		}
		results[i] = fromDirect(out[i])
	}
	return results
}
