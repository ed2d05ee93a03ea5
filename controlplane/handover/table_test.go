package handover

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
)

// operationIn is an operation whose record stands for a state.
func operationIn(s State) core.Operation {
	op := core.Operation{ID: "h", Kind: core.OperationHandOver, Subject: "c", State: core.OperationPending}
	for _, e := range []Event{OrderedEvent, ClosedEvent, CarriedEvent, OpenedEvent}[:max(0, min(int(s)-1, 4))] {
		op = op.Finished(stepOf[e], "", "", time.Unix(1, 0))
	}
	switch s {
	case Turned:
		return op.End(core.OperationDone, "", time.Unix(1, 0))
	case Ended:
		return core.Operation{State: core.OperationFailed, Kind: core.OperationHandOver}
	default:
		return op
	}
}

func TestEveryCellOfTheTable(t *testing.T) {
	for _, s := range States() {
		if got := StateOf(operationIn(s)); got != s {
			t.Errorf("the record of %s reads as %s", s, got)
		}
		if (Due(s) == NoEffect) != s.Terminal() {
			t.Errorf("%s: %d is due", s, Due(s))
		}
		for _, e := range Events() {
			r := table[s][e]
			next, effect, err := Step(s, e)
			switch {
			case (r.next == 0) == (r.why == nil):
				t.Errorf("%s, %s: a state or a reason, and not both", s, e)
			case r.why != nil && (!errors.Is(err, ErrTransition) || !errors.Is(err, r.why) || next != s || effect != NoEffect):
				t.Errorf("%s, %s: %s, %d, %v", s, e, next, effect, err)
			case r.why == nil && (err != nil || next != r.next || effect != Due(next)):
				t.Errorf("%s, %s: %s, %d, %v", s, e, next, effect, err)
			case r.why == nil && next != s && next != Ended && next != s+1:
				t.Errorf("%s, %s: %s leaves a step out", s, e, next)
			}
		}
	}
	for _, strange := range []struct {
		s State
		e Event
	}{{0, Abort}, {states, Abort}, {Asked, 0}, {Asked, events}} {
		if _, _, err := Step(strange.s, strange.e); !errors.Is(err, ErrImpossible) {
			t.Errorf("%v: %v", strange, err)
		}
	}
}

// What an operator may abort is the table's word: until the route says MOVING.
func TestAbortIsWhatTheTableSays(t *testing.T) {
	for _, s := range States() {
		_, _, want := Step(s, Abort)
		got := operationIn(s).MayAbort(core.Approval{}, false, "me", true)
		if (got == nil) != (want == nil) {
			t.Errorf("%s: the operation says %v, the table %v", s, got, want)
		}
	}
}

// Every state is reached, the effects lead to the end, and the diagram of doc.go has
// every move of the table.
func TestTheDiagramIsTheTables(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	line := ""
	for s := Asked; s < Turned; s++ {
		line += s.String() + " ──" + Event(s).String() + "──▶ "
		if next, _, err := Step(s, Event(s)); err != nil || next != s+1 {
			t.Errorf("%s goes to %s, %v", s, next, err)
		}
	}
	if line += Turned.String(); !strings.Contains(string(doc), line) {
		t.Errorf("doc.go lacks %q", line)
	}
	for _, s := range States() {
		if next, _, err := Step(s, GiverLost); (err == nil && next == Ended) != (s == Asked || s == Moving || s == Closed) {
			t.Errorf("a lost giver in %s: %s, %v; doc.go says otherwise", s, next, err)
		}
	}
}
