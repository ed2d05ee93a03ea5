package supervise

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// grid renders the table as doc.go shows it.
func grid() string {
	var b strings.Builder
	fmt.Fprintf(&b, "//\t%-10s", "")
	for e := range event(events) {
		fmt.Fprintf(&b, "%-10s", e)
	}
	b.WriteString("\n")
	for s := range State(states) {
		fmt.Fprintf(&b, "//\t%-10s", s)
		for e := range event(events) {
			fmt.Fprintf(&b, "%-10s", word(s, table[s][e]))
		}
		b.WriteString("\n")
	}
	lines := strings.Split(b.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

func word(s State, c cell) string {
	switch {
	case c.impossible:
		return "x"
	case c.do != fxNone:
		return c.next.String() + "*"
	case c.next == s:
		return "-"
	default:
		return c.next.String()
	}
}

func TestDocShowsTheTable(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), grid()) {
		t.Errorf("doc.go does not show the table as it is:\n%s", grid())
	}
}

// world is the plain twin, in three questions: does a child exist and was it told
// to end; does somebody want one; does a back-off run?
type world struct{ alive, told, wanted, backingOff bool }

func (w world) agrees(s State) bool {
	switch s {
	case Starting, Ready:
		return w.alive && !w.told
	case Ending:
		return w.alive && w.told && !w.wanted
	case Cycling:
		return w.alive && w.told && w.wanted
	case Waiting:
		return !w.alive && w.backingOff
	default: // Down, Held
		return !w.alive && !w.backingOff
	}
}

func (w world) after(e event) world {
	switch e {
	case evStart:
		w.wanted, w.backingOff, w.alive = true, false, true
	case evHold:
		w.wanted, w.backingOff, w.told = false, false, w.alive
	case evDied, evEnded:
		w.backingOff = !w.told && e == evDied
		w.alive, w.told = w.told && w.wanted, false
	case evRetry:
		w.alive, w.backingOff = w.alive || w.backingOff, false
	case evReady:
	}
	return w
}

func TestTheTableAgreesWithAPlainTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state, w := Down, world{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			var can []event
			for e := range event(events) {
				if !table[state][e].impossible {
					can = append(can, e)
				}
			}
			e := rapid.SampledFrom(can).Draw(t, "event")
			next, do := step(state, e)
			before := w
			w = w.after(e)
			if !w.agrees(next) {
				t.Fatalf("%s in %s gives %s; the twin says %+v", e, state, next, w)
			}
			// A child is born exactly when the twin has one that it had not, or
			// had and lost in the same step.
			born := w.alive && (!before.alive || e == evDied || e == evEnded)
			if (do == fxSpawn) != born {
				t.Fatalf("%s in %s: effect %d, born %v", e, state, do, born)
			}
			state = next
		}
	})
}

func TestWhatCannotHappenPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a process that does not exist ended, and nobody minded")
		}
	}()
	step(Down, evEnded)
}
