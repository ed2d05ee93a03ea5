package link

import (
	"sync"

	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// maxResults bounds what is kept for the next stream. The leader sends a directive again whose result
// it did not get, so what is dropped is asked for.
const maxResults = 1024

// results are decided directives whose result has not left. One per directive; safe for concurrent use.
type results struct {
	mu    sync.Mutex
	queue []*pb.DirectiveResult
	wake  chan struct{}
}

func newResults() *results { return &results{wake: make(chan struct{}, 1)} }

// some signals that there is something to take.
func (r *results) some() <-chan struct{} { return r.wake }

// put queues a result; an earlier one of the same directive is replaced, the oldest makes room.
func (r *results) put(one *pb.DirectiveResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, have := range r.queue {
		if have.GetDirectiveId() == one.GetDirectiveId() {
			r.queue[i] = one
			return
		}
	}
	if len(r.queue) >= maxResults {
		r.queue = append(r.queue[:0], r.queue[1:]...)
	}
	r.queue = append(r.queue, one)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take removes the oldest.
func (r *results) take() (*pb.DirectiveResult, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return nil, false
	}
	one := r.queue[0]
	r.queue = r.queue[1:]
	return one, true
}
