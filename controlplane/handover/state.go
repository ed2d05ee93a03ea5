package handover

import (
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
)

// State is where a handover stands.
type State uint8

// The states. From Moving on the giver may have closed its buckets.
const (
	Asked   State = iota + 1 // nothing has happened
	Moving                   // the route says MOVING
	Closed                   // the giver's shard has closed the buckets
	Carried                  // the taker's shard has everybody
	Opened                   // the taker's shard has opened them
	Turned                   // the route says MOVED: done
	Ended                    // aborted, or failed
	states
)

var stateNames = [states]string{Asked: "ASKED", Moving: "MOVING", Closed: "CLOSED", Carried: "CARRIED", Opened: "OPENED", Turned: "TURNED", Ended: "ENDED"}

// States lists every state.
func States() []State { return []State{Asked, Moving, Closed, Carried, Opened, Turned, Ended} }

// String is the state's word in this room's diagram.
func (s State) String() string {
	if s > 0 && s < states {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Terminal tells whether nothing follows.
func (s State) Terminal() bool { return s == Turned || s == Ended }

// Event is what happened.
type Event uint8

// The events. Each but the last two is the stored outcome of the effect that is due.
const (
	OrderedEvent Event = iota + 1
	ClosedEvent
	CarriedEvent
	OpenedEvent
	TurnedEvent
	Abort     // somebody asks for its end
	GiverLost // the giver's shard is gone for good
	events
)

var eventNames = [events]string{OrderedEvent: "Ordered", ClosedEvent: "Closed", CarriedEvent: "Carried", OpenedEvent: "Opened", TurnedEvent: "Turned", Abort: "Abort", GiverLost: "GiverLost"}

// Events lists every event.
func Events() []Event {
	return []Event{OrderedEvent, ClosedEvent, CarriedEvent, OpenedEvent, TurnedEvent, Abort, GiverLost}
}

// String is the event's word in this room's diagram.
func (e Event) String() string {
	if e > 0 && e < events {
		return eventNames[e]
	}
	return fmt.Sprintf("Event(%d)", uint8(e))
}

// Effect is what is due in a state.
type Effect uint8

// The effects; each is idempotent. NoEffect: nothing is due.
const (
	NoEffect Effect = iota
	WriteMoving
	CloseBuckets
	CarryPages
	OpenBuckets
	TurnRoute
)

// Refusals.
var (
	// ErrBegun: the giver may have closed its buckets; the handover goes forward.
	ErrBegun = errors.New("its giver may have closed the buckets; what it began must be finished")
	// ErrEnded: the handover has ended.
	ErrEnded = errors.New("it has ended")
	// ErrImpossible: no driver can bring this about. A defect.
	ErrImpossible = errors.New("a step before it was not done")
	// ErrTransition is in every refusal of Step.
	ErrTransition = errors.New("the handover refuses this")
)

// stepOf names, per event, the step that an operation's record lists as finished.
var stepOf = [events]string{OrderedEvent: core.StepOrder, ClosedEvent: core.StepClose, CarriedEvent: core.StepCarry, OpenedEvent: core.StepOpen, TurnedEvent: core.StepTurn}

// StateOf reads where an operation stands from its record.
func StateOf(op core.Operation) State {
	switch {
	case op.State == core.OperationDone:
		return Turned
	case op.State.Terminal():
		return Ended
	}
	at := Asked
	for _, e := range Events() {
		if name := stepOf[e]; name != "" && op.DoneStep(name) {
			at++
		}
	}
	return at
}

// Step gives the state after an event, and what is due then. A repeated outcome
// changes nothing. Errors wrap ErrTransition and the reason.
func Step(s State, e Event) (State, Effect, error) {
	if s < 1 || s >= states || e < 1 || e >= events {
		return s, NoEffect, fmt.Errorf("%w: %s in %s: %w", ErrTransition, e, s, ErrImpossible)
	}
	r := table[s][e]
	if r.why != nil {
		return s, NoEffect, fmt.Errorf("%w: %s in %s: %w", ErrTransition, e, s, r.why)
	}
	return r.next, Due(r.next), nil
}

// Due is what is to be done in a state.
func Due(s State) Effect {
	if s > 0 && s < states {
		return due[s]
	}
	return NoEffect
}
