package fencing

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// world is a control plane and one shard, moved at random until the shard is
// fenced. It knows nothing of proofs and plans: it counts units.
type world struct {
	limit, reserve, granted, taker int64 // the book: I1 is limit = reserve + granted + taker
	journal                        []Adjustment

	available, reserved, confirmed int64 // the shard: granted is their sum
	said                           map[string]Applied
	numbers                        int64
	version                        Version
}

func (w *world) act(t *rapid.T) {
	switch rapid.SampledFrom([]string{"grant", "return", "deliver", "deliver", "sell", "pay", "release", "hear", "hear"}).Draw(t, "act") {
	case "grant":
		n := rapid.Int64Range(0, min(w.reserve, 50)).Draw(t, "units")
		w.reserve, w.granted = w.reserve-n, w.granted+n
		w.journal = append(w.journal, w.adjustment(KindGrant, n, JournalBooked))
	case "return":
		a := w.adjustment(KindReturn, rapid.Int64Range(0, 30).Draw(t, "units"), JournalProposed)
		a.Taker = rapid.SampledFrom([]string{"", "cell-2"}).Draw(t, "taker")
		w.journal = append(w.journal, a)
	case "deliver":
		w.deliver(t)
	case "sell":
		n := rapid.Int64Range(0, w.available).Draw(t, "units")
		w.available, w.reserved = w.available-n, w.reserved+n
	case "pay":
		n := rapid.Int64Range(0, w.reserved).Draw(t, "units")
		w.reserved, w.confirmed = w.reserved-n, w.confirmed+n
	case "release":
		n := rapid.Int64Range(0, w.reserved).Draw(t, "units")
		w.reserved, w.available = w.reserved-n, w.available+n
	case "hear":
		w.hear(t)
	}
}

func (w *world) adjustment(kind AdjustmentKind, units int64, state JournalState) Adjustment {
	return Adjustment{ID: fmt.Sprint("a", len(w.journal)), Kind: kind, Version: w.version, Units: units, State: state}
}

// deliver lets the shard decide the oldest adjustment that it has not heard of.
func (w *world) deliver(t *rapid.T) {
	for _, a := range w.journal {
		if _, heard := w.said[a.ID]; heard || a.State == JournalVoided {
			continue
		}
		w.numbers++
		word := Applied{ID: a.ID, SKU: phone, Version: w.version, Number: w.numbers, Kind: a.Kind, Outcome: OutcomeApplied, Units: a.Units}
		switch {
		case rapid.IntRange(0, 9).Draw(t, "given up") == 0:
			word.Outcome, word.Units = OutcomeVoided, 0
		case a.Kind == KindGrant:
			w.available += a.Units
		case a.Units <= w.available:
			w.available -= a.Units
		default:
			word.Outcome, word.Units = OutcomeRefused, 0
		}
		w.said[a.ID] = word
		return
	}
}

// hear lets the control plane learn one of the shard's words.
func (w *world) hear(t *rapid.T) {
	if len(w.journal) == 0 {
		return
	}
	a := &w.journal[rapid.IntRange(0, len(w.journal)-1).Draw(t, "which")]
	word, heard := w.said[a.ID]
	if !heard || a.State == JournalDone || a.State == JournalVoided {
		return
	}
	if word.Outcome == OutcomeApplied && a.Kind == KindReturn {
		w.move(-a.Units, a.Taker)
	}
	if word.Outcome != OutcomeApplied && a.Kind == KindGrant {
		w.move(-a.Units, "")
	}
	a.State = JournalDone
	if word.Outcome != OutcomeApplied {
		a.State = JournalVoided
	}
}

func (w *world) move(granted int64, taker string) {
	w.granted += granted
	if taker == "" {
		w.reserve -= granted
	} else {
		w.taker -= granted
	}
}

func (w *world) book() Book {
	return Book{Cell: "cell-1", SKU: phone, Version: w.version, Granted: w.granted, Journal: append([]Adjustment(nil), w.journal...)}
}

// fence seals and proves.
func (w *world) fence() Proof {
	facts := SKUFacts{
		SKU: phone, SealID: "seal", Sealed: w.available, Granted: w.reserved + w.confirmed, Reserved: w.reserved, Confirmed: w.confirmed,
	}
	p := Proof{Cell: "cell-1", Version: w.version + 1, SKUs: []SKUFacts{facts}}
	for _, a := range w.journal {
		if word, heard := w.said[a.ID]; heard {
			p.Applied = append(p.Applied, word)
		}
	}
	w.available = 0
	return p
}

// carryOut does what a book transaction does with a plan.
func (w *world) carryOut(t *rapid.T, plan ReclaimPlan) {
	for _, m := range plan.Moves {
		w.move(m.Granted, m.Taker)
		if m.Kind == MoveSeal {
			w.journal = append(w.journal, Adjustment{ID: m.AdjustmentID, Kind: KindSeal, Version: w.version, Units: m.Units, State: JournalDone})
			continue
		}
		for i := range w.journal {
			if w.journal[i].ID == m.AdjustmentID {
				w.journal[i].State = map[MoveKind]JournalState{MoveVoid: JournalVoided, MoveBook: JournalDone, MoveDone: JournalDone}[m.Kind]
			}
		}
	}
}

// Whatever was under way, a reclaim leaves the allocation at exactly what the
// cell sold, loses and makes no unit (I1, I3), and a second one has no moves.
func checkReclaimOfAnyWorld(t *rapid.T) {
	w := &world{limit: 500, reserve: 500, version: 1, said: map[string]Applied{}}
	for range rapid.IntRange(0, 60).Draw(t, "acts") {
		w.act(t)
	}
	proof := w.fence()
	plan, err := PlanReclaim(w.book(), proof)
	if err != nil {
		t.Fatalf("%v\nbook %+v\nproof %+v", err, w.book(), proof)
	}
	reserve := w.reserve
	w.carryOut(t, plan)
	if w.granted != w.reserved+w.confirmed || w.granted != plan.After {
		t.Fatalf("allocation %d, sold %d, the plan says %d", w.granted, w.reserved+w.confirmed, plan.After)
	}
	if w.reserve+w.granted+w.taker != w.limit {
		t.Fatalf("reserve %d + allocations %d and %d are not %d", w.reserve, w.granted, w.taker, w.limit)
	}
	if w.reserve-reserve != plan.ToReserve() {
		t.Fatalf("%d units came to the reserve, the plan says %d", w.reserve-reserve, plan.ToReserve())
	}
	for _, a := range w.journal {
		if a.State != JournalDone && a.State != JournalVoided {
			t.Fatalf("adjustment %s is still %s", a.ID, a.State)
		}
	}
	again, err := PlanReclaim(w.book(), proof)
	if err != nil || len(again.Moves) > 0 {
		t.Fatalf("a second reclaim moves %v, %v", again.Moves, err)
	}
	// One unit that the book or the shard does not account for is noticed.
	wrong := w.book()
	wrong.Granted++
	if _, err := PlanReclaim(wrong, proof); err == nil {
		t.Fatal("a unit too many in the book went unnoticed")
	}
}

func TestReclaimOfAnyWorld(t *testing.T) { rapid.Check(t, checkReclaimOfAnyWorld) }

func FuzzReclaim(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkReclaimOfAnyWorld)) }
