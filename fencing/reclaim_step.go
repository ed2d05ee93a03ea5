package fencing

import (
	"errors"
	"fmt"
	"slices"
)

// Reclaim is one fence of one cell and what follows from it. A driver keeps
// State, versions, evidence and wishes; Pending may be filled anew from the
// stored proof when it resumes, because booking a SKU again changes nothing.
type Reclaim struct {
	Cell  string
	State ReclaimState
	// Version is what the fence installs; everything below it ends.
	Version Version
	// Restored is what the restore installs; 0 before it.
	Restored Version
	Evidence Evidence
	// Pending SKUs are to be booked; Withheld ones stay frozen.
	Pending  []SKU
	Withheld []SKU
	Wish     Wish
	// Attempts counts failures in a row of the present state, for operators.
	Attempts int
}

// Wish is commands that came before their state.
type Wish struct {
	Reclaim, TopUp, Restore bool
	// Above is the highest version that was reported when Restore was wished.
	Above Version
}

// maxAttempts is where Attempts stops counting.
const maxAttempts = 1_000_000

// ErrReclaim says that a reclaim contradicts itself.
var ErrReclaim = errors.New("the reclaim is broken")

// Check verifies what must hold in every state. ErrReclaim names what does not.
func (r Reclaim) Check() error {
	broken := func(what string) error {
		return fmt.Errorf("reclaim of cell %.64q in %s: %s: %w", r.Cell, r.State, what, ErrReclaim)
	}
	restoring := r.State >= RestoreRunning
	switch {
	case !r.State.valid():
		return broken("no such state")
	case r.Cell == "":
		return broken("no cell")
	case r.Version < 1 || r.Version > MaxVersion:
		return broken("fence version out of range")
	case restoring != (r.Restored > 0) || r.Restored > 0 && r.Restored <= r.Version:
		return broken("the restore's version does not follow the fence's")
	case r.State < FenceProven && r.Evidence != 0, r.State >= FenceProven && r.Evidence != StoreFence && r.Evidence != AttestedLoss:
		return broken("evidence does not fit the state")
	case restoring && r.Evidence == AttestedLoss:
		return broken("a lost shard is being restored")
	case r.State == Reclaiming && len(r.Pending) == 0, len(r.Pending) > 0 && r.State != Reclaiming && r.State != FenceProven:
		return broken("pending SKUs do not fit the state")
	case r.Attempts < 0:
		return broken("attempts below 0")
	}
	return nil
}

// Due gives everything that the reclaim owes at present, in order: what a driver
// does next, after a step as well as after a crash. Empty means at rest: the
// operation is done as far as it was asked for.
func (r Reclaim) Due() []Effect {
	var due []Effect
	for _, kind := range reclaimTable[r.State].owes {
		if kind != BookReclaim {
			due = append(due, r.effect(kind))
			continue
		}
		if r.Evidence == AttestedLoss {
			due = append(due, r.effect(RecordWriteOff))
			kind = BookWriteOff
		}
		for _, sku := range r.Pending {
			e := r.effect(kind)
			e.SKU = sku
			due = append(due, e)
		}
	}
	if r.Wish.TopUp && r.State >= Reclaimed {
		due = append(due, r.effect(TopUpOthers))
	}
	return due
}

func (r Reclaim) effect(kind EffectKind) Effect {
	version := r.Version
	switch kind {
	case WriteRestoring, RunRestore, AwaitSettled, RunActivate, WriteActive:
		version = r.Restored
	default: // the others have no case of their own: what follows the switch holds
	}
	return Effect{Kind: kind, Cell: r.Cell, Version: version}
}

// StepReclaim gives the reclaim after an event, and everything that it then
// owes. It is pure: the driver stores the reclaim first, and then carries the
// effects out; the same effect may be carried out again after any crash.
//
// Errors: a *TransitionError with the reason where the event is refused (the
// table's, or a guard's: ErrStaleVersion, ErrAttestation, ErrLost,
// ErrOneSKU); ErrReclaim where the reclaim given is broken; ErrVersion where
// no version is left. The reclaim given is never changed.
func StepReclaim(r Reclaim, e ReclaimEvent) (Reclaim, []Effect, error) {
	if !r.State.valid() {
		return Reclaim{}, nil, r.Check()
	}
	if !e.Kind.valid() {
		return Reclaim{}, nil, r.refuse(e, ErrUnknownEvent)
	}
	if err := r.Check(); err != nil {
		return Reclaim{}, nil, err
	}
	rule := reclaimTable[r.State].on[e.Kind]
	if e.Kind == WriteOff && r.Evidence == AttestedLoss {
		rule = rSame
	}
	switch rule.kind {
	case noOp:
		return r, r.Due(), nil
	case moves, wishes:
	default:
		return Reclaim{}, nil, r.refuse(e, rule.why)
	}
	if err := r.guard(e); err != nil {
		return Reclaim{}, nil, r.refuse(e, err)
	}
	next, err := r.after(e, rule).settle()
	if next.State != r.State {
		next.Attempts = 0
	}
	if err == nil {
		err = next.Check()
	}
	if err != nil {
		return Reclaim{}, nil, err
	}
	return next, next.Due(), nil
}

func (r Reclaim) refuse(e ReclaimEvent, why error) error {
	return &TransitionError{Machine: "reclaim", Cell: r.Cell, From: r.State.String(), Event: e.Kind.String(), Why: why}
}

// guard is what must hold beside the table.
func (r Reclaim) guard(e ReclaimEvent) error {
	switch e.Kind {
	case FencingWritten, ProofStored, ToppedUp:
		return check(e.Version == r.Version, ErrStaleVersion)
	case ShardSettling, ShardActive:
		return check(e.Version == r.Restored, ErrStaleVersion)
	case SKUBooked, SKUWithheld:
		if e.Version != r.Version {
			return ErrStaleVersion
		}
		return check(len(e.SKUs) == 1, ErrOneSKU)
	case WriteOff:
		return e.Attestation.Check()
	case BeginTopUp, BeginRestore:
		return check(r.Evidence != AttestedLoss, ErrLost)
	default: // the others have no case of their own: what follows the switch holds
	}
	return nil
}

// after is the reclaim that the event makes, before settle. Together they are
// the only places that write fields.
func (r Reclaim) after(e ReclaimEvent, rule reclaimRule) Reclaim {
	from := r.State
	if rule.kind == moves {
		r.State = rule.next
	}
	switch e.Kind {
	case ProofStored:
		r.Evidence, r.Pending = StoreFence, sortedSKUs(e.SKUs)
	case WriteOff:
		r.Evidence, r.Pending, r.Withheld, r.Wish = AttestedLoss, sortedSKUs(e.SKUs), nil, Wish{}
	case BeginReclaim:
		r.Wish.Reclaim = rule.kind == wishes
		if from == Reclaimed {
			r.Pending, r.Withheld = r.Withheld, nil
		}
	case SKUBooked:
		r.Pending = without(r.Pending, e.SKUs[0])
	case SKUWithheld:
		if slices.Contains(r.Pending, e.SKUs[0]) {
			r.Pending, r.Withheld = without(r.Pending, e.SKUs[0]), sortedSKUs(append(slices.Clone(r.Withheld), e.SKUs[0]))
		}
	case BeginTopUp:
		r.Wish.TopUp = true
	case ToppedUp:
		r.Wish.TopUp = false
	case BeginRestore:
		r.Wish.Restore, r.Wish.Above = true, e.Above
	case StepFailed:
		r.Attempts = min(r.Attempts+1, maxAttempts)
	default: // the others have no case of their own: what follows the switch holds
	}
	return r
}

// settle goes on where nothing is waited for: a standing wish is granted when
// its state is reached, RECLAIMING ends with its last SKU, and a restore that
// begins mints its version. At most three steps.
func (r Reclaim) settle() (Reclaim, error) {
	if r.State == FenceProven && r.Wish.Reclaim {
		r.State, r.Wish.Reclaim = Reclaiming, false
	}
	if r.State == Reclaiming && len(r.Pending) == 0 {
		r.State = Reclaimed
	}
	if r.State == Reclaimed && r.Wish.Restore {
		r.State = RestoreRunning
	}
	if r.State == RestoreRunning && r.Restored == 0 {
		restored, err := newer.apply(r.Version, r.Wish.Above)
		if err != nil {
			return Reclaim{}, err
		}
		r.Restored, r.Wish.Restore, r.Wish.Above = restored, false, 0
	}
	return r, nil
}

func sortedSKUs(skus []SKU) []SKU {
	return slices.Compact(slices.SortedFunc(slices.Values(skus), SKU.Compare))
}

func without(skus []SKU, gone SKU) []SKU {
	return slices.DeleteFunc(slices.Clone(skus), func(s SKU) bool { return s == gone })
}
