package quota

import (
	"fmt"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// StepMoves is the step of a rebalance that has begun: its moves are under way.
const StepMoves = "moves"

// Progress is how far one move of a rebalance got.
type Progress uint8

// The progresses. The zero value is none of them.
const (
	MoveReady   Progress = iota + 1 // its next adjustment is to be written
	MoveAwaited                     // a shard has to answer
	MoveDone                        // the units are where the plan wants them
	MoveSkipped                     // a shard's answer ended it; Standing's words say where the units are
)

// MoveFacts is where one move stands, by the journal.
type MoveFacts struct {
	core.RebalanceMove
	// At is its place in the plan; its adjustments' ids are derived from it.
	At int
	// Return and Grant where they exist.
	Return, Grant  core.Adjustment
	Asked, Granted bool
}

// Standing tells how far the move got, and, where that needs words, why. Pure.
//
//	return            grant       progress
//	none, From given  -           READY: ask the giver
//	open              -           AWAITED: the giver
//	REFUSED, VOIDED   -           SKIPPED: 0 units were moved
//	APPLIED           no To       DONE: the reserve has them
//	APPLIED, no From  none        READY: grant the taker
//	                  open        AWAITED: the taker
//	                  APPLIED     DONE
//	                  REFUSED,    SKIPPED: the units are in the reserve
//	                  VOIDED
func (m MoveFacts) Standing() (Progress, string) {
	if m.From != "" {
		switch r := m.Return; {
		case !m.Asked:
			return MoveReady, ""
		case r.Open():
			return MoveAwaited, unanswered(r)
		case r.Outcome == core.OutcomeRefused:
			return MoveSkipped, fmt.Sprintf("cell %s has fewer available", r.Cell)
		case r.Outcome == core.OutcomeVoided:
			return MoveSkipped, fmt.Sprintf("cell %s was fenced before it gave them up", r.Cell)
		case m.To == "":
			return MoveDone, ""
		}
	}
	switch g := m.Grant; {
	case !m.Granted:
		return MoveReady, ""
	case g.Open():
		return MoveAwaited, unanswered(g)
	case g.Outcome == core.OutcomeApplied:
		return MoveDone, ""
	default:
		return MoveSkipped, fmt.Sprintf("they are in the reserve: the grant of cell %s was %s", g.Cell, g.Outcome)
	}
}

func unanswered(a core.Adjustment) string {
	return fmt.Sprintf("cell %s has not answered adjustment %s, number %d", a.Cell, a.ID, a.Number)
}

// asks tells whether the move's next adjustment is its return.
func (m MoveFacts) asks() bool { return m.From != "" && !m.Asked }

// String names the move.
func (m MoveFacts) String() string {
	return fmt.Sprintf("%s %s from %s to %s", m.SKU, m.Units, place(m.From), place(m.To))
}

func place(cell ids.CellID) string {
	if cell == "" {
		return "the reserve"
	}
	return string(cell)
}

// StepRebalance tells what comes next once everything that could be written has
// been: now says why each move that is still READY was refused. A refused move is
// tried again as long as another one is awaited, and skipped with it. Pure.
func StepRebalance(moves []MoveFacts, now map[int]string) Next {
	var awaited, moved, skipped []string
	var units, planned int64
	for _, m := range moves {
		planned += m.Units.Int64()
		switch progress, why := m.Standing(); progress {
		case MoveAwaited:
			awaited = append(awaited, string(m.SKU)+": "+why)
		case MoveDone:
			units += m.Units.Int64()
			moved = append(moved, m.String())
		case MoveReady:
			skipped = append(skipped, m.String()+": "+m.heldBack(now[m.At]))
		default:
			skipped = append(skipped, m.String()+": "+why)
		}
	}
	if len(awaited) > 0 {
		return wait(StepMoves, "%s", some(awaited))
	}
	detail := fmt.Sprintf("%d of %d units were moved", units, planned)
	if len(moved) > 0 {
		detail += ": " + some(moved)
	}
	if len(skipped) > 0 {
		detail += ". Not moved: " + some(skipped)
	}
	if len(moved) == 0 {
		return end(core.OperationFailed, "%s", detail)
	}
	return end(core.OperationDone, "%s", detail)
}

// heldBack says where the units of a move are that was refused its next step.
func (m MoveFacts) heldBack(why string) string {
	if m.From != "" && m.Asked {
		return "they are in the reserve: " + why
	}
	return why
}

// some lists a few of many, so that a plan of a thousand moves stays readable.
func some(texts []string) string {
	const most = 10
	if len(texts) > most {
		texts = append(texts[:most:most], fmt.Sprintf("and %d more", len(texts)-most))
	}
	return strings.Join(texts, "; ")
}

// Round is what one transaction writes for one SKU of a rebalance.
type Round struct {
	Book core.Book
	// Cells as they are in the transaction, and Read as people read their state.
	Cells map[ids.CellID]core.Cell
	Read  func(core.Cell) core.CellState
	// Owns tells who is home to somebody in the campaign.
	Owns func(ids.CellID) bool
	// Over is why the campaign's units are not moved any more; nil: they are.
	Over error
}

// Add takes one move's next adjustment into the book and gives its step; the
// refusal leaves the round as it was. A giver that nobody hears from is not asked,
// and no giver is asked for a taker who could not take.
func (r *Round) Add(m MoveFacts) (core.Step, error) {
	if r.Over != nil {
		return core.Step{}, r.Over
	}
	if m.To != "" {
		if err := r.mayTake(m.To); err != nil {
			return core.Step{}, err
		}
	}
	var next core.Book
	var step core.Step
	var err error
	if m.asks() {
		next, step, err = r.ask(m)
	} else {
		next, step, err = r.Book.Grant(r.Cells[m.To], m.Units)
	}
	if err == nil {
		r.Book = next
	}
	return step, err
}

func (r *Round) ask(m MoveFacts) (core.Book, core.Step, error) {
	giver, known := r.Cells[m.From]
	switch state := r.Read(giver); {
	case !known:
		return core.Book{}, core.Step{}, fmt.Errorf("%w: %s", core.ErrUnknownCell, m.From)
	case state == core.CellSuspect:
		return core.Book{}, core.Step{}, fmt.Errorf("%w: cell %s is SUSPECT: it would not answer", core.ErrCellState, m.From)
	case m.To != "" && !r.Book.LimitTarget.IsZero():
		return core.Book{}, core.Step{}, core.Lowering(r.Book)
	}
	return r.Book.ProposeReturn(giver, m.Units)
}

func (r *Round) mayTake(id ids.CellID) error {
	cell, known := r.Cells[id]
	if !known {
		return fmt.Errorf("%w: %s", core.ErrUnknownCell, id)
	}
	if err := cell.MayTakeAs(r.Read(cell)); err != nil {
		return err
	}
	if !r.Owns(id) {
		return core.NoBucket(r.Book.Key.Campaign, id)
	}
	return nil
}
