package proxy

import (
	"sync"
	"testing"

	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Sender and waiter race for an ask; exactly one of them gets it, and what the sender got is in the
// table.
func TestRaceForAnAsk(t *testing.T) {
	for range 2000 {
		c, table := newCall(&cq.Ask{}), newTable()
		var asks []*cq.Ask
		var abandonedIt bool
		var both sync.WaitGroup
		both.Go(func() { asks = table.enter([]*call{c}, nil) })
		both.Go(func() { abandonedIt = c.state.CompareAndSwap(queued, abandoned) })
		both.Wait()
		if (len(asks) == 1) == abandonedIt || len(table.calls) != len(asks) {
			t.Fatalf("sent %d, abandoned %v, in the table %d", len(asks), abandonedIt, len(table.calls))
		}
	}
}

// An answer nobody waits for is counted and harms nobody.
func TestLateAnswers(t *testing.T) {
	table := newTable()
	a, b := newCall(&cq.Ask{}), newCall(&cq.Ask{})
	table.enter([]*call{a, b}, nil)
	table.forget(a)
	late := table.answer([]*cq.Answer{{CorrelationId: 1}, {CorrelationId: 2}, {CorrelationId: 2}, {CorrelationId: 99}})
	if late != 3 {
		t.Errorf("late %d, want 3", late)
	}
	if o := <-b.done; o.answer.GetCorrelationId() != 2 {
		t.Errorf("b got %v", o)
	}
	select {
	case o := <-a.done:
		t.Errorf("a, who left, got %v", o)
	default:
	}
	if n := table.fail(); n != 0 {
		t.Errorf("%d calls are left", n)
	}
}
