package core

// Effect is what a shard's answer asks of the book.
type Effect uint8

// The effects.
const (
	EffectNone     Effect = iota + 1 // the book stands as it is
	EffectGiveBack                   // the cell's allocation gives the units to the reserve
)

// settleRow is what one answer makes of an open adjustment.
type settleRow struct {
	state   JournalState
	outcome Outcome
	effect  Effect
}

// settleTable: rows are the open adjustments there can be, columns the shard's
// answers. A grant's units left the reserve when it was booked, so a shard that
// does not take them makes the book give them back; a return's units move only
// when the shard has let go of them. Whatever the answer, the number is used up.
//
//	                 APPLIED            REFUSED             VOIDED
//	GRANT  BOOKED    DONE               VOIDED, give back   VOIDED, give back
//	RETURN PROPOSED  DONE, give back    DONE with 0 units   VOIDED
//	LIMIT  BOOKED    DONE               -                   -
//
// A limit change has no cell: its answer is that some shard has recorded it.
var settleTable = map[AdjustmentKind]map[JournalState]map[Outcome]settleRow{
	KindGrant: {StateBooked: {
		OutcomeApplied: {StateDone, OutcomeApplied, EffectNone},
		OutcomeRefused: {StateVoided, OutcomeRefused, EffectGiveBack},
		OutcomeVoided:  {StateVoided, OutcomeVoided, EffectGiveBack},
	}},
	KindReturn: {StateProposed: {
		OutcomeApplied: {StateDone, OutcomeApplied, EffectGiveBack},
		OutcomeRefused: {StateDone, OutcomeRefused, EffectNone},
		OutcomeVoided:  {StateVoided, OutcomeVoided, EffectNone},
	}},
	KindLimit: {StateBooked: {
		OutcomeApplied: {StateDone, OutcomeApplied, EffectNone},
	}},
}

// Settle gives the adjustment after the shard's answer, and what the book has to
// do in the same transaction. The same answer again changes nothing
// (EffectNone); another one is ErrContradiction.
func (a Adjustment) Settle(answer Outcome) (Adjustment, Effect, error) {
	if !a.Open() {
		if a.Outcome == answer {
			return a, EffectNone, nil
		}
		return Adjustment{}, 0, numbered(ErrContradiction, "adjustment_id", a.ID, "outcome", a.Outcome, "answer", answer)
	}
	row, ok := settleTable[a.Kind][a.State][answer]
	if !ok {
		return Adjustment{}, 0, broken("adjustment %s: no rule for %s in %s answered %s", a.ID, a.Kind, a.State, answer)
	}
	a.State, a.Outcome = row.state, row.outcome
	return a, row.effect, nil
}

// Apply carries out an effect of an adjustment on its book.
func (b Book) Apply(a Adjustment, e Effect) (Book, error) {
	if e != EffectGiveBack {
		return b, nil
	}
	if a.Kind == KindGrant {
		return b.VoidGrant(a.Cell, a.Units)
	}
	return b.BookReturn(a.Cell, a.Units)
}
