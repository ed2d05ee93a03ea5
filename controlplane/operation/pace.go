package operation

import (
	"maps"
	"sync"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
)

// Pace says when a driver looks at an operation again. It only spares work: it is
// forgotten with the process, and an operation that it does not know is due. It holds
// those whose time has not come. Safe for concurrent use.
type Pace struct {
	clock clock.Clock
	every time.Duration

	mu    sync.Mutex
	again map[string]time.Time // operation → not before
}

// NewPace makes a Pace of one look in every.
func NewPace(c clock.Clock, every time.Duration) *Pace {
	return &Pace{clock: c, every: every, again: map[string]time.Time{}}
}

// Due tells whether the operation may be looked at now.
func (p *Pace) Due(id string) bool {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	return !now.Before(p.again[id])
}

// Postpone puts the next look off, by one interval from now.
func (p *Pace) Postpone(id string) {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(id, now)
}

// Take is Due, and Postpone when it is.
func (p *Pace) Take(id string) bool {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.again[id]) {
		return false
	}
	p.put(id, now)
	return true
}

// put forgets those whose time has come; p.mu is held.
func (p *Pace) put(id string, now time.Time) {
	maps.DeleteFunc(p.again, func(_ string, at time.Time) bool { return !now.Before(at) })
	p.again[id] = now.Add(p.every)
}
