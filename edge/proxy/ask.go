package proxy

import (
	"context"

	"github.com/cellquota/cellquota/internal/ids"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Ask sends one ask to the cell and waits for its answer, for at most Timeout or until ctx ends.
// The errors are those of this package. ctx should not be a client's own: an ask whose asker hung
// up is still decided by the cell (K58).
func (c *Cells) Ask(ctx context.Context, cell ids.CellID, ask *cq.Ask) (*cq.Answer, error) {
	p, ok := (*c.pools.Load())[cell]
	if !ok {
		return nil, ErrNoCell
	}
	if !p.inflight.Enter() {
		return nil, ErrBusy
	}
	defer p.inflight.Leave()
	l := p.lane()
	if l == nil {
		return nil, ErrNoCell
	}
	// The cell answers a quarter earlier, so that "accepted, the log is late" still finds its asker.
	ask.WaitMs = int32(min((c.set.Timeout - c.set.Timeout/4).Milliseconds(), 1<<30))
	one := newCall(ask)
	select {
	case l.queue <- one:
	default:
		return nil, ErrBusy // retired calls still lie in the queue
	}
	return c.wait(ctx, one)
}

func (c *Cells) wait(ctx context.Context, one *call) (*cq.Answer, error) {
	timer := c.clock.NewTimer(c.set.Timeout)
	defer timer.Stop()
	select {
	case o := <-one.done:
		return o.answer, o.err
	case <-timer.C():
	case <-ctx.Done():
	}
	if one.state.CompareAndSwap(queued, abandoned) || one.state.Load() == abandoned {
		return nil, ErrNotSent
	}
	select {
	case o := <-one.done: // it came at the last moment
		return o.answer, o.err
	default:
		one.table.forget(one)
		c.metrics.unknown.Inc()
		return nil, ErrUnknown
	}
}

// Door returns a way to call the cell's services: one of its processes, preferably one that
// answers. ErrNoCell: it has none.
func (c *Cells) Door(cell ids.CellID) (Door, error) {
	p, ok := (*c.pools.Load())[cell]
	if !ok {
		return Door{}, ErrNoCell
	}
	one := p.peer()
	if one == nil {
		return Door{}, ErrNoCell
	}
	return one.door, nil
}

// Open reports whether a stream to the cell is open.
func (c *Cells) Open(cell ids.CellID) bool {
	p, ok := (*c.pools.Load())[cell]
	return ok && p.lane() != nil
}
