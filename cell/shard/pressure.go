package shard

import (
	"context"
	"errors"
	"sync"
	"time"
)

// pressureSpan is how long a measurement of pressure counts, at least; at most twice as long.
const pressureSpan = 2 * time.Second

// Pressure is how hard this process's order transactions had it lately.
type Pressure struct {
	FailureRate float64       // share of attempts that failed or were made again, 0 to 1
	LockWait    time.Duration // longest wait for stock rows
}

// pressure measures in two spans, the present and the one before. Safe for concurrent use.
type pressure struct {
	mu        sync.Mutex
	began     time.Time // of now
	now, then span
}

type span struct {
	attempts, failures int
	wait               time.Duration
}

// turn begins a new span when the present one is over.
func (p *pressure) turn(at time.Time) {
	switch age := at.Sub(p.began); {
	case age >= 2*pressureSpan:
		p.began, p.then, p.now = at, span{}, span{}
	case age >= pressureSpan:
		p.began, p.then, p.now = at, p.now, span{}
	}
}

// attempted notes one attempt of an order transaction. What the transaction was for (a lost position, a
// fence) is no failure of the shard.
func (p *pressure) attempted(at time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(at)
	p.now.attempts++
	if retryable(err) || errors.Is(err, ErrUnknownCommit) || errors.Is(translate(err), ErrUnavailable) {
		p.now.failures++
	}
}

func (p *pressure) waited(at time.Time, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(at)
	p.now.wait = max(p.now.wait, d)
}

func (p *pressure) read(at time.Time) Pressure {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(at)
	out := Pressure{LockWait: max(p.now.wait, p.then.wait)}
	if n := p.now.attempts + p.then.attempts; n > 0 {
		out.FailureRate = float64(p.now.failures+p.then.failures) / float64(n)
	}
	return out
}

// Pressure is what this process's order transactions met within the last seconds.
func (s *Store) Pressure() Pressure { return s.pressure.read(s.clock.Now()) }

// LongestLockWait is how long whichever session of the cell's role waits longest, in whatever process,
// has been waiting for a row or a table of this database.
func (s *Store) LongestLockWait(ctx context.Context) (time.Duration, error) {
	var seconds float64
	err := s.pool.QueryRow(ctx, sql("longest_lock_wait")).Scan(&seconds)
	return time.Duration(max(0, seconds) * float64(time.Second)), translate(err)
}
