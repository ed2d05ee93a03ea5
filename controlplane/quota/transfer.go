package quota

import (
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
)

// The steps of a transfer.
const (
	StepReturn = "return" // the giver's shard decides
	StepGrant  = "grant"  // the taker's shard applies
)

// TransferFacts is where a transfer stands, by the journal.
type TransferFacts struct {
	Move   core.RebalanceMove
	Return core.Adjustment
	// Grant exists once the book has moved.
	Grant   core.Adjustment
	Granted bool
}

// Do is what a step asks its driver to do.
type Do uint8

// What a driver of this room can be asked to do.
const (
	DoWait   Do = iota + 1 // nothing: say why in Step and Detail
	DoEnd                  // close the operation in State, with Detail
	DoGrant                // transfer: grant the taker, in one transaction
	DoRead                 // limit: read what the cells have available, and step again
	DoShrink               // limit: take what the reserve has
	DoAsk                  // limit: ask the cells of Asks for returns
	DoGiveUp               // limit: leave the limit where it is; Detail says why
)

// Next is the outcome of a step.
type Next struct {
	Do           Do
	State        core.OperationState
	Step, Detail string
	Asks         []Ask
}

func wait(step, format string, args ...any) Next {
	return Next{Do: DoWait, Step: step, Detail: fmt.Sprintf(format, args...)}
}

func end(state core.OperationState, format string, args ...any) Next {
	return Next{Do: DoEnd, State: state, Detail: fmt.Sprintf(format, args...)}
}

// StepTransfer tells what comes next. Pure.
//
//	return                    grant       next
//	open                      -           wait for the giver
//	REFUSED                   -           FAILED: 0 units, the number is used
//	VOIDED                    -           FAILED: the giver was fenced first
//	APPLIED                   none        grant the taker
//	APPLIED                   open        wait for the taker
//	APPLIED                   APPLIED     DONE
//	APPLIED                   REFUSED,    FAILED: the units are in the reserve
//	                          VOIDED
//
// A grant that the book refuses (the taker is not ACTIVE any more, the reserve was
// given away meanwhile) ends the transfer FAILED too: Kept has the words.
func StepTransfer(f TransferFacts) Next {
	r, units := f.Return, f.Move.Units
	switch {
	case r.Open():
		return wait(StepReturn, "cell %s has not answered adjustment %s, number %d", r.Cell, r.ID, r.Number)
	case r.Outcome == core.OutcomeRefused:
		return end(core.OperationFailed, "cell %s has fewer than %s units available: 0 were moved, number %d of fence version %d is used", r.Cell, units, r.Number, r.FenceVersion)
	case r.Outcome == core.OutcomeVoided:
		return end(core.OperationFailed, "cell %s was fenced before it gave up %s units: 0 were moved by this transfer, its reclaim books what it has left", r.Cell, units)
	case !f.Granted:
		return Next{Do: DoGrant, Step: StepGrant}
	case f.Grant.Open():
		return wait(StepGrant, "cell %s has not answered adjustment %s, number %d", f.Grant.Cell, f.Grant.ID, f.Grant.Number)
	case f.Grant.Outcome == core.OutcomeApplied:
		return end(core.OperationDone, "%s units went from %s to %s", units, f.Move.From, f.Move.To)
	}
	return Kept(f.Move, fmt.Sprintf("its grant was %s", f.Grant.Outcome))
}

// Kept ends a transfer whose units left the giver and did not reach the taker.
func Kept(m core.RebalanceMove, why string) Next {
	return end(core.OperationFailed, "%s units of cell %s stay in the reserve: cell %s was not granted them: %s", m.Units, m.From, m.To, why)
}
