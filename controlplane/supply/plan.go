package supply

import (
	"fmt"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// MaxMoves bounds one plan.
const MaxMoves = core.MaxRebalanceMoves

// marginPermille of its need is what a giver keeps on top of it: a rate that
// wavers by a quarter moves nothing back.
const marginPermille = 250

// TopUps gives the next round of top-ups of a SKU: to the Selling cells that are at
// or below the low water of their first grant. An empty plan where nobody is low,
// or nothing is left.
func TopUps(book core.Book, rules core.TopUpRules, positions []Position, r Rules) (allocator.RoundPlan, error) {
	low, err := allocator.Permille("top_up.low_water", rules.LowWaterPermille)
	if err != nil {
		return allocator.RoundPlan{}, err
	}
	tranche, err := allocator.Permille("top_up.tranche", rules.TranchePermille)
	if err != nil {
		return allocator.RoundPlan{}, err
	}
	round := allocator.Round{Reserve: book.Reserve, LowWaterPct: low, TranchePct: tranche}
	for _, p := range positions {
		if standing, _ := p.Standing(r); standing == allocator.Selling {
			round.Cells = append(round.Cells, allocator.Shelf{
				Cell: string(p.ID()), FirstGrant: p.Allocation.FirstGrant, Available: p.Report.Stock.Available,
			})
		}
	}
	return allocator.PlanRound(round)
}

// Plan is a proposed rebalance of one SKU.
type Plan struct {
	Moves []core.RebalanceMove
	// Skipped says which cells were left alone and why, in the order of positions.
	Skipped []string
}

// Rebalance proposes moves for one SKU. leavingOnly takes only what cells without a
// bucket still have, which needs no policy: nobody could buy it there.
func Rebalance(book core.Book, positions []Position, r Rules, leavingOnly bool) (Plan, error) {
	margin, err := allocator.Permille("margin", marginPermille)
	if err != nil {
		return Plan{}, err
	}
	in := allocator.Rebalance{Reserve: book.Reserve, Margin: margin, MinMove: quantity.Must(1)}
	var plan Plan
	for _, p := range positions {
		standing, why := p.Standing(r)
		if standing == allocator.Selling && !p.Report.Rate.Known() {
			standing, why = allocator.Frozen, "its demand was not measured for a whole window yet"
		}
		if why != "" {
			plan.Skipped = append(plan.Skipped, fmt.Sprintf("%s: cell %s: %s", book.Key.SKU, p.ID(), why))
		}
		if standing == allocator.Frozen || leavingOnly && standing != allocator.Leaving {
			continue
		}
		in.Cells = append(in.Cells, allocator.Usage{
			Cell: string(p.ID()), Granted: p.Allocation.Granted, Available: p.Report.Stock.Available,
			Need: p.Report.Rate.Need(r.Horizon), Standing: standing,
		})
	}
	if len(in.Cells) == 0 {
		return plan, nil
	}
	decided, err := allocator.PlanRebalance(in)
	if err != nil {
		return Plan{}, err
	}
	plan.Moves, err = pair(book.Key.SKU, decided, r.Horizon)
	return plan, err
}

// pair makes moves from cell to cell out of returns and grants, both in their
// order. Their units are equal but for what leaving cells give to the reserve.
func pair(sku ids.SKUID, plan allocator.RebalancePlan, horizon time.Duration) ([]core.RebalanceMove, error) {
	usage := map[string]allocator.Usage{}
	for _, u := range plan.Cells {
		usage[u.Cell] = u
	}
	var grants []allocator.Move
	for _, m := range plan.Moves {
		if m.Kind == allocator.GrantUnits {
			grants = append(grants, m)
		}
	}
	var out []core.RebalanceMove
	for _, m := range plan.Moves {
		if m.Kind != allocator.ReturnUnits {
			continue
		}
		for left := m.Units; !left.IsZero() && len(out) < MaxMoves; {
			units, to := left, ""
			if len(grants) > 0 {
				units, to = quantity.Min(left, grants[0].Units), grants[0].Cell
			}
			out = append(out, core.RebalanceMove{SKU: sku, From: ids.CellID(m.Cell), To: ids.CellID(to), Units: units, Why: why(usage[m.Cell], usage[to], horizon)})
			var err error
			if left, err = left.Sub(units); err != nil {
				return nil, err
			}
			if to == "" {
				continue
			}
			if grants[0].Units, err = grants[0].Units.Sub(units); err != nil {
				return nil, err
			}
			if grants[0].Units.IsZero() {
				grants = grants[1:]
			}
		}
	}
	return out, nil
}

// why is the reason of one move, with its numbers.
func why(from, to allocator.Usage, horizon time.Duration) string {
	gives := fmt.Sprintf("%s has %s and needs %s within %s", from.Cell, from.Available, from.Need, horizon)
	if from.Standing == allocator.Leaving {
		gives = fmt.Sprintf("%s owns no bucket and has %s", from.Cell, from.Available)
	}
	if to.Cell == "" {
		return gives
	}
	return fmt.Sprintf("%s; %s has %s and needs %s", gives, to.Cell, to.Available, to.Need)
}
