package fencing

// ReclaimState is how far a fenced cell has come on the way from its fence to
// selling again. Every state but the resting ones (FENCED, RECLAIMED, ACTIVE)
// has obligations that a driver carries out until they are done.
type ReclaimState uint8

// The states of a reclaim. The zero value is none of them.
const (
	// FenceRequested: the operation is accepted; no cell record says so yet.
	FenceRequested ReclaimState = iota + 1
	// FenceRunning (FENCING): the cell is FENCING in the store. Cannot be aborted;
	// ends by proof or by write-off.
	FenceRunning
	// FenceProven (FENCED): the proof is stored, the cell FENCED. Rests.
	FenceProven
	// Reclaiming: the book of each SKU is brought to the proof.
	Reclaiming
	// Reclaimed: every SKU is booked or withheld. Rests.
	Reclaimed
	// RestoreRunning (RESTORING): the shard is given a higher version.
	RestoreRunning
	// SettleOnly: the shard takes payments and closings, and no admission yet.
	SettleOnly
	// ActiveAgain (ACTIVE): the shard sells again. Terminal.
	ActiveAgain

	reclaimStates = int(ActiveAgain) + 1
)

var reclaimStateNames = [reclaimStates]string{
	FenceRequested: "FENCE_REQUESTED", FenceRunning: "FENCING", FenceProven: "FENCED", Reclaiming: "RECLAIMING",
	Reclaimed: "RECLAIMED", RestoreRunning: "RESTORING", SettleOnly: "SETTLE_ONLY", ActiveAgain: "ACTIVE",
}

// ReclaimStates lists every state, in order.
func ReclaimStates() []ReclaimState {
	states := make([]ReclaimState, 0, reclaimStates-1)
	for s := FenceRequested; s <= ActiveAgain; s++ {
		states = append(states, s)
	}
	return states
}

// String gives the state's word, as an operation's step shows it.
func (s ReclaimState) String() string { return word("ReclaimState", reclaimStateNames[:], int(s)) }

// ParseReclaimState reads the word back; ok is false for any other.
func ParseReclaimState(text string) (s ReclaimState, ok bool) {
	for _, s := range ReclaimStates() {
		if text == s.String() {
			return s, true
		}
	}
	return 0, false
}

func (s ReclaimState) valid() bool { return s >= FenceRequested && s <= ActiveAgain }

// Terminal tells whether the state is never left: a next fence of the cell is a
// reclaim of its own.
func (s ReclaimState) Terminal() bool { return s == ActiveAgain }

// ReclaimStateOf gives the state in which a driver resumes from the cell's
// stored record: reclaimed tells whether every SKU was booked. ok is false for a
// cell without a fence under way or standing. A restore is resumed from its
// start, which repeats nothing that the shard has done.
func ReclaimStateOf(cell CellState, reclaimed bool) (s ReclaimState, ok bool) {
	switch cell {
	case Fencing:
		return FenceRunning, true
	case Fenced:
		if reclaimed {
			return Reclaimed, true
		}
		return FenceProven, true
	case Restoring:
		return RestoreRunning, true
	default: // the others have no case of their own: what follows the switch holds
	}
	return 0, false
}
