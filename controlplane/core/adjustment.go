package core

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/internal/ids"
)

// Adjustment is one named move of units. Kind, cell, units and step are fixed
// when it is written; State and Outcome move by Settle only.
type Adjustment struct {
	ID   string // minted by the caller before its first try
	Key  BookKey
	Cell ids.CellID // empty for LIMIT
	Kind AdjustmentKind
	// Units moved; of a LIMIT the sale limit that stands after it.
	Units quantity.Quantity
	// State in the journal, and what the shard decided.
	State   JournalState
	Outcome Outcome
	// Step is its place in the sequence of the cell; number 0: none.
	Step
	Actor  string
	Reason string
	// CreatedAt is when its intent was written, by the control plane's clock.
	CreatedAt time.Time
	Evidence  Evidence // for SEAL and WRITE_OFF
}

// Open tells whether a shard's answer is still awaited.
func (a Adjustment) Open() bool { return !a.State.Terminal() }

// Check verifies the shape of one adjustment. ErrBroken.
func (a Adjustment) Check() error {
	numberedKind := a.Kind == KindGrant || a.Kind == KindReturn
	switch {
	case a.ID == "" || a.Kind < KindGrant || a.Kind > KindWriteOff || a.State < StateProposed || a.State > StateVoided:
		return broken("adjustment %q of kind %s in state %s", a.ID, a.Kind, a.State)
	case a.Kind != KindLimit && a.Cell == "":
		return broken("adjustment %s: %s without a cell", a.ID, a.Kind)
	case numberedKind && (a.Number < 1 || a.FenceVersion < 1):
		return broken("adjustment %s: %s without number or fence version", a.ID, a.Kind)
	case !numberedKind && a.Number != 0:
		return broken("adjustment %s: %s with a number", a.ID, a.Kind)
	}
	return nil
}

// Record is the journal's word on one transaction on one book: its id, whose
// parameters it was made from, and its adjustments. A single top-up's record has
// the adjustment's id. Immutable but for State and Outcome of its adjustments.
type Record struct {
	ID          string
	Key         BookKey
	Adjustments []Adjustment
	Actor       string
	Reason      string
	OperationID string // the operation it belongs to, or empty
	BookVersion int64  // of the book after it
	At          time.Time
	// Parameters is a digest of what the caller asked for: the same id with
	// another digest is ErrIDReused.
	Parameters string
	// CreateRevision and ModRevision are etcd's; 0: not stored.
	CreateRevision int64
	ModRevision    int64
}

// Open tells whether an adjustment of the record is.
func (r Record) Open() bool {
	for _, a := range r.Adjustments {
		if a.Open() {
			return true
		}
	}
	return false
}

// Find gives the index of an adjustment in the record, or -1.
func (r Record) Find(adjustmentID string) int {
	for i, a := range r.Adjustments {
		if a.ID == adjustmentID {
			return i
		}
	}
	return -1
}

// Check verifies the shape of a record that was read or is to be stored. ErrBroken.
func (r Record) Check() error {
	if r.ID == "" || r.Key.Campaign == "" || r.Key.SKU == "" {
		return broken("journal record %q of %s", r.ID, r.Key)
	}
	for _, a := range r.Adjustments {
		if err := a.Check(); err != nil {
			return err
		}
	}
	return nil
}

// SameParameters is nil when a repeat asks for what the record was made from,
// else ErrIDReused.
func (r Record) SameParameters(parameters string) error {
	if r.Parameters == parameters {
		return nil
	}
	return numbered(ErrIDReused, "id", r.ID)
}

// Ids of adjustments that nobody mints by hand, so that every replica and every
// retry names the same move the same way.

// ownPrefixes begin those ids, the ones that packages reclaim and fencing make, and the name under which
// a mirror gives back what it was debited.
var ownPrefixes = []string{"publish.", "grant0.", "seal.", "topup.", "writeoff.", "credit:", "return.", "rebalance.", "limit.", "auto.", "join.", "final.", "settled.", "recovered."}

// OwnPrefixes lists what the platform's own ids begin with.
func OwnPrefixes() []string { return slices.Clone(ownPrefixes) }

// OwnID tells whether an id is one that the platform gives itself. A caller may not bring such an id: its
// move would be taken for the platform's.
func OwnID(id string) bool {
	return slices.ContainsFunc(ownPrefixes, func(prefix string) bool { return strings.HasPrefix(id, prefix) })
}

// PublishRecordID names the record that opens a SKU's book.
func PublishRecordID(key BookKey) string {
	return "publish." + string(key.Campaign) + "." + string(key.SKU)
}

// JoinRecordID names the record that gives a book allocations of 0 for the cells
// that a version of its campaign has and the book has not.
func JoinRecordID(key BookKey, version int64) string {
	return "join." + string(key.Campaign) + "." + string(key.SKU) + "." + strconv.FormatInt(version, 10)
}

// FirstGrantID names a cell's first grant.
func FirstGrantID(key BookKey, cell ids.CellID) string {
	return "grant0." + string(key.Campaign) + "." + string(key.SKU) + "." + string(cell)
}

// FinalRecordID names the record that declares a SKU FINAL_SOLD_OUT.
func FinalRecordID(key BookKey) string {
	return "final." + string(key.Campaign) + "." + string(key.SKU)
}

// SettledRecordID names the record that settles a SKU.
func SettledRecordID(key BookKey) string {
	return "settled." + string(key.Campaign) + "." + string(key.SKU)
}
