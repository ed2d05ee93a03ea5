package gate

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func rules() Rules {
	return Rules{MaxWait: 2 * time.Second, MinRate: 100, Capacity: 10_000, PauseAfter: 30 * time.Second, MaxFailure: 0.2}
}

// healthy is a look at which nothing stands against an open gate.
func healthy() Inputs { return Inputs{Stock: 100} }

// looks that mean each event for a gate that is neither full nor whole unless said so.
func lookFor(e Event, g Gate) Inputs {
	in := healthy()
	switch e {
	case Slow:
		in.OldestAge = time.Second
	case Full:
		in.Outstanding = g.Bound
	case Empty:
		in.Stock = 0
	case Halt:
		in.Halt = "kafka is down"
	case Final:
		in.Final = true
	default: // Calm and Ramped differ in the step only
	}
	return in
}

// Every cell of the table is visited by a real look, and does what it says.
func TestEveryCell(t *testing.T) {
	for _, s := range States() {
		for _, e := range Events() {
			g := Gate{State: s, Step: 2, Bound: 50}
			switch {
			case s == Open, e == Ramped:
				g.Step = Steps
			case s == Paused:
				g.Step = 0
			}
			if e == Calm && g.Step == Steps {
				g.Step = Steps - 1
			}
			want := table[s][e]
			got, err := Advance(g, rules(), lookFor(e, g))
			switch want.kind {
			case never:
				if !errors.Is(err, ErrTransition) {
					t.Errorf("%s × %s: %v, want ErrTransition", s, e, err)
				}
			case same:
				if err != nil || got.State != s {
					t.Errorf("%s × %s: %s %v, want to stay", s, e, got.State, err)
				}
			default:
				if err != nil || got.State != want.next {
					t.Errorf("%s × %s: %s %v, want %s", s, e, got.State, err, want.next)
				}
			}
		}
	}
}

func TestEveryStateIsReachedAndCanEnd(t *testing.T) {
	reach := func(from State) map[State]bool {
		seen, todo := map[State]bool{from: true}, []State{from}
		for len(todo) > 0 {
			s := todo[0]
			todo = todo[1:]
			for _, c := range table[s] {
				if c.kind == moves && !seen[c.next] {
					seen[c.next], todo = true, append(todo, c.next)
				}
			}
		}
		return seen
	}
	for _, s := range States() {
		if !reach(Throttled)[s] {
			t.Errorf("%s cannot be reached from the start", s)
		}
		if !reach(s)[FinalSoldOut] {
			t.Errorf("%s has no way to the end", s)
		}
		if s.Terminal() != (len(reach(s)) == 1) {
			t.Errorf("%s: Terminal %t", s, s.Terminal())
		}
	}
}

func TestTableIsDrawn(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	draw := func(head string, cells []string) string {
		line := fmt.Sprintf("//\t%-15s", head)
		for _, c := range cells {
			line += fmt.Sprintf("%-15s", c)
		}
		return strings.TrimRight(line, " ")
	}
	lines := []string{draw("", eventNames[:])}
	for _, s := range States() {
		var cells []string
		for _, c := range table[s] {
			switch c.kind {
			case same:
				cells = append(cells, "stays")
			case never:
				cells = append(cells, "impossible")
			default:
				cells = append(cells, c.next.String())
			}
		}
		lines = append(lines, draw(s.String(), cells))
	}
	if want := strings.Join(lines, "\n"); !strings.Contains(string(doc), want) {
		t.Errorf("doc.go does not show the table; put this there:\n%s", want)
	}
}

// twin is the same machine in plain words: the state follows from the gravest thing
// seen; only between THROTTLED and OPEN does the past count.
func twin(g Gate, r Rules, in Inputs) State {
	full := g.Bound
	if g.State == QueueFull {
		full = max(g.Bound-g.Bound/10, 1)
	}
	slow := in.OldestAge >= r.slowAge() || in.FailureRate > r.MaxFailure || in.LockWait >= r.slowAge()
	switch {
	case g.State == FinalSoldOut || in.Final:
		return FinalSoldOut
	case in.Halt != "" || in.OldestAge >= r.PauseAfter:
		return Paused
	case in.Stock <= 0:
		return TempSoldOut
	case in.Outstanding >= full:
		return QueueFull
	case slow || g.Step < Steps:
		return Throttled
	default:
		return Open
	}
}

func TestMachineAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rules()
		g := New(r)
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			in := Inputs{
				Final:       rapid.IntRange(0, 40).Draw(t, "final") == 0,
				Stock:       rapid.Int64Range(-2, 3).Draw(t, "stock"),
				Outstanding: rapid.Int64Range(0, 300).Draw(t, "outstanding"),
				OldestAge:   time.Duration(rapid.SampledFrom([]int{0, 0, 0, 999, 1000, 29_999, 30_000}).Draw(t, "age")) * time.Millisecond,
				Rate:        rapid.Float64Range(0, 20_000).Draw(t, "rate"),
				FailureRate: rapid.SampledFrom([]float64{0, 0, 0.2, 0.21}).Draw(t, "failures"),
			}
			if rapid.IntRange(0, 9).Draw(t, "halt") == 0 {
				in.Halt = "down"
			}
			want := twin(g, r, in)
			after, err := Advance(g, r, in)
			if err != nil {
				t.Fatalf("%+v with %+v: %v", g, in, err)
			}
			if after.State != want {
				t.Fatalf("%+v with %+v: %s, the twin says %s", g, in, after.State, want)
			}
			if after.Bound < 1 || after.Bound > r.Capacity {
				t.Fatalf("bound %d", after.Bound)
			}
			g = after
		}
	})
}

// TestRecoveryRampsUpInSteps is fault 8: what comes back is let in step by step, not as a second flood.
func TestRecoveryRampsUpInSteps(t *testing.T) {
	r := rules()
	g, err := Advance(Gate{State: Open, Step: Steps, Bound: 200}, r, Inputs{Halt: "redis is down", Stock: 5})
	if err != nil || g.State != Paused {
		t.Fatalf("%+v %v", g, err)
	}
	var bounds []int64
	for g.State != Open {
		if g, err = Advance(g, r, healthy()); err != nil || len(bounds) > 10 {
			t.Fatalf("%+v %v", g, err)
		}
		bounds = append(bounds, g.Bound)
	}
	if want := "[25 50 100 200 200]"; fmt.Sprint(bounds) != want {
		t.Fatalf("bounds %v, want %s", bounds, want)
	}
}

// A gate that only its own low bound keeps full must not stay low for ever.
func TestFullGateStillRises(t *testing.T) {
	r, g := rules(), New(rules())
	for range 2 * Steps {
		var err error
		if g, err = Advance(g, r, Inputs{Stock: 5, Outstanding: g.Bound}); err != nil {
			t.Fatal(err)
		}
	}
	if g.State != QueueFull || g.Bound != 200 {
		t.Fatalf("%+v, want QUEUE_FULL at 200", g)
	}
}

func TestBoundIsTheLeast(t *testing.T) {
	r := rules()
	for _, c := range []struct {
		rate float64
		cap  int64
		want int64
	}{
		{0, 0, 200},        // the floor
		{99, 0, 200},       // below the floor
		{5000, 0, 10_000},  // consumption × wait
		{5000, 3000, 3000}, // what can be settled with a failure domain down
		{0.001, 1, 1},      // never nothing
		{1e9, 10_000, 10_000},
	} {
		r.Capacity = c.cap
		if got := bound(r, c.rate, Steps); got != c.want {
			t.Errorf("rate %v, capacity %d: %d, want %d", c.rate, c.cap, got, c.want)
		}
	}
}

func TestPaymentWindowTightensTheAge(t *testing.T) {
	r := rules()
	r.PaymentWindow = 4 * time.Second
	g, err := Advance(Gate{State: Open, Step: Steps, Bound: 200}, r, Inputs{Stock: 5, OldestAge: 500 * time.Millisecond})
	if err != nil || g.State != Throttled {
		t.Fatalf("%+v %v: half a second of four is too much", g, err)
	}
}

func TestMeterCountsTimeUnderBacklogOnly(t *testing.T) {
	var m Meter
	steps := []struct {
		s    Sample
		want float64
	}{
		{Sample{1000, "1.1", 0, 10}, 0},      // the first look measures nothing
		{Sample{2000, "1.1", 100, 10}, 100},  // a second under backlog
		{Sample{3000, "1.1", 100, 0}, 100},   // idle: not a slow second
		{Sample{9000, "1.1", 100, 5}, 100},   // it was idle before
		{Sample{10000, "1.1", 300, 5}, 130},  // 0.3 of the way to 200
		{Sample{11000, "1.2", 5000, 5}, 130}, // another life counts anew
		{Sample{10500, "1.2", 5001, 5}, 130}, // Redis time went back
	}
	for i, c := range steps {
		if got := m.Observe(c.s); got < c.want-0.01 || got > c.want+0.01 {
			t.Fatalf("step %d: rate %v, want %v", i, got, c.want)
		}
	}
}

// Each of the inputs that say "slow" throttles by itself just when it reaches its mark, and not before.
func TestEachSlownessThrottles(t *testing.T) {
	r := rules()
	whole := Gate{State: Open, Step: Steps, Bound: 200}
	for name, row := range map[string]struct{ before, at func(*Inputs) }{
		"age":      {func(in *Inputs) { in.OldestAge = time.Second - 1 }, func(in *Inputs) { in.OldestAge = time.Second }},
		"failures": {func(in *Inputs) { in.FailureRate = r.MaxFailure }, func(in *Inputs) { in.FailureRate = r.MaxFailure + 0.01 }},
		"locks":    {func(in *Inputs) { in.LockWait = time.Second - 1 }, func(in *Inputs) { in.LockWait = time.Second }},
	} {
		for i, change := range []func(*Inputs){row.before, row.at} {
			in := healthy()
			change(&in)
			g, err := Advance(whole, r, in)
			if err != nil || (g.State == Throttled) != (i == 1) || (g.Bound < whole.Bound) != (i == 1) {
				t.Errorf("%s, at its mark %t: %+v %v", name, i == 1, g, err)
			}
		}
	}
}
