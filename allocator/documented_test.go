package allocator_test

import (
	"fmt"
	"testing"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
)

// The examples of docs/reference/allocation.md.
func TestTheDocumentedNumbers(t *testing.T) {
	q := quantity.Must
	split := func(limit, reserve int64, policy allocator.Policy, figures ...uint64) (out []int64) {
		var cells []allocator.Share
		for i, n := range figures {
			cells = append(cells, allocator.Share{Cell: fmt.Sprintf("cell-%d", i+1), Weight: uint32(n), Demand: n})
		}
		plan, err := allocator.Split(allocator.Request{Limit: q(limit), Reserve: q(reserve), Policy: policy, Cells: cells})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range plan.Grants {
			out = append(out, g.Units.Int64())
		}
		return out
	}
	round := func(reserve int64, available ...int64) (out []int64) {
		r := allocator.Round{Reserve: q(reserve), LowWaterPct: percent(t, "10%"), TranchePct: percent(t, "5%")}
		for i, n := range available {
			r.Cells = append(r.Cells, allocator.Shelf{Cell: fmt.Sprintf("cell-%d", i+1), FirstGrant: q(1_000), Available: q(n)})
		}
		plan, err := allocator.PlanRound(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range plan.Grants {
			out = append(out, g.Units.Int64())
		}
		return out
	}
	moves := func(cells ...allocator.Usage) (out []int64) {
		plan, err := allocator.PlanRebalance(allocator.Rebalance{Cells: cells, Margin: percent(t, "25%"), MinMove: q(1)})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range plan.Moves {
			out = append(out, m.Units.Int64())
		}
		return out
	}
	for name, row := range map[string]struct{ got, want []int64 }{
		"weights 1 and 2":   {split(10_000, 400, allocator.Weighted, 1, 2), []int64{3_200, 6_400}},
		"three equal":       {split(10, 0, allocator.Equal, 1, 1, 1), []int64{4, 3, 3}},
		"demand 300, 100":   {split(10_000, 400, allocator.Demand, 300, 100), []int64{7_200, 2_400}},
		"two cells low":     {round(400, 0, 100), []int64{20, 19}},
		"at low water":      {round(400, 101), nil},
		"the last three":    {round(3, 5, 4, 3, 2, 1), []int64{1, 1, 1}},
		"what cell-2 lacks": {moves(usage("cell-1", 1_000, 800, 80, allocator.Selling), usage("cell-2", 1_000, 20, 100, allocator.Selling)), []int64{80, 80}},
		"all that is idle":  {moves(usage("cell-1", 1_000, 800, 80, allocator.Selling), usage("cell-2", 1_000, 0, 1_000, allocator.Selling)), []int64{700, 700}},
	} {
		if fmt.Sprint(row.got) != fmt.Sprint(row.want) {
			t.Errorf("%s: %v, the page says %v", name, row.got, row.want)
		}
	}
}
