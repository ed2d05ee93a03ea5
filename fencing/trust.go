package fencing

import (
	"fmt"
	"time"
)

// LeasePolicy says what a cell does when its lease may have lapsed: the
// campaign's on_lease_loss.
type LeasePolicy uint8

// The policies. The zero value is none and admits nothing.
const (
	// Continue: go on selling what the cell holds. Safe, because the fence is in
	// the shard; a control-plane outage does not stop the sale.
	Continue LeasePolicy = iota + 1
	// Pause: stop admitting a margin before the lease ends.
	Pause
)

// String gives the word of campaign.yaml.
func (p LeasePolicy) String() string {
	switch p {
	case Continue:
		return "CONTINUE"
	case Pause:
		return "PAUSE"
	}
	return fmt.Sprintf("LeasePolicy(%d)", uint8(p))
}

// Margin is how long before its lease ends a PAUSE cell stops. It is a type of
// its own so that it cannot be swapped with a lease's life.
type Margin time.Duration

// TrustWindow is the time in which a cell may believe that it is still wanted.
// It is about liveness only: a cell that misjudges it is stopped by its shard's
// fence, never by this (G-05, K72).
type TrustWindow struct {
	Deadline time.Time // when the lease ends; zero: never had one
	Margin   Margin    // at least 0
	Policy   LeasePolicy
}

// MayAdmit tells whether the cell may admit new requests at now. Under PAUSE
// only while now is before Deadline - Margin, by the wall clock as well as by
// the monotonic one where both times carry it: the monotonic clock stands still
// while a machine is suspended, the wall clock can be set back, and the one that
// says "later" wins.
func (w TrustWindow) MayAdmit(now time.Time) bool {
	switch w.Policy {
	case Continue:
		return true
	case Pause:
		return w.Remaining(now) > time.Duration(w.Margin)
	}
	return false
}

// Remaining gives how much of the lease is left at now, 0 when nothing is.
func (w TrustWindow) Remaining(now time.Time) time.Duration {
	if w.Deadline.IsZero() {
		return 0
	}
	monotonic, wall := w.Deadline.Sub(now), w.Deadline.Round(0).Sub(now.Round(0))
	return max(0, min(monotonic, wall))
}
