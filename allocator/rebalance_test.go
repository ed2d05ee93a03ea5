package allocator_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
)

func usage(cell string, granted, available int64, demand uint64, standing allocator.Standing) allocator.Usage {
	return allocator.Usage{
		Cell: cell, Granted: quantity.Must(granted), Available: quantity.Must(available), Demand: demand, Standing: standing,
	}
}

func move(kind allocator.MoveKind, cell string, units int64) allocator.Move {
	return allocator.Move{Kind: kind, Cell: cell, Units: quantity.Must(units)}
}

func TestPlanRebalanceCases(t *testing.T) {
	const get, give = allocator.GrantUnits, allocator.ReturnUnits
	cases := []struct {
		name    string
		minMove int64
		cells   []allocator.Usage
		want    []allocator.Move
		reserve int64 // after; 50 before
	}{
		{
			"from the full to the busy", 0,
			[]allocator.Usage{usage("b", 100, 0, 3, allocator.Selling), usage("a", 100, 80, 1, allocator.Selling)},
			[]allocator.Move{move(give, "a", 60), move(get, "b", 60)},
			50,
		},
		{
			"small differences stay", 25,
			[]allocator.Usage{usage("a", 100, 60, 1, allocator.Selling), usage("b", 100, 20, 1, allocator.Selling)},
			nil, 50,
		},
		{
			"the smallest move itself is made", 20,
			[]allocator.Usage{usage("a", 100, 60, 1, allocator.Selling), usage("b", 100, 20, 1, allocator.Selling)},
			[]allocator.Move{move(give, "a", 20), move(get, "b", 20)},
			50,
		},
		{
			"a leaving cell gives all, the frozen one nothing", 0,
			[]allocator.Usage{usage("a", 100, 30, 9, allocator.Leaving), usage("b", 100, 99, 9, allocator.Frozen), usage("c", 10, 0, 1, allocator.Selling)},
			[]allocator.Move{move(give, "a", 30), move(get, "c", 30)},
			50,
		},
		{
			"nobody can take: to the reserve", 0,
			[]allocator.Usage{usage("a", 100, 30, 1, allocator.Leaving), usage("b", 100, 99, 1, allocator.Frozen)},
			[]allocator.Move{move(give, "a", 30)},
			80,
		},
		{
			"no demand known: nothing but leaving", 0,
			[]allocator.Usage{usage("a", 100, 30, 0, allocator.Leaving), usage("b", 100, 99, 0, allocator.Selling), usage("c", 100, 0, 0, allocator.Selling)},
			[]allocator.Move{move(give, "a", 30)},
			80,
		},
		{
			"the smallest move drops takers, givers shrink with them", 10,
			[]allocator.Usage{usage("a", 40, 40, 0, allocator.Selling), usage("b", 0, 0, 32, allocator.Selling), usage("c", 0, 0, 8, allocator.Selling)},
			[]allocator.Move{move(give, "a", 32), move(get, "b", 32)},
			50,
		},
		{
			"the smallest move drops givers, takers shrink with them", 10,
			[]allocator.Usage{usage("a", 8, 8, 0, allocator.Selling), usage("b", 32, 32, 0, allocator.Selling), usage("c", 0, 0, 1, allocator.Selling)},
			[]allocator.Move{move(give, "b", 32), move(get, "c", 32)},
			50,
		},
	}
	for _, c := range cases {
		plan, err := allocator.PlanRebalance(allocator.Rebalance{
			Reserve: quantity.Must(50), Cells: c.cells, MinMove: quantity.Must(c.minMove),
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if len(plan.Moves)+len(c.want) > 0 && !reflect.DeepEqual(plan.Moves, c.want) || plan.ReserveAfter.Int64() != c.reserve {
			t.Errorf("%s: moves %v, reserve %s, want %v, %d", c.name, plan.Moves, plan.ReserveAfter, c.want, c.reserve)
		}
	}
}

func TestPlanRebalanceRefusals(t *testing.T) {
	cases := map[string]struct {
		cells []allocator.Usage
		field string
		rule  error
	}{
		"no cells":      {nil, "cells", allocator.ErrNoCells},
		"twice":         {[]allocator.Usage{usage("a", 1, 1, 1, allocator.Selling), usage("a", 1, 1, 1, allocator.Selling)}, "cells[1]", allocator.ErrDuplicateCell},
		"no standing":   {[]allocator.Usage{usage("a", 1, 1, 1, 0)}, "cells[0].standing", allocator.ErrStanding},
		"more than had": {[]allocator.Usage{usage("a", 1, 2, 1, allocator.Selling)}, "cells[0].available", allocator.ErrAvailable},
		"demand sum": {[]allocator.Usage{
			usage("a", 1, 1, 1<<63, allocator.Selling), usage("b", 1, 1, 1<<63, allocator.Selling),
		}, "cells[].demand", allocator.ErrWeightSum},
	}
	for name, c := range cases {
		_, err := allocator.PlanRebalance(allocator.Rebalance{Cells: c.cells})
		var named *allocator.Error
		if !errors.Is(err, c.rule) || !errors.As(err, &named) || named.Field != c.field {
			t.Errorf("%s: %v, want %v on %s", name, err, c.rule, c.field)
		}
	}
	_, err := allocator.PlanRebalance(allocator.Rebalance{Cells: []allocator.Usage{
		usage("a", quantity.Max, quantity.Max, 1, allocator.Selling), usage("b", 1, 1, 1, allocator.Selling),
	}})
	if !errors.Is(err, quantity.ErrTooLarge) {
		t.Errorf("more than a quantity can move: %v, want ErrTooLarge", err)
	}
}

func drawnRebalance(t *rapid.T) allocator.Rebalance {
	r := allocator.Rebalance{Reserve: drawnUnits(t, "reserve", 10_000), MinMove: drawnUnits(t, "min move", 50)}
	for _, name := range drawnCells(t, 12) {
		granted := drawnUnits(t, "granted", 10_000)
		r.Cells = append(r.Cells, allocator.Usage{
			Cell: name, Granted: granted, Available: drawnUnits(t, "available", granted.Int64()),
			Demand:   rapid.Uint64Range(0, 100).Draw(t, "demand"),
			Standing: rapid.SampledFrom([]allocator.Standing{allocator.Selling, allocator.Leaving, allocator.Frozen}).Draw(t, "standing"),
		})
	}
	return r
}

// Units are neither made nor lost, sold units do not move, and without a
// smallest move every selling cell ends at exactly its share.
func TestPlanRebalanceKeepsTheSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawnRebalance(t)
		plan, err := allocator.PlanRebalance(r)
		if err != nil {
			t.Fatal(err)
		}
		available, before, after := map[string]int64{}, r.Reserve.Int64(), plan.ReserveAfter.Int64()
		demands := map[string]uint64{}
		var pool int64
		for _, c := range r.Cells {
			available[c.Cell] = c.Available.Int64()
			before += c.Available.Int64()
			if c.Standing != allocator.Frozen {
				pool += c.Available.Int64()
			}
			if c.Standing == allocator.Selling && c.Demand > 0 {
				demands[c.Cell] = c.Demand
			}
		}
		for _, m := range plan.Moves {
			available[m.Cell] += map[allocator.MoveKind]int64{allocator.GrantUnits: 1, allocator.ReturnUnits: -1}[m.Kind] * m.Units.Int64()
		}
		for cell, units := range available {
			after += units
			if units < 0 {
				t.Fatalf("cell %s would have %d units", cell, units)
			}
		}
		if before != after {
			t.Fatalf("%d units before, %d after: %v", before, after, plan.Moves)
		}
		if r.MinMove.IsZero() && len(demands) > 0 {
			for cell, want := range plainShares(pool, demands) {
				if available[cell] != want {
					t.Fatalf("cell %s ends with %d, its share is %d", cell, available[cell], want)
				}
			}
		}
		r.Cells = shuffled(t, r.Cells)
		if again, err := allocator.PlanRebalance(r); err != nil || !reflect.DeepEqual(again, plan) {
			t.Fatalf("another order of cells gives %v, %v, want %v", again, err, plan)
		}
	})
}

// What was moved as planned is not moved again.
func TestPlanRebalanceComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawnRebalance(t)
		r.MinMove = quantity.Quantity{}
		plan, err := allocator.PlanRebalance(r)
		if err != nil {
			t.Fatal(err)
		}
		r.Reserve, r.Cells = plan.ReserveAfter, slices.Clone(plan.Cells)
		for _, m := range plan.Moves {
			for i, c := range r.Cells {
				if c.Cell != m.Cell {
					continue
				}
				granted, available := c.Granted.Int64(), c.Available.Int64()
				change := m.Units.Int64()
				if m.Kind == allocator.ReturnUnits {
					change = -change
				}
				r.Cells[i].Granted, r.Cells[i].Available = quantity.Must(granted+change), quantity.Must(available+change)
			}
		}
		if again, err := allocator.PlanRebalance(r); err != nil || len(again.Moves) > 0 {
			t.Fatalf("a second plan moves %v, %v", again.Moves, err)
		}
	})
}

func TestRebalancePlanCheckFindsEachBreach(t *testing.T) {
	good := allocator.RebalancePlan{
		Reserve: quantity.Must(5), ReserveAfter: quantity.Must(6),
		Cells: []allocator.Usage{
			usage("a", 9, 4, 1, allocator.Selling), usage("b", 9, 4, 1, allocator.Selling),
			usage("c", 9, 4, 1, allocator.Leaving), usage("d", 9, 4, 1, allocator.Frozen),
		},
		Moves: []allocator.Move{move(allocator.ReturnUnits, "a", 2), move(allocator.ReturnUnits, "c", 4), move(allocator.GrantUnits, "b", 5)},
	}
	if err := good.Check(); err != nil {
		t.Fatalf("the good plan: %v", err)
	}
	breaches := map[string]func(*allocator.RebalancePlan){
		"a unit made": func(p *allocator.RebalancePlan) { p.Moves[2].Units = quantity.Must(6) },
		"reserve drawn": func(p *allocator.RebalancePlan) {
			p.Moves[2].Units, p.ReserveAfter = quantity.Must(8), quantity.Must(3)
		},
		"more than available": func(p *allocator.RebalancePlan) {
			p.Moves[0].Units, p.ReserveAfter = quantity.Must(5), quantity.Must(9)
		},
		"frozen cell":         func(p *allocator.RebalancePlan) { p.Moves[0].Cell = "d" },
		"grant while leaving": func(p *allocator.RebalancePlan) { p.Moves[1].Cell, p.Moves[2].Cell = "b", "c" },
		"unknown cell":        func(p *allocator.RebalancePlan) { p.Moves[0].Cell = "z" },
		"cell moved twice":    func(p *allocator.RebalancePlan) { p.Moves[2].Cell = "a" },
		"nothing moved": func(p *allocator.RebalancePlan) {
			p.Moves[0].Units, p.ReserveAfter = quantity.Quantity{}, quantity.Must(4)
		},
		"no kind":              func(p *allocator.RebalancePlan) { p.Moves[0].Kind = 0 },
		"grant before returns": func(p *allocator.RebalancePlan) { slices.Reverse(p.Moves) },
	}
	for name, edit := range breaches {
		p := good
		p.Moves = slices.Clone(good.Moves)
		edit(&p)
		if err := p.Check(); !errors.Is(err, allocator.ErrBroken) {
			t.Errorf("%s: %v, want ErrBroken", name, err)
		}
	}
}
