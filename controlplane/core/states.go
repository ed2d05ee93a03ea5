package core

// CellState is where a cell stands in its life. The machine that moves it is the
// table of package fencing.
type CellState uint8

// The states of a cell. CellSuspect is derived from leases and never stored.
const (
	CellProvisioned CellState = iota + 1 // known; its shard may have no fence row yet
	CellActive                           // sells, and may be granted units
	CellSuspect                          // ACTIVE, but no process of its group holds a lease
	CellDraining                         // sells nothing new, settles what it has
	CellFencing                          // a fence was ordered and is not proved; all it holds is frozen
	CellFenced                           // the shard holds a FENCED row; the proof is stored
	CellRestoring                        // a higher version is being installed; payments and closings first
	CellRegressed                        // its shard went back in time
	CellRetired                          // gone for good
)

var cellStateNames = []string{
	"", "PROVISIONED", "ACTIVE", "SUSPECT", "DRAINING", "FENCING", "FENCED", "RESTORING", "REGRESSED", "RETIRED",
}

// CellStates lists every state.
func CellStates() []CellState { return all[CellState](cellStateNames) }

// String is the word of the contract.
func (s CellState) String() string { return enumText("CellState", cellStateNames, s) }

// Valid tells whether s is a state.
func (s CellState) Valid() bool { return known(cellStateNames, s) }

// MayRegister tells whether processes of the cell may hold leases: a cell that
// is being fenced or is fenced gets none until it is restored.
func (s CellState) MayRegister() bool {
	switch s {
	case CellActive, CellSuspect, CellDraining, CellRestoring:
		return true
	default:
		return false
	}
}

// CampaignState is where a campaign stands.
type CampaignState uint8

// The states of a campaign. CampaignOpen is how PUBLISHED reads within
// [open_at, close_at) and is never stored.
const (
	CampaignDraft CampaignState = iota + 1
	CampaignPublishing
	CampaignPublished
	CampaignOpen
	CampaignPaused
	CampaignClosed
	CampaignSettled
)

var campaignStateNames = []string{"", "DRAFT", "PUBLISHING", "PUBLISHED", "OPEN", "PAUSED", "CLOSED", "SETTLED"}

// CampaignStates lists every state.
func CampaignStates() []CampaignState { return all[CampaignState](campaignStateNames) }

// String is the word of the contract.
func (s CampaignState) String() string { return enumText("CampaignState", campaignStateNames, s) }

// Valid tells whether s is a state.
func (s CampaignState) Valid() bool { return known(campaignStateNames, s) }

// HasBooks tells whether cells hold or will hold units for a campaign in s.
func (s CampaignState) HasBooks() bool { return s.Valid() && s != CampaignDraft }

// AdjustmentKind names a move of units.
type AdjustmentKind uint8

// The kinds. Grants and returns have numbers, the others have none.
const (
	KindGrant AdjustmentKind = iota + 1
	KindReturn
	KindSeal
	KindLimit
	KindWriteOff
)

var kindNames = []string{"", "GRANT", "RETURN", "SEAL", "LIMIT", "WRITE_OFF"}

// Kinds lists every kind.
func Kinds() []AdjustmentKind { return all[AdjustmentKind](kindNames) }

// String is the word of the contract.
func (k AdjustmentKind) String() string { return enumText("AdjustmentKind", kindNames, k) }

// Outcome is what the shard decided about an adjustment; 0: nothing yet.
type Outcome uint8

// The outcomes.
const (
	OutcomeApplied Outcome = iota + 1
	OutcomeRefused
	OutcomeVoided
)

var outcomeNames = []string{"", "APPLIED", "REFUSED", "VOIDED"}

// Outcomes lists every outcome.
func Outcomes() []Outcome { return all[Outcome](outcomeNames) }

// String is the word of the contract; "UNDECIDED" for none.
func (o Outcome) String() string {
	if o == 0 {
		return "UNDECIDED"
	}
	return enumText("Outcome", outcomeNames, o)
}

// JournalState of an adjustment.
type JournalState uint8

// The states. DONE and VOIDED are terminal.
const (
	StateProposed JournalState = iota + 1 // an intent; the book has not moved for it
	StateBooked                           // the book moved; the shard has not answered
	StateDone                             // book and shard agree
	StateVoided                           // ended with 0 units
)

var journalStateNames = []string{"", "PROPOSED", "BOOKED", "DONE", "VOIDED"}

// JournalStates lists every state.
func JournalStates() []JournalState { return all[JournalState](journalStateNames) }

// String is the word of the contract.
func (s JournalState) String() string { return enumText("JournalState", journalStateNames, s) }

// Terminal tells whether nothing will change any more.
func (s JournalState) Terminal() bool { return s == StateDone || s == StateVoided }

// OperationState of a long operation.
type OperationState uint8

// The states. The last three are terminal.
const (
	OperationPending OperationState = iota + 1
	OperationRunning
	OperationDone
	OperationFailed
	OperationAborted
)

var operationStateNames = []string{"", "PENDING", "RUNNING", "DONE", "FAILED", "ABORTED"}

// OperationStates lists every state.
func OperationStates() []OperationState { return all[OperationState](operationStateNames) }

// String is the word of the contract.
func (s OperationState) String() string { return enumText("OperationState", operationStateNames, s) }

// Terminal tells whether nothing will change any more.
func (s OperationState) Terminal() bool { return s >= OperationDone && known(operationStateNames, s) }

// Evidence is why units may leave a fenced cell's allocation.
type Evidence uint8

// The two evidences.
const (
	EvidenceStoreFence   Evidence = iota + 1 // the fence stands in the shard, the facts were read after it
	EvidenceAttestedLoss                     // the shard is gone; two operators say so; written off
)

var evidenceNames = []string{"", "STORE_FENCE", "ATTESTED_LOSS"}

// Evidences lists every evidence.
func Evidences() []Evidence { return all[Evidence](evidenceNames) }

// String is the word of the contract.
func (e Evidence) String() string { return enumText("Evidence", evidenceNames, e) }
