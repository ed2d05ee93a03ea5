package fencing

// cellRule is one cell of the table.
type cellRule struct {
	kind    ruleKind
	next    CellState
	bump    bumpKind
	effects []EffectKind
	why     error // for rejects and impossible
}

// bumpKind says what a move does to the fence version.
type bumpKind uint8

const (
	keep  bumpKind = iota // the version stays
	newer                 // one above the cell's and above everything reported
	above                 // above everything reported, unless it is there already
)

var (
	never = cellRule{kind: impossible, why: ErrImpossible}
	same  = cellRule{kind: noOp}
)

func to(next CellState, effects ...EffectKind) cellRule {
	return cellRule{kind: moves, next: next, effects: effects}
}

// bump is to, under a version above the cell's own.
func bump(next CellState, effects ...EffectKind) cellRule {
	return cellRule{kind: moves, next: next, effects: effects, bump: newer}
}

// lift is to, under a version above every witness.
func lift(next CellState, effects ...EffectKind) cellRule {
	return cellRule{kind: moves, next: next, effects: effects, bump: above}
}

func no(why error) cellRule { return cellRule{kind: rejects, why: why} }

// cellTable is the life of a cell: for every state, what every event does. The
// guards that a move must pass as well are in cellGuards. A move to Active or
// Suspect ends in the one that the leases say.
//
// The grid in doc.go is made from it; a test fails where they differ.
var cellTable = [cellStates][cellEvents]cellRule{
	Provisioned: {
		Register:     to(Active, GrantLease), // the hello carried the fence row: it exists
		LeaseLapsed:  never,
		Drain:        no(ErrNeverSold),
		AbortDrain:   no(ErrNotDraining),
		Fence:        bump(Fencing, RunStoreFence), // a book may hold units for it already
		Proven:       never,
		LossAttested: no(ErrFenceFirst),
		Restore:      no(ErrNotFenced),
		Activated:    never,
		Regress:      to(Regressed),
		Recover:      no(ErrNotRegressed),
		Recovered:    never,
		Retire:       to(Retired, RunRetire),
	},
	Active: {
		Register:     to(Active, GrantLease),
		LeaseLapsed:  to(Suspect),
		Drain:        to(Draining, AskReturns),
		AbortDrain:   same,
		Fence:        bump(Fencing, RunStoreFence),
		Proven:       no(ErrStaleVersion), // late news of a fence that was restored since
		LossAttested: no(ErrFenceFirst),
		Restore:      no(ErrNotFenced),
		Activated:    same,
		Regress:      to(Regressed),
		Recover:      no(ErrNotRegressed),
		Recovered:    same,
		Retire:       no(ErrDrainFirst),
	},
	Suspect: {
		Register:     to(Active, GrantLease),
		LeaseLapsed:  same,
		Drain:        no(ErrNotLive), // it cannot give anything back
		AbortDrain:   same,
		Fence:        bump(Fencing, RunStoreFence),
		Proven:       no(ErrStaleVersion),
		LossAttested: no(ErrFenceFirst),
		Restore:      no(ErrNotFenced),
		Activated:    same,
		Regress:      to(Regressed),
		Recover:      no(ErrNotRegressed),
		Recovered:    same,
		Retire:       no(ErrDrainFirst),
	},
	Draining: {
		Register:     to(Draining, GrantLease),
		LeaseLapsed:  to(Draining),
		Drain:        same,
		AbortDrain:   to(Active),
		Fence:        bump(Fencing, RunStoreFence),
		Proven:       no(ErrStaleVersion),
		LossAttested: no(ErrFenceFirst),
		Restore:      no(ErrNotFenced),
		Activated:    same,
		Regress:      to(Regressed),
		Recover:      no(ErrNotRegressed),
		Recovered:    same,
		Retire:       to(Retired, RunRetire),
	},
	Fencing: {
		Register:     no(ErrFenced),
		LeaseLapsed:  to(Fencing),
		Drain:        no(ErrFenced),
		AbortDrain:   no(ErrFenced),
		Fence:        to(Fencing, RunStoreFence), // resumed under the same version
		Proven:       to(Fenced),
		LossAttested: to(Fenced, RecordWriteOff),
		Restore:      no(ErrNotProven),
		Activated:    no(ErrStaleVersion),
		Regress:      to(Regressed),
		Recover:      no(ErrNotRegressed),
		Recovered:    no(ErrStaleVersion),
		Retire:       no(ErrNotProven),
	},
	Fenced: {
		Register:     no(ErrFenced),
		LeaseLapsed:  to(Fenced),
		Drain:        no(ErrFenced),
		AbortDrain:   no(ErrFenced),
		Fence:        same,
		Proven:       same,
		LossAttested: to(Fenced, RecordWriteOff), // the shard died after its fence
		Restore:      bump(Restoring, RunRestore),
		Activated:    no(ErrStaleVersion),
		Regress:      to(Regressed),
		Recover:      no(ErrNotRegressed),
		Recovered:    no(ErrStaleVersion),
		Retire:       to(Retired, RunRetire),
	},
	Restoring: {
		Register:     to(Restoring, GrantLease), // settle-only: payments and closings
		LeaseLapsed:  to(Restoring),
		Drain:        no(ErrRestoring),
		AbortDrain:   no(ErrNotDraining),
		Fence:        bump(Fencing, RunStoreFence),
		Proven:       no(ErrStaleVersion),
		LossAttested: no(ErrFenceFirst),
		Restore:      to(Restoring, RunRestore), // resumed under the same version
		Activated:    to(Active),
		Regress:      to(Regressed),
		Recover:      no(ErrNotRegressed),
		Recovered:    same,
		Retire:       no(ErrRestoring),
	},
	Regressed: {
		Register:     no(ErrRegressed),
		LeaseLapsed:  to(Regressed),
		Drain:        no(ErrRegressed),
		AbortDrain:   no(ErrRegressed),
		Fence:        no(ErrRegressed), // what it would prove is not what was sold
		Proven:       no(ErrRegressed),
		LossAttested: bump(Fenced, RecordWriteOff),
		Restore:      no(ErrRegressed),
		Activated:    no(ErrRegressed),
		Regress:      same,
		Recover:      lift(Regressed, RunRecover),
		Recovered:    to(Restoring),
		Retire:       no(ErrRegressed),
	},
	Retired: {
		Register:     no(ErrRetired),
		LeaseLapsed:  same,
		Drain:        no(ErrRetired),
		AbortDrain:   no(ErrRetired),
		Fence:        no(ErrRetired),
		Proven:       no(ErrRetired),
		LossAttested: no(ErrRetired),
		Restore:      no(ErrRetired),
		Activated:    no(ErrRetired),
		Regress:      no(ErrRetired),
		Recover:      no(ErrRetired),
		Recovered:    no(ErrRetired),
		Retire:       same,
	},
}
