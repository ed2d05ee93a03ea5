package planner

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
)

// atOnce bounds the operations of one kind that are driven at the same time.
const atOnce = 8

// crew drives the steps of one leadership. No operation waits for another's step: a
// shard that hangs costs its own operation its time, and a place of atOnce among
// those of its kind until that is over. Who waits longest has the next place.
// Whoever makes one waits for steps before it lets the leadership go.
type crew struct {
	steps sync.WaitGroup
	// wake asks for a pass: what an earlier one left waiting may go on.
	wake chan struct{}

	mu    sync.Mutex
	busy  map[string]bool      // operations under way → a pass wanted another step of it
	kinds map[string]int       // kind → steps under way
	full  map[string]bool      // kinds of which a pass left one waiting
	last  map[string]time.Time // open operation → its last step began
}

func newCrew(wake chan struct{}) *crew {
	return &crew{wake: wake, busy: map[string]bool{}, kinds: map[string]int{}, full: map[string]bool{}, last: map[string]time.Time{}}
}

// operate hands every open operation but publishes and rebuilds to the driver, each once at a
// time, and does not wait for any.
func (p *Planner) operate(ctx context.Context, leader core.Leader, c *crew) {
	s := p.view.Snapshot()
	open := slices.DeleteFunc(slices.Clone(s.OpenOperations()), func(op core.Operation) bool {
		return op.Kind == core.OperationPublish || op.Kind == core.OperationRebuild || !drives(s, op)
	})
	for _, op := range c.take(open, p.clock.Now()) {
		c.steps.Go(func() {
			defer c.done(op)
			p.drive(ctx, leader, s, op)
		})
	}
}

// drive takes one operation one step on.
func (p *Planner) drive(ctx context.Context, leader core.Leader, s view.Snapshot, op core.Operation) {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	if p.cleared(ctx, leader, s, op) {
		err := traced(ctx, op, func(ctx context.Context) error { return p.operations.Step(ctx, leader, op) })
		p.note(ctx, err, "operation waits", fieldsOf(op)...)
	}
}

// take gives those of the open operations that a step may begin of now.
func (c *crew) take(open []core.Operation, now time.Time) (out []core.Operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := map[string]time.Time{} // of the open ones only: what ended is forgotten
	for _, op := range open {
		last[op.ID] = c.last[op.ID]
	}
	c.last = last
	slices.SortStableFunc(open, func(a, b core.Operation) int { return last[a.ID].Compare(last[b.ID]) })
	for _, op := range open {
		_, under := c.busy[op.ID]
		switch {
		case under:
			c.busy[op.ID] = true
		case c.kinds[op.Kind] >= atOnce:
			c.full[op.Kind] = true
		default:
			c.busy[op.ID], c.last[op.ID] = false, now
			c.kinds[op.Kind]++
			out = append(out, op)
		}
	}
	return out
}

// done ends a step, and asks for a pass where one left something waiting meanwhile.
func (c *crew) done(op core.Operation) {
	c.mu.Lock()
	again := c.busy[op.ID] || c.full[op.Kind]
	delete(c.busy, op.ID)
	delete(c.full, op.Kind)
	c.kinds[op.Kind]--
	c.mu.Unlock()
	if again {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}
