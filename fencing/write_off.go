package fencing

import "fmt"

// WriteOffID gives the adjustment id under which the units of one SKU of a lost
// cell are written off: the same one for every replica and retry.
func WriteOffID(cell string, version Version, sku SKU) string {
	return fmt.Sprintf("writeoff.%s.%s.%s.%s", cell, version, sku.Campaign, sku.SKU)
}

// PlanWriteOff names the moves for one SKU of a cell whose shard is lost. The
// whole allocation, unapplied grants included, stays where it is, marked: nobody
// knows whether it was sold, so none of it is ever given to anyone (G-02).
// Intents that moved no book end VOIDED, those that did end DONE, their units
// being among the written-off. Planned again, it has no moves.
//
// version is the cell's fence version of the write-off. Errors: ErrAttestation,
// ErrBook, ErrStaleProof where the allocation has moved on under a later version.
func PlanWriteOff(b Book, version Version, a Attestation) (ReclaimPlan, error) {
	if err := a.Check(); err != nil {
		return ReclaimPlan{}, err
	}
	if err := b.Check(); err != nil {
		return ReclaimPlan{}, err
	}
	if b.Version > version {
		return ReclaimPlan{}, fmt.Errorf("cell %.64q, %s: allocation at version %s, write-off at %s: %w", b.Cell, b.SKU, b.Version, version, ErrStaleProof)
	}
	plan := ReclaimPlan{
		Cell: b.Cell, SKU: b.SKU, Version: version, Evidence: AttestedLoss,
		Before: b.Granted, After: b.Granted, Frozen: b.Frozen,
	}
	for _, adjustment := range b.Journal {
		switch adjustment.State {
		case JournalProposed:
			plan.Moves = append(plan.Moves, Move{Kind: MoveVoid, AdjustmentID: adjustment.ID, Units: adjustment.Units})
		case JournalBooked:
			plan.Moves = append(plan.Moves, Move{Kind: MoveDone, AdjustmentID: adjustment.ID, Units: adjustment.Units})
		default: // the others have no case of their own: what follows the switch holds
		}
	}
	if id := WriteOffID(b.Cell, version, b.SKU); !b.knows(id) {
		plan.Moves = append(plan.Moves, Move{Kind: MoveWriteOff, AdjustmentID: id, Units: b.Granted})
	}
	if err := plan.Check(); err != nil {
		return ReclaimPlan{}, err
	}
	return plan, nil
}
