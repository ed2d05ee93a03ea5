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
	Leaving                     // gives everything it has available: draining, or owns no bucket of the campaign
	Frozen                      // is not touched: suspect, fenced, or its last report is too old
)

// Usage is the last known use of a SKU by one cell.
type Usage struct {
	Cell      string
	Granted   quantity.Quantity // the book's allocation
	Available quantity.Quantity // of it, neither reserved nor confirmed; at most Granted
	Demand    uint64            // expected sales, relative; a Selling cell with 0 expects none
	Standing  Standing
}

// Rebalance asks how to spread the available units of a SKU anew.
type Rebalance struct {
	Reserve quantity.Quantity
	Cells   []Usage // 1 to MaxCells, in any order
	// MinMove is the smallest move between Selling cells that is worth making;
	// it keeps an automatic rebalance from moving single units for ever.
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
	Cells        []Usage // what it was decided from, ascending by cell id
}

// PlanRebalance proposes moves that bring what the Selling cells have available
// near to their share of all that can move, by demand, largest remainder.
// Leaving cells give everything; Frozen ones are left alone; the reserve is not
// drawn (that is Tranche's work). Without any demand only Leaving cells give.
// Errors: *Error with ErrNoCells, ErrTooManyCells, ErrCellUnnamed,
// ErrDuplicateCell, ErrStanding, ErrAvailable, ErrWeightSum; quantity.ErrTooLarge
// where all that could move is above quantity.Max.
func PlanRebalance(r Rebalance) (RebalancePlan, error) {
	if err := checkUsage(r.Cells); err != nil {
		return RebalancePlan{}, err
	}
	cells := slices.SortedFunc(slices.Values(r.Cells), func(a, b Usage) int { return cmp.Compare(a.Cell, b.Cell) })
	plan := RebalancePlan{Reserve: r.Reserve, Cells: cells}

	// 1. Wish: everything of the leaving cells, and the difference to its target
	// of each selling cell, small differences dropped.
	forced := leavingReturns(cells)
	returns, grants, err := wishes(cells, forced, r.MinMove)
	if err != nil {
		return RebalancePlan{}, err
	}
	// 2. Fit: grants and returns are brought to one sum. What only leaving cells
	// give beyond the grants stays in the reserve.
	if returns, grants, err = fit(forced, returns, grants); err != nil {
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

// wishes compares each selling cell with its target.
func wishes(cells []Usage, forced []Grant, minMove quantity.Quantity) (returns, grants []Grant, err error) {
	var selling []claim
	have := map[string]quantity.Quantity{}
	pool := total(forced)
	var demand bool
	for _, c := range cells {
		if c.Standing == Selling {
			selling = append(selling, claim{cell: c.Cell, weight: c.Demand})
			have[c.Cell] = c.Available
			pool += c.Available.Int64()
			demand = demand || c.Demand > 0
		}
	}
	if !demand {
		return nil, nil, nil
	}
	movable, err := quantity.New(pool)
	if err != nil {
		return nil, nil, fmt.Errorf("the units that could move: %w", err)
	}
	targets, err := apportion(movable, selling, "cells[].demand")
	if err != nil {
		return nil, nil, err
	}
	for i, c := range selling {
		if less, err := have[c.cell].Sub(targets[i]); err == nil {
			returns = appendMove(returns, c.cell, less, minMove)
		} else if more, err := targets[i].Sub(have[c.cell]); err == nil {
			grants = appendMove(grants, c.cell, more, minMove)
		}
	}
	return returns, grants, nil
}

func appendMove(list []Grant, cell string, units, minMove quantity.Quantity) []Grant {
	if units.IsZero() || units.Cmp(minMove) < 0 {
		return list
	}
	return append(list, Grant{Cell: cell, Units: units})
}
