package gate

import (
	"errors"
	"fmt"
)

// State is what the gate lets through for one SKU. The words are those of the
// contract, section 8; the numbers those of cellquota.v1.GateState.
type State int

const (
	// Open admits up to the bound.
	Open State = iota + 1
	// Throttled admits up to a bound that was cut or is still rising.
	Throttled
	// QueueFull: the outstanding admissions reached the bound.
	QueueFull
	// TempSoldOut: no stock in the mirror now; it may come back.
	TempSoldOut
	// FinalSoldOut: declared by the control plane. Terminal.
	FinalSoldOut
	// Paused: a dependency is at fault, or an operator paused the sale.
	Paused
)

var stateNames = [...]string{"", "OPEN", "THROTTLED", "QUEUE_FULL", "TEMP_SOLD_OUT", "FINAL_SOLD_OUT", "PAUSED"}

// String is the state's word.
func (s State) String() string {
	if s < Open || s > Paused {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return stateNames[s]
}

// Terminal reports whether no event leads out of s.
func (s State) Terminal() bool { return s == FinalSoldOut }

// States lists every state.
func States() []State { return []State{Open, Throttled, QueueFull, TempSoldOut, FinalSoldOut, Paused} }

// Event is what one look at a SKU amounts to. When several hold, the last in this
// list counts.
type Event int

const (
	// Calm: nothing is wrong and the bound is still rising.
	Calm Event = iota
	// Ramped: nothing is wrong and the bound is whole.
	Ramped
	// Slow: admissions wait, fail or lock longer than they should.
	Slow
	// Full: the outstanding admissions reached the bound.
	Full
	// Empty: the mirror has no stock.
	Empty
	// Halt: a dependency is at fault, an operator paused, or admissions wait far too long.
	Halt
	// Final: the control plane declared FINAL_SOLD_OUT.
	Final

	events = iota
)

var eventNames = [events]string{"Calm", "Ramped", "Slow", "Full", "Empty", "Halt", "Final"}

// String is the event's name.
func (e Event) String() string {
	if e < 0 || e >= events {
		return fmt.Sprintf("Event(%d)", int(e))
	}
	return eventNames[e]
}

// Events lists every event.
func Events() []Event { return []Event{Calm, Ramped, Slow, Full, Empty, Halt, Final} }

// ErrTransition: the event cannot happen in the state; the caller's gate is broken.
var ErrTransition = errors.New("gate: impossible event")

// cell is one field of the table.
type cell struct {
	kind kind
	next State
}

type kind int

const (
	moves kind = iota // to next
	same              // stays, and that is in order
	never             // cannot happen: the ramp says otherwise
)

func to(s State) cell { return cell{moves, s} }

var (
	stay = cell{kind: same}
	nope = cell{kind: never}
)

// table is the machine. An Open gate is whole, so Calm (still rising) cannot meet it;
// a Paused one has no ramp, so Ramped cannot.
var table = map[State][events]cell{
	//             Calm           Ramped    Slow           Full           Empty            Halt        Final
	Open:         {nope, stay, to(Throttled), to(QueueFull), to(TempSoldOut), to(Paused), to(FinalSoldOut)},
	Throttled:    {stay, to(Open), stay, to(QueueFull), to(TempSoldOut), to(Paused), to(FinalSoldOut)},
	QueueFull:    {to(Throttled), to(Open), to(Throttled), stay, to(TempSoldOut), to(Paused), to(FinalSoldOut)},
	TempSoldOut:  {to(Throttled), to(Open), to(Throttled), to(QueueFull), stay, to(Paused), to(FinalSoldOut)},
	FinalSoldOut: {stay, stay, stay, stay, stay, stay, stay},
	Paused:       {to(Throttled), nope, to(Throttled), to(QueueFull), to(TempSoldOut), stay, to(FinalSoldOut)},
}

// next looks an event up.
func next(s State, e Event) (State, error) {
	row, ok := table[s]
	if !ok || e < 0 || e >= events {
		return s, fmt.Errorf("%w: %s in %s", ErrTransition, e, s)
	}
	switch c := row[e]; c.kind {
	case moves:
		return c.next, nil
	case same:
		return s, nil
	default:
		return s, fmt.Errorf("%w: %s in %s", ErrTransition, e, s)
	}
}
