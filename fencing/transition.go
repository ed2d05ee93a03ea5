package fencing

import (
	"errors"
	"fmt"
)

// ErrTransition is wrapped by every refused step of both machines: the event
// does not apply to the state. A caller maps it once, to FAILED_PRECONDITION.
var ErrTransition = errors.New("the event does not apply")

// Why an event does not apply. Each names what to do instead where there is
// something to do.
var (
	// ErrImpossible: no driver that works can send this event in this state; it is
	// a defect of the caller, not a late or a repeated message.
	ErrImpossible = errors.New("this cannot happen: the caller is broken")
	// ErrUnknownEvent: not an event of the machine.
	ErrUnknownEvent = errors.New("no such event")

	ErrFenced       = errors.New("the cell is fenced: restore it first")
	ErrNotFenced    = errors.New("the cell is not fenced")
	ErrFenceFirst   = errors.New("fence the cell first")
	ErrNotProven    = errors.New("the fence is not proven yet: it ends by proof or by write-off")
	ErrReclaimFirst = errors.New("the proof is stored: reclaim what it names first")
	ErrRestoring    = errors.New("the cell is being restored: wait until it is ACTIVE")
	ErrRegressed    = errors.New("the cell's shard went back in time: recover it first")
	ErrNotRegressed = errors.New("the cell's shard did not go back in time")
	ErrRetired      = errors.New("the cell is retired")
	ErrDrainFirst   = errors.New("drain or fence the cell first")
	ErrNeverSold    = errors.New("the cell never registered: retire it")
	ErrNotLive      = errors.New("no instance of the cell holds a lease: fence it")
	ErrNotDraining  = errors.New("the cell is not draining")

	ErrHealthy      = errors.New("the cell is healthy: fencing it needs force")
	ErrLastLiveCell = errors.New("this is the last live cell")
	ErrStaleRecord  = errors.New("the cell changed since the expected version")
	ErrStaleVersion = errors.New("the event is about another fence version")
	ErrOtherGroup   = errors.New("another instance group holds the cell: taking over means fence, then restore")
	ErrNotEmpty     = errors.New("the cell still holds units or open orders")
	ErrLost         = errors.New("the shard was written off and must not be used again")
	ErrNoWitness    = errors.New("a recovery needs the highest version that any witness saw")
	ErrOneSKU       = errors.New("the event must name exactly one SKU")
)

// TransitionError is a refused step.
type TransitionError struct {
	Machine string // "cell" or "reclaim"
	Cell    string
	From    string // the state
	Event   string
	Why     error // errors.Is finds it, and ErrTransition
}

// Error tells state, event and why.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("%s %.64q in %s refuses %s: %v", e.Machine, e.Cell, e.From, e.Event, e.Why)
}

// Unwrap makes errors.Is find ErrTransition and the reason.
func (e *TransitionError) Unwrap() []error { return []error{ErrTransition, e.Why} }

// ruleKind tells apart what a cell of a table says.
type ruleKind uint8

const (
	unfilled   ruleKind = iota // no cell may stay so
	moves                      // go to the next state, which may be the same one
	noOp                       // a repeat, or late news: nothing changes, no error
	wishes                     // remember the command until the state that takes it
	rejects                    // refused, with a named reason
	impossible                 // refused: a defect of the caller
)
