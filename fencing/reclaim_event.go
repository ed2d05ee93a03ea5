package fencing

// ReclaimEventKind is what can happen to a reclaim.
type ReclaimEventKind uint8

// The events. The zero value is none of them. Commands: BeginReclaim,
// BeginTopUp, BeginRestore, WriteOff. The others are outcomes of effects.
const (
	FencingWritten ReclaimEventKind = iota + 1 // the cell's record says FENCING
	ProofStored                                // the proof is in the journal, the cell FENCED
	WriteOff                                   // operator, two people: the shard is gone for good
	BeginReclaim                               // operator: book what the proof names
	SKUBooked                                  // one SKU's book is done
	SKUWithheld                                // one SKU stays frozen: ErrProofMismatch, or reclaim: NEVER
	BeginTopUp                                 // operator: give the reclaimed units to others
	ToppedUp                                   // others were granted them
	BeginRestore                               // operator: let the cell sell again
	ShardSettling                              // the shard's row is SETTLE_ONLY at the restore's version
	ShardActive                                // the shard's row and the cell's record are ACTIVE
	StepFailed                                 // an effect failed for now: tell the operator, try again

	reclaimEvents = int(StepFailed) + 1
)

var reclaimEventNames = [reclaimEvents]string{
	FencingWritten: "FencingWritten", ProofStored: "ProofStored", WriteOff: "WriteOff", BeginReclaim: "BeginReclaim",
	SKUBooked: "SKUBooked", SKUWithheld: "SKUWithheld", BeginTopUp: "BeginTopUp", ToppedUp: "ToppedUp",
	BeginRestore: "BeginRestore", ShardSettling: "ShardSettling", ShardActive: "ShardActive", StepFailed: "StepFailed",
}

// ReclaimEventKinds lists every event.
func ReclaimEventKinds() []ReclaimEventKind {
	kinds := make([]ReclaimEventKind, 0, reclaimEvents-1)
	for k := FencingWritten; k <= StepFailed; k++ {
		kinds = append(kinds, k)
	}
	return kinds
}

// String gives the event's name.
func (k ReclaimEventKind) String() string {
	return word("ReclaimEventKind", reclaimEventNames[:], int(k))
}

func (k ReclaimEventKind) valid() bool { return k >= FencingWritten && k <= StepFailed }

// ReclaimEvent is one event. Only the fields named for the kind are read.
type ReclaimEvent struct {
	Kind ReclaimEventKind
	// Version (every outcome): the version it is about; news of another is refused.
	Version Version
	// SKUs (ProofStored: all of the proof and of the books; WriteOff: all that the
	// books name; SKUBooked, SKUWithheld: exactly one).
	SKUs []SKU
	// Attestation (WriteOff).
	Attestation Attestation
	// Above (BeginRestore): the highest fence version that anything reported.
	Above Version
}
