package fencing

import "fmt"

// AdjustmentKind is what an adjustment does to a cell's units.
type AdjustmentKind uint8

// The kinds that concern a fence. The zero value is none of them.
const (
	KindGrant    AdjustmentKind = iota + 1 // reserve → cell; numbered
	KindReturn                             // cell → reserve or another cell; numbered
	KindSeal                               // the fence took out what was available; no number
	KindWriteOff                           // the units of a lost shard, for ever in its allocation; no number
)

var kindNames = [...]string{KindGrant: "GRANT", KindReturn: "RETURN", KindSeal: "SEAL", KindWriteOff: "WRITE_OFF"}

// String gives the word of the seams.
func (k AdjustmentKind) String() string { return word("AdjustmentKind", kindNames[:], int(k)) }

// Outcome is the shard's word on an adjustment.
type Outcome uint8

// The outcomes. OutcomeUnknown: the shard has not heard of it.
const (
	OutcomeUnknown Outcome = iota
	OutcomeApplied
	OutcomeRefused // the number is used, with 0 units
	OutcomeVoided  // the number is used, with 0 units

	outcomes = int(OutcomeVoided) + 1
)

var outcomeNames = [...]string{OutcomeUnknown: "UNKNOWN", OutcomeApplied: "APPLIED", OutcomeRefused: "REFUSED", OutcomeVoided: "VOIDED"}

// String gives the word of the seams.
func (o Outcome) String() string { return word("Outcome", outcomeNames[:], int(o)) }

// JournalState is where an adjustment stands in the control plane's journal.
type JournalState uint8

// The states of the journal. The zero value is none of them.
const (
	JournalProposed JournalState = iota + 1 // an intent; the book has not moved
	JournalBooked                           // the book moved; the shard has not confirmed
	JournalDone                             // book and shard agree
	JournalVoided                           // ended with 0 units; the book has not moved, or moved back

	journalStates = int(JournalVoided) + 1
)

var journalNames = [...]string{JournalProposed: "PROPOSED", JournalBooked: "BOOKED", JournalDone: "DONE", JournalVoided: "VOIDED"}

// String gives the word of the seams.
func (s JournalState) String() string { return word("JournalState", journalNames[:], int(s)) }

func word(kind string, names []string, n int) string {
	if n < len(names) && names[n] != "" {
		return names[n]
	}
	return fmt.Sprintf("%s(%d)", kind, n)
}
