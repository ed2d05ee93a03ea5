package fencing

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
)

// randomSides gives a journal and what the shard says of it, in every combination of
// kind, state and outcome, agreeing or not.
func randomSides(rng *rand.Rand) (Book, Proof) {
	b := Book{Cell: "cell-1", SKU: phone, Version: Version(1 + rng.IntN(2)), Granted: int64(rng.IntN(30))}
	p := Proof{Cell: "cell-1", Version: 3, Identity: "71/1", SKUs: []SKUFacts{{SKU: phone, SealID: "seal", Sealed: int64(rng.IntN(5)), Granted: 10, Confirmed: 10}}}
	for i := range rng.IntN(7) {
		a := Adjustment{
			ID: fmt.Sprint("a", i), Kind: KindGrant + AdjustmentKind(rng.IntN(2)), Version: Version(1 + rng.IntN(2)),
			Units: int64(1 + rng.IntN(5)), State: JournalProposed + JournalState(rng.IntN(4)),
		}
		if rng.IntN(2) == 0 {
			a.State = JournalDone
		}
		said := Applied{ID: a.ID, SKU: phone, Version: a.Version, Number: int64(i + 1), Kind: a.Kind, Units: a.Units, Outcome: OutcomeApplied}
		if rng.IntN(4) == 0 {
			said.Units, said.Outcome = 0, OutcomeRefused+Outcome(rng.IntN(2))
		}
		if rng.IntN(12) == 0 && said.Outcome == OutcomeApplied {
			said.Units++
		}
		if rng.IntN(6) > 0 {
			p.Applied = append(p.Applied, said)
		}
		if open := a.State == JournalProposed || a.State == JournalBooked; rng.IntN(12) > 0 && (a.Version >= b.Version || open) {
			b.Journal = append(b.Journal, a)
		}
	}
	// Half of the books come out, so that plans are compared and not only faults.
	if plan, err := PlanReclaim(b, p); errors.Is(err, ErrProofMismatch) && rng.IntN(2) == 0 {
		_ = plan
		b.Granted = 10 + p.SKUs[0].Sealed
	}
	return b, p
}

// later is the journal as a plan may find it after the proof was trimmed: answers
// came in, or somebody tampered with it.
func later(rng *rand.Rand, b Book) Book {
	b.Journal = append([]Adjustment(nil), b.Journal...)
	if len(b.Journal) == 0 {
		return b
	}
	i := rng.IntN(len(b.Journal))
	switch rng.IntN(6) {
	case 0:
		b.Journal[i].Units++
	case 1:
		b.Journal[i].State = JournalVoided
	case 2:
		b.Journal[i].State = JournalDone
	case 3:
		b.Journal = append(b.Journal[:i], b.Journal[i+1:]...)
	case 4:
		b.Journal = append(b.Journal, Adjustment{ID: "new", Kind: KindGrant, Version: b.Version, Units: 1, State: JournalDone})
	default:
	}
	return b
}

// A trimmed proof plans what the whole one does, and finds a mismatch where the
// whole one does, also when the journal changed after it was trimmed.
func TestATrimmedProofPlansTheSame(t *testing.T) {
	const seed = 20261130
	rng := rand.New(rand.NewPCG(seed, 1))
	plans, mismatches, smaller := 0, 0, 0
	for i := range 60_000 {
		b, p := randomSides(rng)
		trimmed := p.Trim(func(SKU) (Book, bool) { return b, true })
		if err := trimmed.Check(); err != nil {
			t.Fatalf("seed %d, %d: %v", seed, i, err)
		}
		if len(trimmed.Applied) < len(p.Applied) {
			smaller++
		}
		now := later(rng, b)
		want, wantErr := PlanReclaim(now, p)
		got, err := PlanReclaim(now, trimmed)
		if !reflect.DeepEqual(got, want) || errors.Is(err, ErrProofMismatch) != errors.Is(wantErr, ErrProofMismatch) || (err == nil) != (wantErr == nil) {
			t.Fatalf("seed %d, %d:\nbook %+v\nlater %+v\nproof %+v\ntrimmed %+v\nplan %+v, %v\nwant %+v, %v", seed, i, b, now, p, trimmed, got, err, want, wantErr)
		}
		if err == nil {
			plans++
		} else if errors.Is(err, ErrProofMismatch) {
			mismatches++
		}
	}
	if plans < 1_000 || mismatches < 1_000 || smaller < 1_000 {
		t.Errorf("%d plans, %d mismatches, %d proofs that became smaller: the generator is poor", plans, mismatches, smaller)
	}
}

// What the cell's whole life left behind is one line in the proof.
func TestAProofDoesNotGrowWithItsCell(t *testing.T) {
	b := bookOf(500)
	p := proofOf(400, 0, 99)
	for i := range 500 {
		id := fmt.Sprint("g", i)
		b.Journal = append(b.Journal, Adjustment{ID: id, Kind: KindGrant, Version: 1, Units: 1, State: JournalDone})
		p.Applied = append(p.Applied, Applied{ID: id, SKU: phone, Version: 1, Number: int64(i + 1), Kind: KindGrant, Units: 1, Outcome: OutcomeApplied})
	}
	b.Journal[499].State = JournalBooked
	p.Applied = p.Applied[:499]
	trimmed := p.Trim(func(SKU) (Book, bool) { return b, true })
	if len(trimmed.Applied) != 0 || len(trimmed.Settled) != 1 || trimmed.Settled[0].Count != 499 {
		t.Fatalf("%d by name, %+v", len(trimmed.Applied), trimmed.Settled)
	}
	plan, err := PlanReclaim(b, trimmed)
	if err != nil || plan.ToReserve() != 401 {
		t.Fatalf("%+v, %v", plan, err)
	}
	if untrimmed := p.Trim(func(SKU) (Book, bool) { return Book{}, false }); len(untrimmed.Applied) != 499 {
		t.Errorf("without a book %d stay", len(untrimmed.Applied))
	}
}

func TestABrokenSumIsABrokenProof(t *testing.T) {
	sum := Settled{SKU: phone, Version: 1, Count: 1}
	for name, sums := range map[string][]Settled{
		"twice":           {sum, sum},
		"no stock row":    {{SKU: SKU{"c", "other"}, Version: 1, Count: 1}},
		"nothing":         {{SKU: phone, Version: 1}},
		"later version":   {{SKU: phone, Version: 2, Count: 1}},
		"without version": {{SKU: phone, Count: 1}},
	} {
		p := proofOf(1, 0, 0)
		p.Settled = sums
		if err := p.Check(); !errors.Is(err, ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
