package api

import (
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// waiter is a granted ask whose acknowledgement by the log is awaited.
type waiter struct {
	ask    *checked
	result admission.Result
	until  time.Time
	told   bool
}

// acknowledgement is the log's answer for one waiter; err nil: the log has it.
type acknowledgement struct {
	of  *waiter
	err error
}

// produce hands admissions to the log at once, in the order in which they were granted. The customer's
// patience has no part in it. acks has room for every waiter, so the driver is never held up.
func (b *batch) produce(granted []admission.Granted, waiting []*waiter, acks chan<- acknowledgement) {
	if len(granted) == 0 {
		return
	}
	byID := make(map[ids.ReservationID]*waiter, len(waiting))
	for _, w := range waiting {
		byID[w.result.Reservation] = w
	}
	b.Log.Produce(granted, func(g admission.Granted, err error) {
		if w, ok := byID[g.Reservation]; ok {
			acks <- acknowledgement{w, err}
		}
	})
}

// await answers each granted ask when the log has it, or as ADMITTED when the log refuses it or is
// late: its entry in the mirror's stream stays, and the sweeper brings it there. It ends early when
// gone is closed.
func (b *batch) await(waiting []*waiter, acks <-chan acknowledgement, gone <-chan struct{}) {
	for left := len(waiting); left > 0; {
		timer := b.Clock.NewTimer(earliest(waiting).Sub(b.Clock.Now()))
		late := false
		for left > 0 && !late {
			select {
			case a := <-acks:
				left -= b.acknowledge(a, acks)
			case <-timer.C():
				late = true
			case <-gone:
				timer.Stop()
				return
			}
		}
		timer.Stop()
		if late {
			left -= b.giveUp(waiting)
		}
	}
}

// acknowledge answers those whose acknowledgement came, and those whose has come by now.
func (b *batch) acknowledge(a acknowledgement, acks <-chan acknowledgement) (told int) {
	var answers []*pb.Answer
	for {
		if !a.of.told {
			a.of.told = true
			answers = append(answers, b.accepted(a.of.ask, a.of.result, a.err == nil))
		}
		select {
		case a = <-acks:
		default:
			b.answer(answers...)
			return len(answers)
		}
	}
}

// earliest is when the first of those who still wait loses patience.
func earliest(waiting []*waiter) time.Time {
	var first time.Time
	for _, w := range waiting {
		if !w.told && (first.IsZero() || w.until.Before(first)) {
			first = w.until
		}
	}
	return first
}

// giveUp answers those whose patience is over.
func (b *batch) giveUp(waiting []*waiter) (told int) {
	now := b.Clock.Now()
	var answers []*pb.Answer
	for _, w := range waiting {
		if !w.told && !now.Before(w.until) {
			w.told = true
			answers = append(answers, b.accepted(w.ask, w.result, false))
		}
	}
	b.answer(answers...)
	return len(answers)
}
