package limit

import "sync/atomic"

// Inflight counts what runs at once and refuses what would be too many. The zero Inflight refuses
// everything.
type Inflight struct {
	max int64
	now atomic.Int64
}

// NewInflight returns a counter with that bound.
func NewInflight(bound int) *Inflight { return &Inflight{max: int64(bound)} }

// Enter takes a place if there is one; whoever got it must Leave.
func (i *Inflight) Enter() bool {
	if i.now.Add(1) > i.max {
		i.now.Add(-1)
		return false
	}
	return true
}

// Leave gives a place back.
func (i *Inflight) Leave() { i.now.Add(-1) }

// Now is how many places are taken.
func (i *Inflight) Now() int64 { return i.now.Load() }
