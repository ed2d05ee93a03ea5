package fencing

import "fmt"

// CellEventKind is what can happen to a cell. Commands are named by a verb in
// the present, outcomes by a participle.
type CellEventKind uint8

// The events of a cell. The zero value is none of them.
const (
	Register     CellEventKind = iota + 1 // an instance asks for a lease
	LeaseLapsed                           // the last lease of its group ended
	Drain                                 // operator: sell nothing new, give back
	AbortDrain                            // operator: go on after all
	Fence                                 // operator: take the right to write
	Proven                                // the fence stands in the shard; the proof is stored
	LossAttested                          // the shard is gone for good; two people say so
	Restore                               // operator: give the shard a higher version
	Activated                             // the shard's row is ACTIVE at the cell's version
	Regress                               // a witness is ahead of the shard
	Recover                               // operator: bring the shard back above every witness
	Recovered                             // the shard is settle-only above every witness
	Retire                                // operator: never again

	cellEvents = int(Retire) + 1
)

var cellEventNames = [cellEvents]string{
	Register: "Register", LeaseLapsed: "LeaseLapsed", Drain: "Drain", AbortDrain: "AbortDrain", Fence: "Fence",
	Proven: "Proven", LossAttested: "LossAttested", Restore: "Restore", Activated: "Activated", Regress: "Regress",
	Recover: "Recover", Recovered: "Recovered", Retire: "Retire",
}

// CellEventKinds lists every event.
func CellEventKinds() []CellEventKind {
	kinds := make([]CellEventKind, 0, cellEvents-1)
	for k := Register; k <= Retire; k++ {
		kinds = append(kinds, k)
	}
	return kinds
}

// String gives the event's name.
func (k CellEventKind) String() string {
	if k.valid() {
		return cellEventNames[k]
	}
	return fmt.Sprintf("CellEventKind(%d)", uint8(k))
}

func (k CellEventKind) valid() bool { return k >= Register && k <= Retire }

// CellEvent is one event with what its guards look at. Only the fields named for
// the kind are read.
type CellEvent struct {
	Kind CellEventKind

	// ExpectedRecord (commands): the version of the cell's record that the caller
	// saw; 0: any.
	ExpectedRecord int64
	// Group (Register): the group of the instance. (Restore): the group that may
	// hold the cell from now on; empty: as before.
	Group string
	// Force (Fence): although the cell is healthy.
	Force bool
	// OtherLive (Fence): live cells beside this one. The last live cell cannot be
	// fenced, by force neither (K31).
	OtherLive int
	// Above (Fence, Restore, LossAttested, Recover): the highest fence version that
	// anything reported; the new version is above it too. Recover needs it.
	Above Version
	// Version (Proven, Activated, Recovered): the version that the outcome is about.
	Version Version
	// Attestation (LossAttested).
	Attestation Attestation
	// Empty (Retire): the cell holds no units and no open order.
	Empty bool
}
