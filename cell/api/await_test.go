package api

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/status"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// unsigned gives no receipts.
type unsigned struct{ Statuses }

func (unsigned) Sign(status.Query, ids.Build, time.Time) string { return "" }

// TestAwait: each of a batch is answered when its own acknowledgement comes or its own patience ends,
// whatever the others wait for.
func TestAwait(t *testing.T) {
	b, _ := newBatch()
	clk := clock.NewManual(time.Unix(1000, 0))
	b.Clock, b.Statuses = clk, unsigned{}
	states := make(chan pb.RequestState, 8)
	order := make(chan uint64, 8)
	b.answer = func(answers ...*pb.Answer) {
		for _, a := range answers {
			order <- a.GetCorrelationId()
			states <- a.GetRequest().GetState()
		}
	}
	var waiting []*waiter
	for i, patience := range []time.Duration{time.Second, time.Second, 500 * time.Millisecond, time.Second} {
		c := asked()
		c.ask.CorrelationId = uint64(i)
		waiting = append(waiting, &waiter{ask: c, result: admission.Result{Outcome: admission.Accepted}, until: clk.Now().Add(patience)})
	}
	acks := make(chan acknowledgement, len(waiting))
	var done sync.WaitGroup
	done.Go(func() { b.await(waiting, acks, nil) })
	next := func(of uint64, state pb.RequestState) {
		t.Helper()
		if o, s := <-order, <-states; o != of || s != state {
			t.Fatalf("ask %d is told %s, want ask %d told %s", o, s, of, state)
		}
	}
	acks <- acknowledgement{waiting[1], nil}
	next(1, pb.RequestState_REQUEST_STATE_QUEUED)
	acks <- acknowledgement{waiting[3], errors.New("the log refused it")}
	next(3, pb.RequestState_REQUEST_STATE_ADMITTED)
	advance := func() {
		t.Helper()
		if err := clk.BlockUntil(testkit.Deadline(t), 1); err != nil {
			t.Fatal(err)
		}
		clk.Advance(500 * time.Millisecond)
	}
	advance()
	next(2, pb.RequestState_REQUEST_STATE_ADMITTED)
	acks <- acknowledgement{waiting[2], nil} // too late: told once only
	advance()
	next(0, pb.RequestState_REQUEST_STATE_ADMITTED)
	done.Wait()
	if len(order) != 0 {
		t.Fatalf("%d answers too many", len(order))
	}
}

// A stream that is gone is not waited for.
func TestAwaitEndsWithTheStream(t *testing.T) {
	b, _ := newBatch()
	b.answer = func(...*pb.Answer) { t.Error("an answer to nobody") }
	gone := make(chan struct{})
	close(gone)
	b.await([]*waiter{{ask: asked(), until: b.Clock.Now().Add(time.Hour)}}, make(chan acknowledgement), gone)
}
