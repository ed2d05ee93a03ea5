package allocator_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
)

func usage(cell string, granted, available, need int64, standing allocator.Standing) allocator.Usage {
	return allocator.Usage{
		Cell: cell, Granted: quantity.Must(granted), Available: quantity.Must(available), Need: quantity.Must(need), Standing: standing,
	}
}

func move(kind allocator.MoveKind, cell string, units int64) allocator.Move {
	return allocator.Move{Kind: kind, Cell: cell, Units: quantity.Must(units)}
}

func TestPlanRebalanceCases(t *testing.T) {
	const get, give = allocator.GrantUnits, allocator.ReturnUnits
	cases := []struct {
		name    string
		margin  string
		minMove int64
		cells   []allocator.Usage
		want    []allocator.Move
		reserve int64 // after; 50 before
	}{
		{
			"from the idle to the busy, and no more than it lacks", "0%", 0,
			[]allocator.Usage{usage("b", 100, 5, 30, allocator.Selling), usage("a", 100, 80, 10, allocator.Selling)},
			[]allocator.Move{move(give, "a", 25), move(get, "b", 25)},
			50,
		},
		{
			"the giver keeps its need and a quarter", "25%", 0,
			[]allocator.Usage{usage("a", 100, 80, 40, allocator.Selling), usage("b", 100, 0, 900, allocator.Selling)},
			[]allocator.Move{move(give, "a", 30), move(get, "b", 30)},
			50,
		},
		{
			"within the margin nothing moves", "25%", 0,
			[]allocator.Usage{usage("a", 100, 50, 40, allocator.Selling), usage("b", 100, 0, 900, allocator.Selling)},
			nil, 50,
		},
		{
			"the smallest move drops takers, givers shrink with them", "0%", 10,
			[]allocator.Usage{usage("a", 40, 40, 0, allocator.Selling), usage("b", 0, 0, 32, allocator.Selling), usage("c", 0, 0, 8, allocator.Selling)},
			[]allocator.Move{move(give, "a", 32), move(get, "b", 32)},
			50,
		},
		{
			"the smallest move drops givers, takers shrink with them", "0%", 10,
			[]allocator.Usage{usage("a", 8, 8, 0, allocator.Selling), usage("b", 32, 32, 0, allocator.Selling), usage("c", 0, 0, 99, allocator.Selling)},
			[]allocator.Move{move(give, "b", 32), move(get, "c", 32)},
			50,
		},
		{
			"what there is goes by largest remainder", "0%", 0,
			[]allocator.Usage{usage("a", 10, 10, 0, allocator.Selling), usage("b", 0, 0, 20, allocator.Selling), usage("c", 0, 0, 10, allocator.Selling)},
			[]allocator.Move{move(give, "a", 10), move(get, "b", 7), move(get, "c", 3)},
			50,
		},
		{
			"a leaving cell gives all and first, the frozen one nothing", "0%", 0,
			[]allocator.Usage{usage("a", 100, 30, 9, allocator.Leaving), usage("b", 100, 99, 9, allocator.Frozen), usage("c", 10, 0, 20, allocator.Selling), usage("d", 90, 90, 1, allocator.Selling)},
			[]allocator.Move{move(give, "a", 30), move(get, "c", 20)},
			60,
		},
		{
			"nobody can take: to the reserve", "0%", 0,
			[]allocator.Usage{usage("a", 100, 30, 1, allocator.Leaving), usage("b", 100, 0, 1, allocator.Frozen)},
			[]allocator.Move{move(give, "a", 30)},
			80,
		},
		{
			"no demand: nothing but leaving", "0%", 0,
			[]allocator.Usage{usage("a", 100, 30, 0, allocator.Leaving), usage("b", 100, 99, 0, allocator.Selling), usage("c", 100, 0, 0, allocator.Selling)},
			[]allocator.Move{move(give, "a", 30)},
			80,
		},
	}
	for _, c := range cases {
		plan, err := allocator.PlanRebalance(allocator.Rebalance{
			Reserve: quantity.Must(50), Cells: c.cells, MinMove: quantity.Must(c.minMove), Margin: percent(t, c.margin),
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
	}
	for name, c := range cases {
		_, err := allocator.PlanRebalance(allocator.Rebalance{Cells: c.cells})
		var named *allocator.Error
		if !errors.Is(err, c.rule) || !errors.As(err, &named) || named.Field != c.field {
			t.Errorf("%s: %v, want %v on %s", name, err, c.rule, c.field)
		}
	}
	_, err := allocator.PlanRebalance(allocator.Rebalance{Reserve: quantity.Must(1), Cells: []allocator.Usage{
		usage("a", quantity.Max, quantity.Max, 1, allocator.Leaving),
	}})
	if !errors.Is(err, quantity.ErrTooLarge) {
		t.Errorf("more than a reserve can be: %v, want ErrTooLarge", err)
	}
}

func drawnRebalance(t *rapid.T, most int) allocator.Rebalance {
	r := allocator.Rebalance{
		Reserve: drawnUnits(t, "reserve", 10_000), MinMove: drawnUnits(t, "min move", 50),
		Margin: percent(t, rapid.SampledFrom([]string{"0%", "10%", "25%", "100%"}).Draw(t, "margin")),
	}
	for _, name := range drawnCells(t, most) {
		granted := drawnUnits(t, "granted", 10_000)
		r.Cells = append(r.Cells, allocator.Usage{
			Cell: name, Granted: granted, Available: drawnUnits(t, "available", granted.Int64()), Need: drawnUnits(t, "need", 10_000),
			Standing: rapid.SampledFrom([]allocator.Standing{allocator.Selling, allocator.Selling, allocator.Leaving, allocator.Frozen}).Draw(t, "standing"),
		})
	}
	return r
}

// applied gives the cells and the reserve as a plan leaves them.
func applied(r allocator.Rebalance, plan allocator.RebalancePlan) allocator.Rebalance {
	r.Reserve, r.Cells = plan.ReserveAfter, slices.Clone(plan.Cells)
	for _, m := range plan.Moves {
		at := slices.IndexFunc(r.Cells, func(c allocator.Usage) bool { return c.Cell == m.Cell })
		c, change := &r.Cells[at], m.Units.Int64()
		if m.Kind == allocator.ReturnUnits {
			change = -change
		}
		c.Granted, c.Available = quantity.Must(c.Granted.Int64()+change), quantity.Must(c.Available.Int64()+change)
	}
	return r
}

// percentUp is the twin of how a margin rounds: the smallest number that is not below the part.
func percentUp(p allocator.Percent, units int64) int64 {
	var hundredths int64
	if _, err := fmt.Sscanf(p.String(), "%d%%", &hundredths); err != nil {
		panic(err)
	}
	return (units*hundredths + 99) / 100
}

// Units are neither made nor lost; a giver keeps its need and the margin, a taker
// gets no more than its need; and the smaller side is served whole, as a twin
// that only adds up says.
func TestPlanRebalanceKeepsTheSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawnRebalance(t, 12)
		plan, err := allocator.PlanRebalance(r)
		if err != nil {
			t.Fatal(err)
		}
		after := applied(r, plan)
		now := map[string]allocator.Usage{}
		left := after.Reserve.Int64()
		for _, c := range after.Cells {
			now[c.Cell] = c
			left += c.Granted.Int64()
		}
		var forced, idle, lack, came int64
		for _, c := range r.Cells {
			left -= c.Granted.Int64()
			available, need, has := c.Available.Int64(), c.Need.Int64(), now[c.Cell].Available.Int64()
			keep := need + percentUp(r.Margin, need)
			smallest := max(1, r.MinMove.Int64())
			switch {
			case c.Standing == allocator.Frozen && has != available:
				t.Fatalf("frozen cell %s went from %d to %d", c.Cell, available, has)
			case c.Standing == allocator.Leaving && has != 0:
				t.Fatalf("leaving cell %s keeps %d", c.Cell, has)
			case c.Standing == allocator.Leaving:
				forced += available
			case c.Standing == allocator.Selling && has < available && has < keep:
				t.Fatalf("cell %s gave down to %d and needs %d with the margin", c.Cell, has, keep)
			case c.Standing == allocator.Selling && has > available && has > need:
				t.Fatalf("cell %s was filled to %d and needs %d", c.Cell, has, need)
			case c.Standing == allocator.Selling:
				if available-keep >= smallest {
					idle += available - keep
				}
				if need-available >= smallest {
					lack += need - available
				}
				came += max(0, has-available)
			}
		}
		if left -= r.Reserve.Int64(); left != 0 {
			t.Fatalf("%d units appeared: %v", left, plan.Moves)
		}
		if want := min(lack, forced+idle); came != want {
			t.Fatalf("%d units came where %d lack, %d must go and %d are idle", came, lack, forced, idle)
		}
		r.Cells = shuffled(t, r.Cells)
		if again, err := allocator.PlanRebalance(r); err != nil || !reflect.DeepEqual(again, plan) {
			t.Fatalf("another order of cells gives %v, %v, want %v", again, err, plan)
		}
	})
}

// No oscillation: what was moved as planned is not moved again, whatever the
// margin and the smallest move.
func TestPlanRebalanceComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawnRebalance(t, 40)
		plan, err := allocator.PlanRebalance(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := allocator.PlanRebalance(applied(r, plan))
		if err != nil || len(again.Moves) > 0 {
			t.Fatalf("a second plan moves %v, %v", again.Moves, err)
		}
	})
}

// Hysteresis: after a plan, rates that waver by less than the margin move nothing
// back.
func TestPlanRebalanceForgivesAWaveringRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawnRebalance(t, 12)
		r.Margin, r.MinMove = percent(t, "25%"), quantity.Must(1)
		plan, err := allocator.PlanRebalance(r)
		if err != nil {
			t.Fatal(err)
		}
		after := applied(r, plan)
		took := map[string]bool{}
		for _, m := range plan.Moves {
			took[m.Cell] = m.Kind == allocator.GrantUnits
		}
		for i, c := range after.Cells { // everybody now expects a tenth less
			after.Cells[i].Need = quantity.Must((c.Need.Int64()*9 + 9) / 10)
		}
		again, err := allocator.PlanRebalance(after)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range again.Moves {
			if took[m.Cell] && m.Kind == allocator.ReturnUnits {
				t.Fatalf("cell %s gives back %s of what it got", m.Cell, m.Units)
			}
		}
	})
}

func TestRebalancePlanCheckFindsEachBreach(t *testing.T) {
	good := allocator.RebalancePlan{
		Reserve: quantity.Must(5), ReserveAfter: quantity.Must(6),
		Cells: []allocator.Usage{
			usage("a", 9, 4, 1, allocator.Selling), usage("b", 9, 4, 12, allocator.Selling),
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
		"a giver below its need": func(p *allocator.RebalancePlan) {
			p.Moves[0].Units, p.ReserveAfter = quantity.Must(4), quantity.Must(8)
		},
		"a taker above its need": func(p *allocator.RebalancePlan) {
			p.Moves[2].Units, p.Reserve, p.ReserveAfter = quantity.Must(9), quantity.Must(5), quantity.Must(2)
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
