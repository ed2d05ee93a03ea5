package fencing

import (
	"errors"
	"fmt"
)

// Cell is a cell as the control plane judges it.
type Cell struct {
	ID    string
	State CellState
	// Version is the fence version; while FENCING and RESTORING the one being
	// installed in the shard.
	Version Version
	// Record is the version of the stored record, for the guard of commands.
	Record int64
	// Group is the instance group that may hold the cell.
	Group string
	// Live: an instance of Group holds a lease. Read from the leases, never stored.
	Live bool
	// Evidence of the standing fence; none unless FENCED or RETIRED.
	Evidence Evidence
}

// ErrCell says that a cell contradicts itself; no step is taken from or to it.
var ErrCell = errors.New("the cell is broken")

// Check verifies what must hold in every state. ErrCell names what does not.
func (c Cell) Check() error {
	broken := func(what string) error { return fmt.Errorf("cell %.64q in %s: %s: %w", c.ID, c.State, what, ErrCell) }
	switch {
	case !c.State.valid():
		return broken("no such state")
	case c.ID == "":
		return broken("no id")
	case c.Group == "":
		return broken("no instance group")
	case c.Version < 1 || c.Version > MaxVersion:
		return broken("fence version out of range")
	case c.State == Active && !c.Live, c.State == Suspect && c.Live:
		return broken("state and leases differ")
	case c.State == Retired && c.Live:
		return broken("a retired cell is live")
	case c.State == Fenced && c.Evidence != StoreFence && c.Evidence != AttestedLoss:
		return broken("fenced without evidence")
	case c.State != Fenced && c.State != Retired && c.Evidence != 0:
		return broken("evidence without a standing fence")
	}
	return nil
}

// StepCell gives the cell after an event and the effects that the change brings.
// It is pure: the driver stores the cell (State.Stored) first, and then carries
// the effects out. Fencing and restoring are resumed by sending the command
// again; it keeps the version.
//
// Errors: a *TransitionError with the reason where the event is refused (the
// table's, or a guard's: ErrStaleRecord, ErrOtherGroup, ErrHealthy,
// ErrLastLiveCell, ErrStaleVersion, ErrAttestation, ErrLost, ErrNoWitness,
// ErrNotEmpty); ErrCell where the cell given is broken; ErrVersion where no
// version is left. The cell given is never changed.
func StepCell(c Cell, e CellEvent) (Cell, []Effect, error) {
	c.State = Derive(c.State, c.Live)
	if err := c.Check(); err != nil {
		return Cell{}, nil, err
	}
	if !e.Kind.valid() {
		return Cell{}, nil, c.refuse(e, ErrUnknownEvent)
	}
	rule := cellTable[c.State][e.Kind]
	switch rule.kind {
	case moves:
	case noOp:
		return c, nil, nil
	default:
		return Cell{}, nil, c.refuse(e, rule.why)
	}
	for _, guard := range cellGuards[e.Kind] {
		if err := guard(c, e); err != nil {
			return Cell{}, nil, c.refuse(e, err)
		}
	}
	next, err := c.after(e, rule)
	if err == nil {
		err = next.Check()
	}
	if err != nil {
		return Cell{}, nil, err
	}
	var effects []Effect
	for _, kind := range rule.effects {
		effects = append(effects, Effect{Kind: kind, Cell: next.ID, Version: next.Version})
	}
	return next, effects, nil
}

func (c Cell) refuse(e CellEvent, why error) error {
	return &TransitionError{Machine: "cell", Cell: c.ID, From: c.State.String(), Event: e.Kind.String(), Why: why}
}

// after is the cell that a move makes. It is the only place that writes fields.
func (c Cell) after(e CellEvent, rule cellRule) (Cell, error) {
	var err error
	if c.Version, err = rule.bump.apply(c.Version, e.Above); err != nil {
		return Cell{}, err
	}
	switch e.Kind {
	case Register:
		c.Live = true
	case LeaseLapsed, Retire:
		c.Live = false
	case Proven:
		c.Evidence = StoreFence
	case LossAttested:
		c.Evidence = AttestedLoss
	case Restore:
		if e.Group != "" {
			c.Group = e.Group
		}
	default: // the others have no case of their own: what follows the switch holds
	}
	if rule.next != Fenced && rule.next != Retired {
		c.Evidence = 0
	}
	c.State = Derive(rule.next, c.Live)
	return c, nil
}

// apply gives the version of the cell after the move.
func (b bumpKind) apply(own, reported Version) (Version, error) {
	switch {
	case b == newer, b == above && own <= reported:
		return max(own, reported).Next()
	}
	return own, nil
}

type cellGuard func(Cell, CellEvent) error

// cellGuards is what must hold beside the table before an event moves a cell.
var cellGuards = [cellEvents][]cellGuard{
	Register:     {sameGroup},
	Drain:        {expectedRecord},
	AbortDrain:   {expectedRecord},
	Fence:        {expectedRecord, notLastLive, notHealthy},
	Proven:       {sameVersion},
	LossAttested: {attested},
	Restore:      {expectedRecord, notLost, oneGroup},
	Activated:    {sameVersion},
	Regress:      {notLost},
	Recover:      {expectedRecord, witnessed},
	Recovered:    {sameVersion},
	Retire:       {expectedRecord, empty},
}

func check(holds bool, why error) error {
	if holds {
		return nil
	}
	return why
}

// resumes tells whether a command repeats what is under way. It is asked nothing
// again that was asked when the state was written.
func resumes(c Cell, e CellEvent) bool {
	return c.State == Fencing && e.Kind == Fence || c.State == Restoring && e.Kind == Restore
}

func expectedRecord(c Cell, e CellEvent) error {
	return check(resumes(c, e) || e.ExpectedRecord == 0 || e.ExpectedRecord == c.Record, ErrStaleRecord)
}

func sameGroup(c Cell, e CellEvent) error { return check(e.Group == c.Group, ErrOtherGroup) }

// oneGroup refuses a restore that is resumed for another group: the shard may
// have been given to the first already.
func oneGroup(c Cell, e CellEvent) error {
	return check(!resumes(c, e) || e.Group == "" || e.Group == c.Group, ErrOtherGroup)
}

func sameVersion(c Cell, e CellEvent) error { return check(e.Version == c.Version, ErrStaleVersion) }
func notLost(c Cell, _ CellEvent) error     { return check(c.Evidence != AttestedLoss, ErrLost) }
func witnessed(_ Cell, e CellEvent) error   { return check(e.Above > 0, ErrNoWitness) }
func attested(_ Cell, e CellEvent) error    { return e.Attestation.Check() }

// notLastLive and notHealthy ask about a cell that lives; a dead one may always
// be fenced, also where no other is left.
func notLastLive(c Cell, e CellEvent) error {
	return check(!c.Live || resumes(c, e) || e.OtherLive > 0, ErrLastLiveCell)
}

func notHealthy(c Cell, e CellEvent) error {
	return check(!c.Live || resumes(c, e) || e.Force, ErrHealthy)
}

// empty lets a cell retire that holds nothing, or whose shard was written off.
func empty(c Cell, e CellEvent) error {
	return check(e.Empty || c.Evidence == AttestedLoss, ErrNotEmpty)
}
