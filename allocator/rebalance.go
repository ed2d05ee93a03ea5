package allocator

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
)

// Standing says what a rebalance may do with a cell.
type Standing uint8

// The standings. The zero value is none of them.
const (
	Selling Standing = iota + 1 // may give and take
	Leaving                     // gives everything it has available: it owns no bucket of the campaign
	Frozen                      // is not touched: suspect, fenced, or its last report is too old
)

// Usage is the last known use of a SKU by one cell.
type Usage struct {
	Cell      string
	Granted   quantity.Quantity // the book's allocation
	Available quantity.Quantity // of it, neither reserved nor confirmed; at most Granted
	// Need is what a Selling cell is expected to sell within the horizon: its own
	// rate of demand × the horizon, rounded up. It never gives below it.
	Need     quantity.Quantity
	Standing Standing
}

// Rebalance asks how to spread the available units of a SKU anew.
type Rebalance struct {
	Reserve quantity.Quantity
	Cells   []Usage // 1 to MaxCells, in any order
	// Margin of Need, rounded up, that a giver keeps on top of it: between Need and Need +
	// Margin a cell neither gives nor takes, so that a rate that wavers does not
	// send units to and fro.
	Margin Percent
	// MinMove is the smallest surplus that is worth asking for and the smallest
	// lack that is worth filling; 0 and 1 are the same.
	MinMove quantity.Quantity
}

// MoveKind is the direction of a move, seen from the reserve.
type MoveKind uint8

// The kinds. The zero value is none of them.
const (
	ReturnUnits MoveKind = iota + 1 // cell → reserve
	GrantUnits                      // reserve → cell
)

// String gives the adjustment kind that carries the move out.
func (k MoveKind) String() string {
	switch k {
	case ReturnUnits:
		return "RETURN"
	case GrantUnits:
		return "GRANT"
	}
	return fmt.Sprintf("MoveKind(%d)", uint8(k))
}

// Move is one return or grant, of at least 1 unit.
type Move struct {
	Kind  MoveKind
	Cell  string
	Units quantity.Quantity
}

// RebalancePlan is a proposal: returns first, then grants, each ascending by
// cell id. Grants are covered by the returns; a return that its cell refuses
// (it sold the units meanwhile) leaves a grant short, never a sum wrong.
type RebalancePlan struct {
	Reserve      quantity.Quantity // before
	ReserveAfter quantity.Quantity // never smaller: larger by what nobody could take
	Moves        []Move
	Margin       Percent
	Cells        []Usage // what it was decided from, ascending by cell id
}

// PlanRebalance proposes moves from cells with idle units to cells that lack
// some. A Selling cell is idle by what it has available above Need + Margin, and
// lacks what it has available less than Need. As much is moved as both sides
// have: the smaller side is served whole, the larger one by largest remainder in
// proportion to what each has too much or too little. So nobody gives below its
// own need, nobody is filled above it, and a plan that was carried out leaves
// nothing to plan: either all that is idle moved, or all that was lacking came.
//
// Leaving cells give everything, before idle ones, and what nobody lacks of it
// goes to the reserve. Frozen cells are left alone. The reserve is not drawn:
// that is PlanRound's work.
//
// Errors: *Error with ErrNoCells, ErrTooManyCells, ErrCellUnnamed,
// ErrDuplicateCell, ErrStanding, ErrAvailable; quantity.ErrTooLarge where the
// reserve after the plan would be above quantity.Max.
func PlanRebalance(r Rebalance) (RebalancePlan, error) {
	if err := checkUsage(r.Cells); err != nil {
		return RebalancePlan{}, err
	}
	cells := slices.SortedFunc(slices.Values(r.Cells), func(a, b Usage) int { return cmp.Compare(a.Cell, b.Cell) })
	plan := RebalancePlan{Reserve: r.Reserve, Margin: r.Margin, Cells: cells}

	// 1. Wish: everything of the leaving cells; each selling cell's surplus or lack.
	forced := leavingReturns(cells)
	returns, grants := wishes(cells, r.Margin, r.MinMove)
	// 2. Fit: grants and returns are brought to one sum. What only leaving cells
	// give beyond the grants stays in the reserve.
	returns, grants, err := fit(forced, returns, grants)
	if err != nil {
		return RebalancePlan{}, err
	}
	// 3. Write down.
	plan.Moves = moves(ReturnUnits, append(forced, returns...), moves(GrantUnits, grants, nil))
	after := r.Reserve.Int64() + total(forced) + total(returns) - total(grants)
	if plan.ReserveAfter, err = quantity.New(after); err != nil {
		return RebalancePlan{}, fmt.Errorf("the reserve after the rebalance: %w", err)
	}
	if err := plan.Check(); err != nil {
		return RebalancePlan{}, err
	}
	return plan, nil
}

func checkUsage(cells []Usage) error {
	if err := checkNames(len(cells), func(i int) string { return cells[i].Cell }); err != nil {
		return err
	}
	for i, c := range cells {
		if c.Standing < Selling || c.Standing > Frozen {
			return invalid(fmt.Sprintf("cells[%d].standing", i), ErrStanding, "%d", c.Standing)
		}
		if c.Available.Cmp(c.Granted) > 0 {
			return invalid(fmt.Sprintf("cells[%d].available", i), ErrAvailable, "%s of %s", c.Available, c.Granted)
		}
	}
	return nil
}

func leavingReturns(cells []Usage) []Grant {
	var out []Grant
	for _, c := range cells {
		if c.Standing == Leaving && !c.Available.IsZero() {
			out = append(out, Grant{Cell: c.Cell, Units: c.Available})
		}
	}
	return out
}

// wishes lists the surplus and the lack of each selling cell, small ones dropped.
func wishes(cells []Usage, margin Percent, minMove quantity.Quantity) (returns, grants []Grant) {
	for _, c := range cells {
		if c.Standing != Selling {
			continue
		}
		if lack, err := c.Need.Sub(c.Available); err == nil {
			grants = appendMove(grants, c.Cell, lack, minMove)
			continue
		}
		returns = appendMove(returns, c.Cell, c.idle(margin), minMove)
	}
	return returns, grants
}

// idle is what a selling cell has available above its need and the margin.
func (c Usage) idle(margin Percent) quantity.Quantity {
	keep, err := c.Need.Add(margin.ofUp(c.Need))
	if err != nil {
		return quantity.Quantity{} // it is to keep more than a quantity can be
	}
	idle, err := c.Available.Sub(keep)
	if err != nil {
		return quantity.Quantity{}
	}
	return idle
}

func appendMove(list []Grant, cell string, units, minMove quantity.Quantity) []Grant {
	if units.IsZero() || units.Cmp(minMove) < 0 {
		return list
	}
	return append(list, Grant{Cell: cell, Units: units})
}
