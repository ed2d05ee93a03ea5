package reservation

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// render draws the table as doc.go shows it.
func render() string {
	var b strings.Builder
	row := func(name string, text func(Event) string) {
		b.WriteString("//\t" + pad(name, 8))
		for e := Start; e < events; e++ {
			b.WriteString(pad(text(e), 20))
		}
		b.WriteString("\n")
	}
	row("", func(e Event) string { return e.String() })
	for l := Open; l < lives; l++ {
		row(l.String(), func(e Event) string { return field(table[l][e]) })
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func field(c cell) string {
	switch {
	case errors.Is(c.refuse, errImpossible):
		return "·"
	case c.refuse != nil:
		return "✗"
	case c.noop:
		return "="
	}
	text := "→ " + c.next.String()
	for _, e := range c.effects {
		text += " " + e.String()
	}
	return text
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(1, n-len([]rune(s)))) }

// TestTheDiagramIsTheTable: the picture in doc.go comes from the table.
func TestTheDiagramIsTheTable(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), render()) {
		t.Fatalf("doc.go does not show the table; it should say:\n%s", render())
	}
}

// TestEveryCell visits every cell: an allowed one leads to a life that exists and its effects fit
// the change; a terminal life is never left.
func TestEveryCell(t *testing.T) {
	for l := Open; l < lives; l++ {
		for e := Start; e < events; e++ {
			s := Subject{Life: l, Expired: e == Expire}
			out, err := Step(s, e)
			if err != nil {
				if out.Next != l || !errors.Is(err, ErrTransition) {
					t.Errorf("%s × %s: a refusal must change nothing and wrap ErrTransition: %v %v", l, e, out, err)
				}
				continue
			}
			if l.Terminal() && out.Next != l {
				t.Errorf("%s × %s leaves a terminal life", l, e)
			}
			if slices.Contains(out.Effects, Confirm) != (out.Next == Paid && l != Paid) {
				t.Errorf("%s × %s: CONFIRM must go with becoming Paid", l, e)
			}
			if slices.Contains(out.Effects, Release) != (out.Next == Closed && l != Closed) {
				t.Errorf("%s × %s: RELEASE must go with becoming Closed", l, e)
			}
			if out.Next != l && !out.Changed {
				t.Errorf("%s × %s: a new life needs a new version", l, e)
			}
		}
	}
}

// TestEveryLifeIsReachedAndCanEnd: no dead state, no trap.
func TestEveryLifeIsReachedAndCanEnd(t *testing.T) {
	reach := func(from Life) map[Life]bool {
		seen, queue := map[Life]bool{from: true}, []Life{from}
		for len(queue) > 0 {
			l := queue[0]
			queue = queue[1:]
			for e := Start; e < events; e++ {
				if c := table[l][e]; c.refuse == nil && !c.noop && !seen[c.next] {
					seen[c.next] = true
					queue = append(queue, c.next)
				}
			}
		}
		return seen
	}
	for l := Open; l < lives; l++ {
		if !reach(Open)[l] {
			t.Errorf("%s is never reached", l)
		}
		if r := reach(l); !r[Paid] && !r[Closed] {
			t.Errorf("%s never ends", l)
		}
	}
}

// TestOneConfirmXorOneRelease is I7 over random histories: whatever happens, in whatever order and
// how often, an order is confirmed or released at most once, and never both.
func TestOneConfirmXorOneRelease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		life, confirms, releases := Open, 0, 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			s := Subject{Life: life, OpenAttempts: rapid.IntRange(0, 2).Draw(t, "open"), Expired: rapid.Bool().Draw(t, "expired")}
			out, err := Step(s, Event(rapid.IntRange(0, int(events)-1).Draw(t, "event")))
			if err != nil {
				continue
			}
			for _, e := range out.Effects {
				switch e {
				case Confirm:
					confirms++
				case Release:
					releases++
				}
			}
			life = out.Next
		}
		if confirms+releases > 1 || (confirms == 1) != (life == Paid) || (releases == 1) != (life == Closed) {
			t.Fatalf("life %s after %d confirms and %d releases", life, confirms, releases)
		}
	})
}

func TestGuards(t *testing.T) {
	for _, c := range []struct {
		name  string
		s     Subject
		event Event
		want  error
	}{
		{"start after expiry", Subject{Life: Open, Expired: true}, Start, ErrOrderClosed},
		{"cancel with an attempt", Subject{Life: Open, OpenAttempts: 1}, Cancel, ErrPaymentInProgress},
		{"expire with an attempt", Subject{Life: Open, OpenAttempts: 1, Expired: true}, Expire, ErrPaymentInProgress},
		{"expire before time", Subject{Life: Open}, Expire, errImpossible},
		{"cancel a paid one", Subject{Life: Paid}, Cancel, ErrOrderPaid},
		{"start on a closed one", Subject{Life: Closed}, Start, ErrOrderClosed},
		{"pay in review", Subject{Life: Review}, Pay, nil},
	} {
		if _, err := Step(c.s, c.event); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestLifeOfReadsItsOwnStates(t *testing.T) {
	for l := Open; l < lives; l++ {
		if got, err := LifeOf(l.States()); err != nil || got != l {
			t.Errorf("%s reads back as %s, %v", l, got, err)
		}
	}
	if _, err := LifeOf(OrderPaid, Released); err == nil {
		t.Error("a paid order with a released reservation was accepted")
	}
}
