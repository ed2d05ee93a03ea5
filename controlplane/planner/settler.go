package planner

import (
	"context"
	"slices"
	"sync"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
)

// settler books shards' answers, those to one record together: while one transaction
// is under way, what else comes for its record waits, and the next takes all of it.
// A publish over a thousand cells is one record that a thousand streams answer at
// once; each answer by itself would lose its compare to all the others, and read and
// write a thousand adjustments each time.
//
// Who waits is a stream's goroutine, one answer each; so what waits is bounded by the
// streams. Nothing runs of its own: one of those who wait does the work for all.
type settler struct {
	book func(ctx context.Context, leader core.Leader, record string, answers []store.Answer) ([]store.Settled, error)

	mu    sync.Mutex
	desks map[deskOf]*desk
}

// deskOf is a record under one leadership.
type deskOf struct {
	record string
	leader int64 // its CreateRevision
}

type desk struct {
	turn    chan struct{} // full while somebody writes
	waiting []*asked
	users   int
}

type asked struct {
	answer  store.Answer
	settled store.Settled // with its refusal
	err     error         // nothing was booked
	done    chan struct{}
}

func newSettler(s *store.Store) *settler {
	return &settler{book: s.SettleAll, desks: map[deskOf]*desk{}}
}

// settle books one answer, perhaps with others. An error of ctx leaves open whether
// it was booked; asking again shows it.
func (s *settler) settle(ctx context.Context, leader core.Leader, record string, answer store.Answer) (store.Settled, error) {
	at := deskOf{record, leader.CreateRevision}
	mine := &asked{answer: answer, done: make(chan struct{})}
	d := s.enter(at, mine)
	defer s.leave(at, d, mine)
	select {
	case d.turn <- struct{}{}:
	case <-mine.done:
		return mine.result()
	case <-ctx.Done():
		return store.Settled{}, ctx.Err()
	}
	defer func() { <-d.turn }()
	select {
	case <-mine.done: // by who had the turn before
		return mine.result()
	default:
	}
	s.write(ctx, leader, record, d, mine)
	return mine.result()
}

func (a *asked) result() (store.Settled, error) {
	if a.err != nil {
		return store.Settled{}, a.err
	}
	return a.settled, a.settled.Err
}

func (s *settler) enter(at deskOf, mine *asked) *desk {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.desks[at]
	if d == nil {
		d = &desk{turn: make(chan struct{}, 1)}
		s.desks[at] = d
	}
	d.users++
	d.waiting = append(d.waiting, mine)
	return d
}

// leave forgets who goes, done or not, and the desk after the last.
func (s *settler) leave(at deskOf, d *desk, mine *asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.waiting = slices.DeleteFunc(d.waiting, func(a *asked) bool { return a == mine })
	if d.users--; d.users == 0 {
		delete(s.desks, at)
	}
}

// write books mine and as many others as one transaction takes. When this stream
// ends meanwhile, the others are not told so: the next of them writes.
func (s *settler) write(ctx context.Context, leader core.Leader, record string, d *desk, mine *asked) {
	s.mu.Lock()
	batch := []*asked{mine}
	for _, a := range d.waiting {
		if a != mine && len(batch) < store.MaxAnswers {
			batch = append(batch, a)
		}
	}
	s.mu.Unlock()
	answers := make([]store.Answer, len(batch))
	for i, a := range batch {
		answers[i] = a.answer
	}
	settled, err := s.book(ctx, leader, record, answers)
	if err != nil && ctx.Err() != nil {
		mine.err = err
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range batch {
		if a.err = err; err == nil {
			a.settled = settled[i]
		}
		close(a.done)
	}
	d.waiting = slices.DeleteFunc(d.waiting, func(a *asked) bool { return slices.Contains(batch, a) })
}
