package supply

import (
	"fmt"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// Position is one cell in the supply of one SKU.
type Position struct {
	Cell       core.Cell
	State      core.CellState // as people read it: SUSPECT without a live process
	Owns       bool           // home to somebody in the campaign
	Allocation core.Allocation
	Report     Report
	Reported   bool // false: no report under this leader
	// Barred is why the cell may be sent nothing now, in words; "": nothing bars it.
	Barred string
}

// ID gives the cell's id.
func (p Position) ID() ids.CellID { return p.Cell.Spec.ID }

// Rules say when a report is believed and how far ahead needs are counted.
type Rules struct {
	Now        time.Time
	StaleAfter time.Duration
	// Horizon of a rebalance.
	Horizon time.Duration
}

// fit gives why the cell must be left alone, in words, or "".
func (p Position) fit(r Rules) string {
	last := p.Report.Stock
	switch {
	case p.State != core.CellActive:
		return "the cell is " + p.State.String()
	case p.Cell.Paused:
		return "an operator paused it"
	case p.Cell.ProofID != "" && !p.Cell.Reclaimed:
		return "what its fence proved is not booked yet"
	case p.Barred != "":
		return p.Barred
	case !p.Reported:
		return "no report of it came to this leader"
	case r.Now.Sub(p.Report.At) > r.StaleAfter:
		return fmt.Sprintf("its last report is %s old", r.Now.Sub(p.Report.At).Round(100*time.Millisecond))
	case p.Report.FenceVersion != p.Cell.FenceVersion:
		return fmt.Sprintf("its report is of fence version %d, the cell is at %d", p.Report.FenceVersion, p.Cell.FenceVersion)
	case !applied(p.Allocation, last):
		return fmt.Sprintf("adjustment %d is not applied yet, its report knows %d", p.Allocation.LastNumber, last.LastNumber)
	case last.Available.Cmp(p.Allocation.Granted) > 0:
		return fmt.Sprintf("it reports %s available of the %s that the book allocates", last.Available, p.Allocation.Granted)
	}
	return ""
}

// applied tells whether the facts hold every step that the book counted.
func applied(a core.Allocation, s core.StockFacts) bool {
	return a.LastNumber == 0 || s.AdjustmentVersion > a.FenceVersion || s.AdjustmentVersion == a.FenceVersion && s.LastNumber >= a.LastNumber
}

// Standing says what may be done with the cell, and why it is left alone.
func (p Position) Standing(r Rules) (allocator.Standing, string) {
	switch why := p.fit(r); {
	case why != "":
		return allocator.Frozen, why
	case !p.Owns:
		return allocator.Leaving, ""
	}
	return allocator.Selling, ""
}
