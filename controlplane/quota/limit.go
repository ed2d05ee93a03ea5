package quota

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// The steps of a limit change.
const (
	StepReserve  = "reserve"  // the reserve was taken or added to, with the physical stock
	StepReturns  = "returns"  // cells are asked for what they have available
	StepRecorded = "recorded" // one shard has to record the change
)

// LimitAdjustment explains a change of the limit in the journal.
func LimitAdjustment(id string, after core.Book, actor, reason string, at time.Time) core.Adjustment {
	a := core.Adjustment{
		ID: id, Key: after.Key, Kind: core.KindLimit, Units: after.SaleLimit, State: after.LimitState(), Actor: actor, Reason: reason, CreatedAt: at,
	}
	if !a.Open() { // no cell holds units: nobody has to record it
		a.Outcome = core.OutcomeApplied
	}
	return a
}

// LimitFacts is where a limit change stands.
type LimitFacts struct {
	Target quantity.Quantity // of the operation
	Book   core.Book
	// Over says why the campaign's books are not moved by hand any more; "": they are.
	Over string
	// Reached is what StepReturns said when it was finished; "": it was not.
	Reached string
	// Unrecorded counts the operation's LIMIT adjustments that no shard has recorded.
	Unrecorded int
	// Open are the grants and returns of the book that no shard has answered.
	Open []core.Adjustment
	// Cells is what the cells of the book said; nil: they were not asked.
	Cells []Standing
}

// Standing is one cell's side of a lowering.
type Standing struct {
	Cell            ids.CellID
	Sold, Available quantity.Quantity // sold or reserved; what it could return
	// Unknown says why the cell cannot be asked now although it may have units; "":
	// Available counts.
	Unknown string
}

// Ask is a return to propose.
type Ask struct {
	Cell  ids.CellID
	Units quantity.Quantity
}

// StepLimit tells what comes next. Pure. In this order:
//
//  0. the book is settled → DONE, the limit stays where it is: nothing is written into
//     an account that was taken
//  1. no target stands: it is recorded by a shard → DONE, else wait
//  2. the campaign is over → give up, the limit stays where it is
//  3. the reserve has units → take them
//  4. returns for the whole rest are under way → wait
//  5. the cells were not asked → read
//  6. cells have units available → ask them, in proportion
//  7. a cell may have some and cannot be asked, or an answer is awaited → wait
//  8. nothing is available any more: the floor → give up there, and name it
func StepLimit(f LimitFacts) Next {
	b := f.Book
	switch {
	case b.Settled:
		return end(core.OperationDone, "%s", cmp.Or(f.Reached, fmt.Sprintf("sale_limit is %s: the campaign is settled", b.SaleLimit)))
	case b.LimitTarget.IsZero() && f.Unrecorded > 0:
		return wait(StepRecorded, "no shard has recorded that sale_limit is %s", b.SaleLimit)
	case b.LimitTarget.IsZero() && f.Reached != "":
		return end(core.OperationDone, "%s", f.Reached)
	case b.LimitTarget.IsZero():
		return end(core.OperationDone, "sale_limit is %s", b.SaleLimit)
	case f.Over != "":
		return f.giveUp(f.Over)
	case !b.Reserve.IsZero():
		return Next{Do: DoShrink, Step: StepReturns}
	}
	missing := b.SaleLimit.Int64() - b.LimitTarget.Int64() - f.underWay("")
	if missing <= 0 {
		return wait(StepReturns, "sale_limit is %s: %d units are asked of cells", b.SaleLimit, f.underWay(""))
	}
	if f.Cells == nil {
		return Next{Do: DoRead, Step: StepReturns}
	}
	if asks := f.asks(missing); len(asks) > 0 {
		return Next{Do: DoAsk, Step: StepReturns, Asks: asks}
	}
	if unknown := f.unknown(); unknown != "" {
		return wait(StepReturns, "sale_limit is %s, %d units above its target: %s", b.SaleLimit, missing, unknown)
	}
	return f.giveUp("no cell has a unit available")
}

// giveUp names what was reached and the floor.
func (f LimitFacts) giveUp(why string) Next {
	var sold int64
	for _, c := range f.Cells {
		sold += c.Sold.Int64()
	}
	floor := ""
	if f.Cells != nil {
		floor = fmt.Sprintf("; the floor is %d, sold and reserved", sold)
	}
	return Next{Do: DoGiveUp, Step: StepRecorded, Detail: fmt.Sprintf("sale_limit is %s, not %s: %s%s", f.Book.SaleLimit, f.Target, why, floor)}
}

// underWay sums the open returns of one cell, or of all for "".
func (f LimitFacts) underWay(cell ids.CellID) int64 {
	var sum int64
	for _, a := range f.Open {
		if a.Kind == core.KindReturn && (cell == "" || a.Cell == cell) {
			sum += a.Units.Int64()
		}
	}
	return sum
}

// asks shares what is missing among the cells, in proportion to what they have
// available and nobody asked for yet; in order of cells.
func (f LimitFacts) asks(missing int64) []Ask {
	var free []allocator.CellWeight
	var total int64
	for _, c := range f.Cells {
		n := c.Available.Int64() - f.underWay(c.Cell)
		if a, held := f.Book.Allocation(c.Cell); held {
			n = min(n, a.Granted.Int64()-a.WrittenOff.Int64()-f.underWay(c.Cell))
		}
		if c.Unknown == "" && n > 0 {
			free = append(free, allocator.CellWeight{Cell: string(c.Cell), Weight: uint32(n)}) // n <= 1,000,000,000
			total += n
		}
	}
	if total == 0 {
		return nil
	}
	plan, err := allocator.Redistribute(quantity.Must(min(missing, total)), free)
	if err != nil {
		return nil // only a cell listed twice or an unheard-of weight: nobody is asked
	}
	var asks []Ask
	for _, g := range plan.Grants {
		if !g.Units.IsZero() {
			asks = append(asks, Ask{Cell: ids.CellID(g.Cell), Units: g.Units})
		}
	}
	slices.SortFunc(asks, func(a, b Ask) int { return strings.Compare(string(a.Cell), string(b.Cell)) })
	return asks
}

// unknown lists what may still bring units, few of it.
func (f LimitFacts) unknown() string {
	var why []string
	for _, c := range f.Cells {
		if c.Unknown != "" {
			why = append(why, fmt.Sprintf("cell %s %s", c.Cell, c.Unknown))
		}
	}
	for _, a := range f.Open {
		why = append(why, fmt.Sprintf("cell %s has not answered adjustment %s", a.Cell, a.ID))
	}
	const most = 5
	if len(why) > most {
		why = append(why[:most], fmt.Sprintf("and %d more", len(why)-most))
	}
	return strings.Join(why, "; ")
}
