package allocator

import (
	"cmp"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
)

// fit brings grants and returns to one sum: forced returns all happen, further
// returns only as far as grants need them, and grants only as far as returns
// cover them.
func fit(forced, returns, grants []Grant) (fitReturns, fitGrants []Grant, err error) {
	give := min(total(grants), total(forced)+total(returns))
	if fitGrants, err = trim(grants, give); err != nil {
		return nil, nil, err
	}
	if fitReturns, err = trim(returns, max(0, give-total(forced))); err != nil {
		return nil, nil, err
	}
	return fitReturns, fitGrants, nil
}

// trim scales a list down to a sum by largest remainder; no entry grows.
// Entries that come to nothing are dropped.
func trim(list []Grant, sum int64) ([]Grant, error) {
	if sum == total(list) {
		return list, nil
	}
	if sum == 0 {
		return nil, nil
	}
	target, err := quantity.New(sum)
	if err != nil {
		return nil, err
	}
	weights := make([]claim, len(list))
	for i, g := range list {
		weights[i] = claim{cell: g.Cell, weight: uint64(g.Units.Int64())}
	}
	shares, err := apportion(target, weights, "cells")
	if err != nil {
		return nil, err
	}
	var out []Grant
	for i, g := range list {
		if !shares[i].IsZero() {
			out = append(out, Grant{Cell: g.Cell, Units: shares[i]})
		}
	}
	return out, nil
}

// total adds up at most MaxCells quantities, far below 2^63.
func total(list []Grant) int64 {
	var sum int64
	for _, g := range list {
		sum += g.Units.Int64()
	}
	return sum
}

// moves puts a list of one kind, ascending by cell id, before others.
func moves(kind MoveKind, list []Grant, others []Move) []Move {
	out := make([]Move, 0, len(list)+len(others))
	for _, g := range list {
		out = append(out, Move{Kind: kind, Cell: g.Cell, Units: g.Units})
	}
	slices.SortFunc(out, func(a, b Move) int { return cmp.Compare(a.Cell, b.Cell) })
	return append(out, others...)
}

// Check verifies the plan's promise: units are neither made nor lost, the
// reserve is not drawn, no cell gives more than it has available, or below its
// need and the margin, or is filled above its need, gives and takes at once,
// takes while leaving, or is touched while frozen, and returns come before
// grants. ErrBroken names what does not hold.
func (p RebalancePlan) Check() error {
	usage := make(map[string]Usage, len(p.Cells))
	for _, c := range p.Cells {
		usage[c.Cell] = c
	}
	sum := p.Reserve.Int64()
	grantsBegan := false
	for _, m := range p.Moves {
		cell, known := usage[m.Cell]
		if !known {
			return broken("cell %q is moved twice or unknown", m.Cell)
		}
		delete(usage, m.Cell)
		if err := checkMove(m, cell, p.Margin); err != nil {
			return err
		}
		switch {
		case m.Kind == GrantUnits:
			grantsBegan = true
			sum -= m.Units.Int64()
		case grantsBegan:
			return broken("the return of cell %q comes after a grant", m.Cell)
		default:
			sum += m.Units.Int64()
		}
	}
	if sum != p.ReserveAfter.Int64() || p.ReserveAfter.Cmp(p.Reserve) < 0 {
		return broken("reserve %s and the moves give %d, the plan says %s", p.Reserve, sum, p.ReserveAfter)
	}
	return nil
}

func checkMove(m Move, cell Usage, margin Percent) error {
	switch {
	case m.Units.IsZero():
		return broken("cell %q is to move nothing", m.Cell)
	case cell.Standing == Frozen:
		return broken("cell %q is frozen", m.Cell)
	case m.Kind == GrantUnits && cell.Standing != Selling:
		return broken("cell %q is granted units while leaving", m.Cell)
	case m.Kind == ReturnUnits && m.Units.Cmp(cell.Available) > 0:
		return broken("cell %q returns %s of %s available", m.Cell, m.Units, cell.Available)
	case m.Kind == ReturnUnits && cell.Standing == Selling && m.Units.Cmp(cell.idle(margin)) > 0:
		return broken("cell %q returns %s and would keep less than its need of %s", m.Cell, m.Units, cell.Need)
	case m.Kind == GrantUnits && cell.Available.Int64()+m.Units.Int64() > cell.Need.Int64():
		return broken("cell %q has %s available, needs %s and is granted %s", m.Cell, cell.Available, cell.Need, m.Units)
	case m.Kind != GrantUnits && m.Kind != ReturnUnits:
		return broken("cell %q has a move of kind %s", m.Cell, m.Kind)
	}
	return nil
}
