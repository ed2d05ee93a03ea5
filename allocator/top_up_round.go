package allocator

import (
	"cmp"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
)

// Shelf is what one cell has left of a SKU, for a round of top-ups.
type Shelf struct {
	Cell       string
	FirstGrant quantity.Quantity // what the cell was granted at publish
	Available  quantity.Quantity // its last reported available
}

// Round asks for one round of top-ups of a SKU: every cell that may be granted
// units now. The caller leaves out the others, as for TopUp.
type Round struct {
	Reserve     quantity.Quantity // the present central reserve
	LowWaterPct Percent           // of Shelf.FirstGrant: at or below it a cell is low
	TranchePct  Percent           // of the present reserve: the size of one tranche
	Cells       []Shelf           // 0 to MaxCells, in any order
}

// RoundPlan is a decided round.
type RoundPlan struct {
	Reserve      quantity.Quantity // before
	ReserveAfter quantity.Quantity
	Grants       []Grant // of at least 1 unit, to low cells only, ascending by cell id
	Low          int     // cells that are low; more than Grants when the reserve ran out
}

// PlanRound tops up every low cell at once and fairly. The units of the round
// are what one Tranche after the other, each of the reserve that the one before
// left, would come to: so they shrink with the reserve (G-06), whatever the
// number of low cells. But they are shared equally, because who happens to be
// decided first must not get more; where they do not divide, and where fewer
// units are left than cells are low, the emptiest cells come first (least
// available, ties by cell id). The order of r.Cells changes nothing.
//
// Errors: *Error with ErrTooManyCells, ErrCellUnnamed, ErrDuplicateCell. No cell
// at all is an empty plan.
func PlanRound(r Round) (RoundPlan, error) {
	if len(r.Cells) > 0 {
		if err := checkNames(len(r.Cells), func(i int) string { return r.Cells[i].Cell }); err != nil {
			return RoundPlan{}, err
		}
	}
	low := lowest(r)
	units, left := drawn(r, len(low))
	plan := RoundPlan{Reserve: r.Reserve, ReserveAfter: left, Low: len(low)}
	for i, s := range low {
		share := units / int64(len(low))
		if int64(i) < units%int64(len(low)) {
			share++
		}
		if share == 0 {
			break
		}
		q, err := quantity.New(share)
		if err != nil {
			return RoundPlan{}, err // cannot be: a share is at most the reserve
		}
		plan.Grants = append(plan.Grants, Grant{Cell: s.Cell, Units: q})
	}
	slices.SortFunc(plan.Grants, func(a, b Grant) int { return cmp.Compare(a.Cell, b.Cell) })
	return plan, plan.Check()
}

// lowest gives the low cells, the emptiest first.
func lowest(r Round) []Shelf {
	var low []Shelf
	for _, s := range r.Cells {
		if s.Available.Cmp(r.LowWaterPct.Of(s.FirstGrant)) <= 0 {
			low = append(low, s)
		}
	}
	slices.SortFunc(low, func(a, b Shelf) int { return cmp.Or(a.Available.Cmp(b.Available), cmp.Compare(a.Cell, b.Cell)) })
	return low
}

// drawn gives the sum of n tranches, one after the other, and what they leave.
func drawn(r Round, n int) (units int64, left quantity.Quantity) {
	left = r.Reserve
	for range n {
		part, reason := Tranche(TopUp{Reserve: left, LowWaterPct: r.LowWaterPct, TranchePct: r.TranchePct})
		if reason != TopUpDue {
			break
		}
		rest, err := left.Sub(part)
		if err != nil {
			break // cannot be: a tranche is at most the reserve
		}
		left = rest
		units += part.Int64()
	}
	return units, left
}

// Check verifies the plan's promise: what is granted is what left the reserve,
// nobody gets nothing, cells ascend, and no two grants differ by more than one
// unit. ErrBroken names what does not hold.
func (p RoundPlan) Check() error {
	sum, least, most := p.ReserveAfter.Int64(), int64(quantity.Max), int64(0)
	for i, g := range p.Grants {
		switch {
		case g.Cell == "" || i > 0 && g.Cell <= p.Grants[i-1].Cell:
			return broken("cell %q is out of order, unnamed or repeated", g.Cell)
		case g.Units.IsZero():
			return broken("cell %q is to be granted nothing", g.Cell)
		}
		least, most = min(least, g.Units.Int64()), max(most, g.Units.Int64())
		sum += g.Units.Int64()
	}
	if len(p.Grants) > 0 && most-least > 1 {
		return broken("grants of one round range from %d to %d", least, most)
	}
	if sum != p.Reserve.Int64() || len(p.Grants) > p.Low {
		return broken("reserve %s, after the round %s, and %d grants to %d low cells come to %d", p.Reserve, p.ReserveAfter, len(p.Grants), p.Low, sum)
	}
	return nil
}
