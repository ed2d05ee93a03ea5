package fencing

import "fmt"

// Reclaim moves named things only: it goes through the journal, asks the shard
// about each id, and this table says what follows. Nothing is inferred from a
// difference of totals; the totals only confirm the result.

// verdict is what follows for one adjustment.
type verdict struct {
	move    MoveKind // 0: nothing to do
	granted int64    // × units: change of the allocation
	why     string   // a mismatch, in words; move is 0
}

var (
	settled = verdict{}                            // both sides know it, or both know nothing came of it
	drop    = verdict{move: MoveVoid}              // an intent that came to nothing
	back    = verdict{move: MoveVoid, granted: -1} // the book granted what never arrived
	confirm = verdict{move: MoveDone}              // the book was right
	catchUp = verdict{move: MoveBook, granted: +1} // the shard has what the book has not granted yet
	giveUp  = verdict{move: MoveBook, granted: -1} // the shard gave back what the book still counts
	forgot  = verdict{why: "the journal says DONE, the shard never heard of it"}
	early   = verdict{why: "the book moved before the shard gave the units back"}
	undead  = verdict{why: "the journal says VOIDED, the shard applied it"}
)

// verdicts is indexed by kind, the journal's state and the shard's word.
//
// A grant moves the book first and the shard second; a return the other way
// round. So a grant that is BOOKED and unknown to the shard is voided, and a
// return that the shard applied is booked, under whichever version it was.
var verdicts = map[AdjustmentKind][journalStates][outcomes]verdict{
	KindGrant: {
		JournalProposed: {OutcomeUnknown: drop, OutcomeApplied: catchUp, OutcomeRefused: drop, OutcomeVoided: drop},
		JournalBooked:   {OutcomeUnknown: back, OutcomeApplied: confirm, OutcomeRefused: back, OutcomeVoided: back},
		JournalDone:     {OutcomeUnknown: forgot, OutcomeApplied: settled, OutcomeRefused: settled, OutcomeVoided: settled},
		JournalVoided:   {OutcomeUnknown: settled, OutcomeApplied: undead, OutcomeRefused: settled, OutcomeVoided: settled},
	},
	KindReturn: {
		JournalProposed: {OutcomeUnknown: drop, OutcomeApplied: giveUp, OutcomeRefused: drop, OutcomeVoided: drop},
		JournalBooked:   {OutcomeUnknown: early, OutcomeApplied: confirm, OutcomeRefused: early, OutcomeVoided: early},
		JournalDone:     {OutcomeUnknown: forgot, OutcomeApplied: settled, OutcomeRefused: settled, OutcomeVoided: settled},
		JournalVoided:   {OutcomeUnknown: settled, OutcomeApplied: undead, OutcomeRefused: settled, OutcomeVoided: settled},
	},
}

// PlanReclaim names the moves that bring one SKU's book to what the proof says.
// It is pure and idempotent by ids: planned again after its transaction, it
// finds every adjustment settled and the seal booked, and has no moves.
//
// Errors: ErrProof, ErrBook; ErrStaleProof where the allocation was moved under
// the proof's version or a later one by anything but this reclaim;
// ErrProofMismatch, with adjustment or numbers, where the three do not fit. An
// error means: move nothing, keep the SKU frozen.
func PlanReclaim(b Book, p Proof) (ReclaimPlan, error) {
	if err := p.Check(); err != nil {
		return ReclaimPlan{}, err
	}
	if err := b.Check(); err != nil {
		return ReclaimPlan{}, err
	}
	facts, _ := p.Facts(b.SKU)
	plan := ReclaimPlan{
		Cell: b.Cell, SKU: b.SKU, Version: p.Version, Evidence: StoreFence,
		Before: b.Granted, After: b.Granted, Sold: facts.Reserved + facts.Confirmed, Frozen: b.Frozen,
	}
	if b.Cell != p.Cell {
		return ReclaimPlan{}, plan.mismatch("the proof is of cell %.64q", p.Cell)
	}
	if b.Version > p.Version {
		return ReclaimPlan{}, fmt.Errorf("cell %.64q, %s: allocation at version %s, proof at %s: %w", b.Cell, b.SKU, b.Version, p.Version, ErrStaleProof)
	}
	if err := plan.settle(b, p); err != nil {
		return ReclaimPlan{}, err
	}
	plan.seal(b, facts)
	if err := plan.Check(); err != nil {
		return ReclaimPlan{}, err
	}
	return plan, nil
}

// settle adds the moves of the journal's adjustments.
func (p *ReclaimPlan) settle(b Book, proof Proof) error {
	words := map[string]Applied{}
	for _, a := range proof.Applied {
		if a.SKU == b.SKU {
			words[a.ID] = a
		}
	}
	sum, trimmed := proof.settled(b.SKU)
	var agreed []Adjustment
	for _, a := range b.Journal {
		if a.Kind != KindGrant && a.Kind != KindReturn {
			continue // of a seal the id is all that counts: see seal
		}
		if a.Version >= proof.Version {
			return fmt.Errorf("adjustment %.64q of cell %.64q, %s, is under version %s, proof at %s: %w",
				a.ID, b.Cell, b.SKU, a.Version, proof.Version, ErrStaleProof)
		}
		said, mentioned := words[a.ID]
		delete(words, a.ID)
		if trimmed && !mentioned && a.State == JournalDone {
			agreed = append(agreed, a) // as a whole: see below
			continue
		}
		if said.Outcome == OutcomeApplied && (said.Kind != a.Kind || said.Units != a.Units) {
			return p.mismatch("adjustment %.64q is a %s of %d in the journal, a %s of %d in the shard", a.ID, a.Kind, a.Units, said.Kind, said.Units)
		}
		if err := p.add(a, verdicts[a.Kind][a.State][said.Outcome]); err != nil {
			return err
		}
	}
	// An allocation that has moved to the proof's own version counts nothing from
	// before: its journal begins there.
	if found := sumUp(b.SKU, b.Version, agreed); trimmed && b.Version < proof.Version && found != sum {
		return p.mismatch("the journal says DONE of %d adjustments since version %s, the shard applied %d since version %s, and they are not the same",
			found.Count, found.Version, sum.Count, sum.Version)
	}
	for _, a := range proof.Applied { // in the proof's order, so that the same one is named every time
		if _, unexplained := words[a.ID]; unexplained && a.Version >= b.Version {
			return p.mismatch("the shard decided adjustment %.64q, which the journal does not know", a.ID)
		}
	}
	return nil
}

func (p *ReclaimPlan) add(a Adjustment, v verdict) error {
	if v.why != "" {
		return p.mismatch("%s %.64q of %d units: %s", a.Kind, a.ID, a.Units, v.why)
	}
	if v.move == 0 {
		return nil
	}
	m := Move{Kind: v.move, AdjustmentID: a.ID, Units: a.Units, Granted: v.granted * a.Units}
	if v == giveUp {
		m.Taker = a.Taker
	}
	p.Moves = append(p.Moves, m)
	p.After += m.Granted
	return nil
}

// seal adds the move of the sealed units, unless the journal has it already.
func (p *ReclaimPlan) seal(b Book, facts SKUFacts) {
	if facts.SealID == "" {
		return
	}
	if b.knows(facts.SealID) {
		return
	}
	p.Moves = append(p.Moves, Move{Kind: MoveSeal, AdjustmentID: facts.SealID, Units: facts.Sealed, Granted: -facts.Sealed})
	p.After -= facts.Sealed
}
