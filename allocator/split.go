package allocator

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
)

// Policy says by what a split is decided.
type Policy uint8

// The policies of campaign.yaml. The zero value is none of them.
const (
	Equal    Policy = iota + 1 // every cell the same, to the unit
	Weighted                   // by Share.Weight
	Explicit                   // exactly Share.Units
	Demand                     // by Share.Demand; by Share.Weight where no demand was seen
)

var policyNames = [...]string{Equal: "EQUAL", Weighted: "WEIGHTED", Explicit: "EXPLICIT", Demand: "DEMAND"}

// Policies lists every policy.
func Policies() []Policy { return []Policy{Equal, Weighted, Explicit, Demand} }

// ParsePolicy reads a policy as campaign.yaml writes it.
func ParsePolicy(text string) (Policy, error) {
	for _, p := range Policies() {
		if text == p.String() {
			return p, nil
		}
	}
	return 0, invalid("split.policy", ErrPolicy, "%.40q", text)
}

// String gives the word of campaign.yaml.
func (p Policy) String() string {
	if p >= Equal && int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Share is one cell of a split and its claim. Only the field that the policy
// names is read; under DEMAND the weights too, where no cell has demand.
type Share struct {
	Cell   string
	Weight uint32            // WEIGHTED, and DEMAND without demand: relative; 0 gets nothing
	Units  quantity.Quantity // EXPLICIT: the grant itself
	Demand uint64            // DEMAND: expected sales, relative; 0 gets nothing
}

// Request asks for a split of Limit - Reserve over Cells.
type Request struct {
	Limit   quantity.Quantity // sale_limit
	Reserve quantity.Quantity // kept back; at most Limit
	Policy  Policy
	Cells   []Share // 1 to MaxCells, in any order
}

// Grant is what a plan gives one cell. 0 is possible and stays listed.
type Grant struct {
	Cell  string
	Units quantity.Quantity
}

// Plan is a decided split. Its fields are for reading; who edits a copy calls
// Check before believing it.
type Plan struct {
	Limit   quantity.Quantity
	Reserve quantity.Quantity
	Policy  Policy
	Grants  []Grant // one per cell of the request, ascending by cell id
	// ByWeight: the policy is DEMAND, no cell had demand, and the weights decided.
	ByWeight bool
}

// Split decides who gets how much. The result does not depend on the order of
// r.Cells. Errors are *Error; all wrap ErrInvalid and one of ErrNoCells,
// ErrTooManyCells, ErrCellUnnamed, ErrDuplicateCell, ErrReserveAboveLimit,
// ErrNoWeight, ErrWeightSum, ErrExplicitSum, ErrPolicy.
func Split(r Request) (Plan, error) {
	if err := checkNames(len(r.Cells), func(i int) string { return r.Cells[i].Cell }); err != nil {
		return Plan{}, err
	}
	toGrant, err := r.Limit.Sub(r.Reserve)
	if err != nil {
		return Plan{}, invalid("reserve", ErrReserveAboveLimit, "reserve %s, sale_limit %s", r.Reserve, r.Limit)
	}
	cells := slices.SortedFunc(slices.Values(r.Cells), func(a, b Share) int { return cmp.Compare(a.Cell, b.Cell) })
	byWeight := r.Policy == Demand && !demanded(cells)
	by := r.Policy
	if byWeight {
		by = Weighted
	}
	units, err := decide(by, toGrant, cells)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Limit: r.Limit, Reserve: r.Reserve, Policy: r.Policy, Grants: make([]Grant, len(cells)), ByWeight: byWeight}
	for i, c := range cells {
		plan.Grants[i] = Grant{Cell: c.Cell, Units: units[i]}
	}
	if err := plan.Check(); err != nil {
		return Plan{}, err
	}
	return plan, nil
}

// demanded tells whether any cell has demand.
func demanded(cells []Share) bool {
	return slices.ContainsFunc(cells, func(s Share) bool { return s.Demand > 0 })
}

// decide gives the units of each cell, in the order of cells.
func decide(policy Policy, toGrant quantity.Quantity, cells []Share) ([]quantity.Quantity, error) {
	switch policy {
	case Equal:
		return apportion(toGrant, claims(cells, func(Share) uint64 { return 1 }), "cells")
	case Weighted:
		return apportion(toGrant, claims(cells, func(s Share) uint64 { return uint64(s.Weight) }), "split.weights")
	case Demand:
		return apportion(toGrant, claims(cells, func(s Share) uint64 { return s.Demand }), "split.demand")
	case Explicit:
		return explicit(toGrant, cells)
	}
	return nil, invalid("split.policy", ErrPolicy, "%s", policy)
}

func claims(cells []Share, weight func(Share) uint64) []claim {
	out := make([]claim, len(cells))
	for i, c := range cells {
		out[i] = claim{cell: c.Cell, weight: weight(c)}
	}
	return out
}

func explicit(toGrant quantity.Quantity, cells []Share) ([]quantity.Quantity, error) {
	units := make([]quantity.Quantity, len(cells))
	var named int64 // at most MaxCells × quantity.Max: far below 2^63
	for i, c := range cells {
		units[i] = c.Units
		named += c.Units.Int64()
	}
	if named != toGrant.Int64() {
		return nil, invalid("split.units", ErrExplicitSum, "a sum of %d where %s are to be granted", named, toGrant)
	}
	return units, nil
}

// Check verifies the plan's promise: the grants and the reserve add up to the
// limit exactly (I1), cells ascend without repetition, and under EQUAL no two
// grants differ by more than one unit. ErrBroken names what does not hold.
func (p Plan) Check() error {
	total := p.Reserve.Int64()
	for i, g := range p.Grants {
		if g.Cell == "" || i > 0 && g.Cell <= p.Grants[i-1].Cell {
			return broken("cell %q is out of order, unnamed or repeated", g.Cell)
		}
		total += g.Units.Int64()
	}
	if total != p.Limit.Int64() {
		return broken("reserve %s and the grants add up to %d, sale_limit is %s", p.Reserve, total, p.Limit)
	}
	if p.Policy != Equal || len(p.Grants) == 0 {
		return nil
	}
	least, most := p.bounds()
	if most.Int64()-least.Int64() > 1 {
		return broken("EQUAL grants range from %s to %s", least, most)
	}
	return nil
}

func (p Plan) bounds() (least, most quantity.Quantity) {
	byUnits := func(a, b Grant) int { return a.Units.Cmp(b.Units) }
	return slices.MinFunc(p.Grants, byUnits).Units, slices.MaxFunc(p.Grants, byUnits).Units
}

// Units gives what the plan grants to a cell, 0 for a cell it does not name.
func (p Plan) Units(cell string) quantity.Quantity {
	at, found := slices.BinarySearchFunc(p.Grants, cell, func(g Grant, id string) int { return cmp.Compare(g.Cell, id) })
	if !found {
		return quantity.Quantity{}
	}
	return p.Grants[at].Units
}
