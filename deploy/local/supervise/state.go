package supervise

import "fmt"

// State is where one process stands between its starts and ends.
type State uint8

// The states of a process.
const (
	// Down: never started, or ended by itself and nobody restarts it.
	Down State = iota
	// Starting: it runs, its probe has not succeeded yet.
	Starting
	// Ready: it runs and its probe has succeeded once since the start.
	Ready
	// Waiting: it ended by itself and is started again after a back-off.
	Waiting
	// Ending: it runs and was told to end, on purpose.
	Ending
	// Held: it ended on purpose and stays down until it is started.
	Held
	// Cycling: as Ending, and it is started again as soon as it has ended.
	Cycling

	states = iota
)

var stateNames = [states]string{"DOWN", "STARTING", "READY", "WAITING", "ENDING", "HELD", "CYCLING"}

func (s State) String() string { return stateNames[s] }

// Alive reports whether a process in this state exists.
func (s State) Alive() bool { return s == Starting || s == Ready || s == Ending || s == Cycling }

// event is what can happen to a process.
type event uint8

const (
	evStart event = iota // somebody wants it up
	evReady              // its probe succeeded
	evDied               // it ended, and what dies is restarted
	evEnded              // it ended, and what dies stays down
	evRetry              // the back-off is over
	evHold               // somebody wants it down: send a signal that ends it

	events = iota
)

var eventNames = [events]string{"start", "ready", "died", "ended", "retry", "hold"}

func (e event) String() string { return eventNames[e] }

// effect is what the driver does after a step.
type effect uint8

const (
	fxNone    effect = iota
	fxSpawn          // fork and exec, and begin to probe
	fxBackOff        // arm the timer that brings evRetry
	fxSignal         // send the signal of the hold
)

// cell is one answer of the table. impossible differs from same: the driver
// cannot bring the event about in that state, so meeting it is a defect.
type cell struct {
	next       State
	do         effect
	impossible bool
}

func same(s State) cell { return cell{next: s} }
func to(s State) cell   { return cell{next: s} }

var (
	spawn   = cell{next: Starting, do: fxSpawn}
	backOff = cell{next: Waiting, do: fxBackOff}
	end     = cell{next: Ending, do: fxSignal}
	never   = cell{impossible: true}
)

var table = [states][events]cell{
	//         start         ready           died        ended       retry          hold
	Down:     {spawn, same(Down), never, never, same(Down), to(Held)},
	Starting: {same(Starting), to(Ready), backOff, to(Down), same(Starting), end},
	Ready:    {same(Ready), same(Ready), backOff, to(Down), same(Ready), end},
	Waiting:  {spawn, same(Waiting), never, never, spawn, to(Held)},
	Ending:   {to(Cycling), same(Ending), to(Held), to(Held), same(Ending), end},
	Held:     {spawn, same(Held), never, never, same(Held), to(Held)},
	Cycling:  {same(Cycling), same(Cycling), spawn, spawn, same(Cycling), end},
}

// step is the whole decision: the next state and what is to be done.
func step(s State, e event) (State, effect) {
	c := table[s][e]
	if c.impossible {
		panic(fmt.Sprintf("supervise: %s in state %s cannot happen", e, s))
	}
	return c.next, c.do
}
