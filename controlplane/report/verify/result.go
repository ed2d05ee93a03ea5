package verify

import "fmt"

// Invariant is "I1" to "I10" (docs/INVARIANTS.md).
type Invariant string

// The invariants.
const (
	I1  Invariant = "I1"
	I2  Invariant = "I2"
	I3  Invariant = "I3"
	I4  Invariant = "I4"
	I5  Invariant = "I5"
	I6  Invariant = "I6"
	I7  Invariant = "I7"
	I8  Invariant = "I8"
	I9  Invariant = "I9"
	I10 Invariant = "I10"
)

// All lists them in order.
var All = []Invariant{I1, I2, I3, I4, I5, I6, I7, I8, I9, I10}

// Breach names what breaks an invariant. Cell is empty where several are concerned.
type Breach struct {
	Invariant           Invariant
	Campaign, SKU, Cell string
	Detail              string
}

// Unchecked names what was not reached, and why.
type Unchecked struct {
	Invariant Invariant
	What, Why string
}

// Verdict of one invariant.
type Verdict string

// The verdicts (contract, section 5): UNCHECKED when a store was not reached, SKIPPED when the
// question makes no sense yet.
const (
	OK            Verdict = "OK"
	Broken        Verdict = "BROKEN"
	VerdictNoWord Verdict = "UNCHECKED"
	Skipped       Verdict = "SKIPPED"
)

// Check is one invariant's verdict with what was compared.
type Check struct {
	Invariant Invariant
	Verdict   Verdict
	Detail    string
}

// maxListed bounds the breaches, and the unchecked things, of one invariant that a result
// lists; all are counted. One that is broken a million times hides no other.
const maxListed = 100

// Result of one verification.
type Result struct {
	Revision  int64
	Checks    []Check
	Breaches  []Breach
	Unchecked []Unchecked
}

// Holds tells that nothing is broken; something may be unchecked.
func (r Result) Holds() bool { return len(r.Breaches) == 0 }

// tally gathers a result while it is made.
type tally struct {
	breaches  []Breach
	unchecked []Unchecked
	broken    map[Invariant]int
	missed    map[Invariant]int
	compared  map[Invariant]string
	skipped   map[Invariant]string
}

func newTally() *tally {
	return &tally{broken: map[Invariant]int{}, missed: map[Invariant]int{}, compared: map[Invariant]string{}, skipped: map[Invariant]string{}}
}

func (t *tally) breach(i Invariant, campaign, sku, cell, format string, args ...any) {
	if t.broken[i]++; t.broken[i] <= maxListed {
		t.breaches = append(t.breaches, Breach{Invariant: i, Campaign: campaign, SKU: sku, Cell: cell, Detail: fmt.Sprintf(format, args...)})
	}
}

func (t *tally) miss(what, why string, invariants ...Invariant) {
	for _, i := range invariants {
		if t.missed[i]++; t.missed[i] <= maxListed {
			t.unchecked = append(t.unchecked, Unchecked{Invariant: i, What: what, Why: why})
		}
	}
}

func (t *tally) says(i Invariant, format string, args ...any) {
	t.compared[i] = fmt.Sprintf(format, args...)
}

func (t *tally) skip(i Invariant, why string) { t.skipped[i] = why }

// result closes the tally: broken beats unchecked beats skipped beats OK.
func (t *tally) result(revision int64) Result {
	r := Result{Revision: revision, Breaches: t.breaches, Unchecked: t.unchecked}
	for _, i := range All {
		c := Check{Invariant: i, Verdict: OK, Detail: t.compared[i]}
		switch {
		case t.broken[i] > 0:
			c.Verdict, c.Detail = Broken, count(t.broken[i], "breaches")
		case t.missed[i] > 0:
			c.Verdict, c.Detail = VerdictNoWord, count(t.missed[i], "things were not reached")
		case t.skipped[i] != "":
			c.Verdict, c.Detail = Skipped, t.skipped[i]
		}
		r.Checks = append(r.Checks, c)
	}
	return r
}

func count(n int, what string) string {
	if n > maxListed {
		return fmt.Sprintf("%d %s, the first %d are listed", n, what, maxListed)
	}
	return fmt.Sprintf("%d %s", n, what)
}
