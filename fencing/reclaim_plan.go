package fencing

import (
	"errors"
	"fmt"
	"slices"
)

// Book is the control plane's side of one (cell, SKU): its allocation, and what
// the journal says about the adjustments that made it.
type Book struct {
	Cell string
	SKU  SKU
	// Version is the cell's fence version of the allocation's last step.
	Version Version
	// Granted is the allocation.
	Granted int64
	// Frozen is the part of Granted that an earlier fence sealed and that was never
	// booked back (a withheld SKU); it stays.
	Frozen int64
	// Journal is every adjustment of this (cell, SKU) under Version, and those under
	// lower versions that are not DONE or VOIDED.
	Journal []Adjustment
}

// Adjustment is one record of the journal.
type Adjustment struct {
	ID      string
	Kind    AdjustmentKind
	Version Version
	Units   int64
	State   JournalState
	// Taker is the cell that a return's units go to, empty for the reserve.
	Taker string
}

// MoveKind is one named step of a reclaim.
type MoveKind uint8

// The moves. The zero value is none of them.
const (
	MoveVoid     MoveKind = iota + 1 // journal VOIDED; what the book moved for it, moves back
	MoveBook                         // journal DONE; the book moves for what the shard applied
	MoveDone                         // journal DONE; the book had moved already
	MoveSeal                         // the sealed units leave the allocation
	MoveWriteOff                     // the units stay in the allocation, marked for ever
)

var moveNames = [...]string{MoveVoid: "VOID", MoveBook: "BOOK", MoveDone: "DONE", MoveSeal: "SEAL", MoveWriteOff: "WRITE_OFF"}

// String gives the move as a word for logs and previews.
func (k MoveKind) String() string { return word("MoveKind", moveNames[:], int(k)) }

// Move is one named step. Every unit that a reclaim moves is moved under the id
// of an adjustment; there is no difference of totals anywhere.
type Move struct {
	Kind         MoveKind
	AdjustmentID string
	// Units is what the move is about: all of the adjustment's, also where the
	// book does not change.
	Units int64
	// Granted is the change of the cell's allocation; the other side changes by
	// the opposite: Taker's allocation, or the reserve where Taker is empty.
	Granted int64
	Taker   string
}

// ReclaimPlan is what one book transaction does for one SKU of a fenced cell.
type ReclaimPlan struct {
	Cell     string
	SKU      SKU
	Version  Version // of the proof
	Evidence Evidence
	// Moves are in the order of the journal, the seal last.
	Moves []Move
	// Before and After are the allocation.
	Before, After int64
	// Sold is what the proof says is reserved or confirmed, and Frozen as in Book:
	// After must be their sum.
	Sold, Frozen int64
}

// ErrProofMismatch says that book, journal and shard do not fit together. The
// SKU stays frozen and nothing is moved; reconcile or a recovery must explain it.
var ErrProofMismatch = errors.New("proof and book do not match")

// ErrStaleProof says that the allocation has moved on under the version of the
// proof or a later one.
var ErrStaleProof = errors.New("the proof is older than the allocation")

// ErrBook says that a book's facts contradict themselves.
var ErrBook = errors.New("the book's facts are broken")

// ToReserve gives the units that come to the reserve: what can be given to
// others. It is negative where the book was behind the shard.
func (p ReclaimPlan) ToReserve() int64 {
	var units int64
	for _, m := range p.Moves {
		if m.Taker == "" {
			units -= m.Granted
		}
	}
	return units
}

// Check verifies the plan's promise: the moves lead from Before to After, After
// is exactly what the cell sold and what stays frozen, no id moves twice, and a
// write-off moves nothing. ErrProofMismatch names the numbers.
func (p ReclaimPlan) Check() error {
	sum := p.Before
	ids := map[string]bool{}
	for _, m := range p.Moves {
		if m.AdjustmentID == "" || ids[m.AdjustmentID] {
			return p.mismatch("adjustment %.64q is unnamed or moves twice", m.AdjustmentID)
		}
		ids[m.AdjustmentID] = true
		if p.Evidence == AttestedLoss && m.Granted != 0 {
			return p.mismatch("a write-off moves %d units of %.64q", m.Granted, m.AdjustmentID)
		}
		sum += m.Granted
	}
	switch {
	case sum != p.After:
		return p.mismatch("the moves lead from %d to %d, not to %d", p.Before, sum, p.After)
	case p.Evidence == StoreFence && p.After != p.Sold+p.Frozen:
		return p.mismatch("allocation %d becomes %d, but the shard holds %d reserved or confirmed, and %d are frozen",
			p.Before, p.After, p.Sold, p.Frozen)
	case p.Evidence != StoreFence && p.Evidence != AttestedLoss:
		return p.mismatch("evidence %s", p.Evidence)
	}
	return nil
}

func (p ReclaimPlan) mismatch(format string, args ...any) error {
	return fmt.Errorf("cell %.64q, %s, fence version %s: %s: %w", p.Cell, p.SKU, p.Version, fmt.Sprintf(format, args...), ErrProofMismatch)
}

func (b Book) knows(id string) bool {
	return slices.ContainsFunc(b.Journal, func(a Adjustment) bool { return a.ID == id })
}

// Check verifies that the facts can be planned on. ErrBook names what does not
// hold.
func (b Book) Check() error {
	broken := func(format string, args ...any) error {
		return fmt.Errorf("cell %.64q, %s: %s: %w", b.Cell, b.SKU, fmt.Sprintf(format, args...), ErrBook)
	}
	switch {
	case b.Cell == "" || b.SKU.Campaign == "" || b.SKU.SKU == "":
		return broken("unnamed")
	case b.Version < 1 || b.Version > MaxVersion:
		return broken("fence version %s", b.Version)
	case b.Granted < 0 || b.Granted > MaxUnits || b.Frozen < 0 || b.Frozen > b.Granted:
		return broken("granted %d, frozen %d", b.Granted, b.Frozen)
	}
	ids := map[string]bool{}
	for _, a := range b.Journal {
		switch {
		case a.ID == "" || ids[a.ID]:
			return broken("adjustment %.64q is unnamed or appears twice", a.ID)
		case a.Kind < KindGrant || a.Kind > KindWriteOff:
			return broken("adjustment %.64q is a %s", a.ID, a.Kind)
		case a.State < JournalProposed || a.State > JournalVoided:
			return broken("adjustment %.64q is %s", a.ID, a.State)
		case a.Units < 0 || a.Units > MaxUnits:
			return broken("adjustment %.64q has %d units", a.ID, a.Units)
		}
		ids[a.ID] = true
	}
	return nil
}
