package fencing

import "fmt"

// CellState is where a cell stands in its life (contract, section 8).
type CellState uint8

// The states of a cell. The zero value is none of them.
const (
	// Provisioned: known, with a fence row of version 1, and never registered.
	Provisioned CellState = iota + 1
	// Active: an instance of its group holds a lease; sells and is granted units.
	Active
	// Suspect: ACTIVE in the store, but no instance holds a lease. Gets no units
	// and may be fenced; may well be selling. Derived, never stored.
	Suspect
	// Draining: gets no units, gives back what it has; ends by AbortDrain, fence
	// or Retire.
	Draining
	// Fencing: the fence is ordered and not proven. Everything it holds is frozen.
	Fencing
	// Fenced: the fence is proven, or the shard written off. No instance registers.
	Fenced
	// Restoring: the shard is given a higher version, settle-only first.
	Restoring
	// Regressed: the shard went back in time. Nothing is written until recovered.
	Regressed
	// Retired: gone for good. Terminal.
	Retired

	cellStates = int(Retired) + 1
)

var cellStateNames = [cellStates]string{
	Provisioned: "PROVISIONED", Active: "ACTIVE", Suspect: "SUSPECT", Draining: "DRAINING", Fencing: "FENCING",
	Fenced: "FENCED", Restoring: "RESTORING", Regressed: "REGRESSED", Retired: "RETIRED",
}

// CellStates lists every state, in the order of a cell's life.
func CellStates() []CellState {
	return []CellState{Provisioned, Active, Suspect, Draining, Fencing, Fenced, Restoring, Regressed, Retired}
}

// String gives the word of the contract.
func (s CellState) String() string {
	if s.valid() {
		return cellStateNames[s]
	}
	return fmt.Sprintf("CellState(%d)", uint8(s))
}

// ParseCellState reads the word of the contract; ok is false for any other.
func ParseCellState(text string) (s CellState, ok bool) {
	for _, s := range CellStates() {
		if text == cellStateNames[s] {
			return s, true
		}
	}
	return 0, false
}

func (s CellState) valid() bool { return s >= Provisioned && s <= Retired }

// Terminal tells whether the state is never left.
func (s CellState) Terminal() bool { return s == Retired }

// Grantable tells whether the leader may grant units to a cell in this state.
func (s CellState) Grantable() bool { return s == Active }

// Frozen tells whether what the cell holds is frozen: no return, no transfer, no
// rebalance; only the named moves of a reclaim or a write-off.
func (s CellState) Frozen() bool {
	return s == Suspect || s == Fencing || s == Fenced || s == Regressed
}

// Stored gives the state as the store keeps it: SUSPECT is ACTIVE there.
func (s CellState) Stored() CellState {
	if s == Suspect {
		return Active
	}
	return s
}

// Derive gives the state as people see it: a stored ACTIVE without a live
// instance is SUSPECT. All other states are what the store says.
func Derive(stored CellState, live bool) CellState {
	switch stored.Stored() {
	case Active:
		if live {
			return Active
		}
		return Suspect
	default:
		return stored
	}
}
