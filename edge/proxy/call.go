package proxy

import (
	"sync"
	"sync/atomic"

	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Where a call stands. Sender and waiter race for the way out of queued; whoever wins decides
// whether the ask leaves this process.
const (
	queued    int32 = iota
	sent            // the sender took it; its outcome is the cell's
	abandoned       // the waiter took it; it will not be sent
)

// call is one ask on its way.
type call struct {
	ask   *cq.Ask
	state atomic.Int32
	done  chan outcome // room for one; written exactly once, unless abandoned
	// table holds the call while it is sent; set by the sender before the state is.
	table *table
}

type outcome struct {
	answer *cq.Answer
	err    error
}

func newCall(ask *cq.Ask) *call {
	return &call{ask: ask, done: make(chan outcome, 1)}
}

// finish hands the outcome to the waiter. A second finish of one call is a bug that would hang its
// caller, so the room of one is never waited for.
func (c *call) finish(o outcome) {
	select {
	case c.done <- o:
	default:
	}
}

// table holds the calls that one stream has sent and that are not answered yet.
type table struct {
	mu    sync.Mutex
	calls map[uint64]*call
	next  uint64
	heard bool // an answer came
}

func newTable() *table { return &table{calls: map[uint64]*call{}} }

// enter takes the calls of one batch that nobody abandoned and numbers their asks, appending them
// to asks.
func (t *table) enter(batch []*call, asks []*cq.Ask) []*cq.Ask {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range batch {
		c.table = t
		if !c.state.CompareAndSwap(queued, sent) {
			continue
		}
		t.next++
		c.ask.CorrelationId = t.next
		t.calls[t.next] = c
		asks = append(asks, c.ask)
	}
	return asks
}

// answer hands a message's answers to their calls and returns how many nobody waited for any more.
func (t *table) answer(answers []*cq.Answer) (late int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = true
	for _, a := range answers {
		c, ok := t.calls[a.GetCorrelationId()]
		if !ok {
			late++
			continue
		}
		delete(t.calls, a.GetCorrelationId())
		c.finish(outcome{answer: a})
	}
	return late
}

// forget takes a call out whose waiter gave up.
func (t *table) forget(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.calls, c.ask.GetCorrelationId())
}

// fail ends every call with an unknown outcome: they were sent and the stream is gone.
func (t *table) fail() (calls int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls = len(t.calls)
	for id, c := range t.calls {
		delete(t.calls, id)
		c.finish(outcome{err: ErrUnknown})
	}
	return calls
}
