package allocator_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
)

func shares(names ...string) []allocator.Share {
	var out []allocator.Share
	for _, n := range names {
		out = append(out, allocator.Share{Cell: n, Weight: 1, Demand: 1})
	}
	return out
}

func unitsOf(p allocator.Plan) map[string]int64 {
	out := map[string]int64{}
	for _, g := range p.Grants {
		out[g.Cell] = g.Units.Int64()
	}
	return out
}

// the example of the sources.
func TestSplitOfTheDemo(t *testing.T) {
	reserve, err := allocator.ParseReserve("4%", quantity.Must(10_000))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := allocator.Split(allocator.Request{
		Limit: quantity.Must(10_000), Reserve: reserve, Policy: allocator.Equal,
		Cells: shares("cell-3", "cell-1", "cell-4", "cell-2"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"cell-1": 2_400, "cell-2": 2_400, "cell-3": 2_400, "cell-4": 2_400}
	if got := unitsOf(plan); !reflect.DeepEqual(got, want) || plan.Reserve.Int64() != 400 {
		t.Errorf("grants %v and reserve %s, want %v and 400", got, plan.Reserve, want)
	}
}

func TestSplitByEachPolicy(t *testing.T) {
	cells := []allocator.Share{
		{Cell: "b", Weight: 2, Units: quantity.Must(80), Demand: math.MaxUint64 - 1},
		{Cell: "a", Weight: 1, Units: quantity.Must(0), Demand: 1},
		{Cell: "c", Weight: 0, Units: quantity.Must(1), Demand: 0},
	}
	cases := []struct {
		policy allocator.Policy
		want   map[string]int64
	}{
		{allocator.Equal, map[string]int64{"a": 27, "b": 27, "c": 27}},
		{allocator.Weighted, map[string]int64{"a": 27, "b": 54, "c": 0}},
		{allocator.Explicit, map[string]int64{"a": 0, "b": 80, "c": 1}},
		{allocator.Demand, map[string]int64{"a": 0, "b": 81, "c": 0}},
	}
	for _, c := range cases {
		plan, err := allocator.Split(allocator.Request{
			Limit: quantity.Must(90), Reserve: quantity.Must(9), Policy: c.policy, Cells: cells,
		})
		if err != nil {
			t.Errorf("%s: %v", c.policy, err)
			continue
		}
		if got := unitsOf(plan); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.policy, got, c.want)
		}
		if parsed, err := allocator.ParsePolicy(c.policy.String()); err != nil || parsed != c.policy {
			t.Errorf("ParsePolicy(%s) = %v, %v", c.policy, parsed, err)
		}
	}
}

// K38: every edge is an error that names field and rule, or a valid split.
func TestSplitRefusesWithFieldAndRule(t *testing.T) {
	many := func(n int) (out []allocator.Share) {
		for i := range n {
			out = append(out, allocator.Share{Cell: fmt.Sprintf("cell-%04d", i), Weight: 1, Demand: math.MaxUint64})
		}
		return out
	}
	q := quantity.Must
	cases := []struct {
		name  string
		r     allocator.Request
		field string
		rule  error
	}{
		{"0 cells", allocator.Request{Limit: q(10), Policy: allocator.Equal}, "cells", allocator.ErrNoCells},
		{"1001 cells", allocator.Request{Limit: q(10), Policy: allocator.Equal, Cells: many(1_001)}, "cells", allocator.ErrTooManyCells},
		{"unnamed", allocator.Request{Limit: q(10), Policy: allocator.Equal, Cells: shares("a", "")}, "cells[1]", allocator.ErrCellUnnamed},
		{"twice", allocator.Request{Limit: q(10), Policy: allocator.Equal, Cells: shares("a", "b", "a")}, "cells[2]", allocator.ErrDuplicateCell},
		{"reserve above limit", allocator.Request{Limit: q(10), Reserve: q(11), Policy: allocator.Equal, Cells: shares("a")}, "reserve", allocator.ErrReserveAboveLimit},
		{"weights 0", allocator.Request{Limit: q(10), Policy: allocator.Weighted, Cells: []allocator.Share{{Cell: "a"}, {Cell: "b"}}}, "split.weights", allocator.ErrNoWeight},
		{"no demand and no weight", allocator.Request{Limit: q(10), Policy: allocator.Demand, Cells: []allocator.Share{{Cell: "a"}}}, "split.weights", allocator.ErrNoWeight},
		{"demand overflows", allocator.Request{Limit: q(10), Policy: allocator.Demand, Cells: many(2)}, "split.demand", allocator.ErrWeightSum},
		{"explicit short", allocator.Request{Limit: q(10), Policy: allocator.Explicit, Cells: []allocator.Share{{Cell: "a", Units: q(9)}}}, "split.units", allocator.ErrExplicitSum},
		{"explicit long", allocator.Request{Limit: q(10), Reserve: q(2), Policy: allocator.Explicit, Cells: []allocator.Share{{Cell: "a", Units: q(9)}}}, "split.units", allocator.ErrExplicitSum},
		{"no policy", allocator.Request{Limit: q(10), Cells: shares("a")}, "split.policy", allocator.ErrPolicy},
		{"policy 9", allocator.Request{Limit: q(10), Policy: 9, Cells: shares("a")}, "split.policy", allocator.ErrPolicy},
	}
	for _, c := range cases {
		plan, err := allocator.Split(c.r)
		var named *allocator.Error
		if !errors.As(err, &named) || !errors.Is(err, c.rule) || !errors.Is(err, allocator.ErrInvalid) {
			t.Errorf("%s: error %v, want an *Error with %v", c.name, err, c.rule)
			continue
		}
		if named.Field != c.field || !strings.HasPrefix(err.Error(), c.field+": "+c.rule.Error()) {
			t.Errorf("%s: %q names field %q, want %q", c.name, err, named.Field, c.field)
		}
		if len(plan.Grants) != 0 {
			t.Errorf("%s: a plan came with the error: %v", c.name, plan)
		}
	}
	if _, err := allocator.ParsePolicy("equal"); !errors.Is(err, allocator.ErrPolicy) {
		t.Errorf("ParsePolicy(equal): %v, want ErrPolicy", err)
	}
}

// DEMAND without any demand is cut by weight, and says so; with any, the weights are not read.
func TestDemandFallsBackToWeights(t *testing.T) {
	r := allocator.Request{Limit: quantity.Must(100), Reserve: quantity.Must(10), Policy: allocator.Demand, Cells: []allocator.Share{
		{Cell: "a", Weight: 1}, {Cell: "b", Weight: 2},
	}}
	plan, err := allocator.Split(r)
	if want := map[string]int64{"a": 30, "b": 60}; err != nil || !plan.ByWeight || !reflect.DeepEqual(unitsOf(plan), want) {
		t.Errorf("without demand: %v, by weight %v, %v, want %v", unitsOf(plan), plan.ByWeight, err, want)
	}
	r.Cells[0].Demand = 5
	plan, err = allocator.Split(r)
	if want := map[string]int64{"a": 90, "b": 0}; err != nil || plan.ByWeight || !reflect.DeepEqual(unitsOf(plan), want) {
		t.Errorf("with demand: %v, by weight %v, %v, want %v", unitsOf(plan), plan.ByWeight, err, want)
	}
	r.Policy = allocator.Weighted
	if plan, err = allocator.Split(r); err != nil || plan.ByWeight {
		t.Errorf("WEIGHTED says it fell back: %v, %v", plan, err)
	}
}

// K37, K38: any limit up to a thousand million, 1 to 1,000 cells, any weights: the sum is exact, every
// share is the exact one rounded down or one more, equal weights differ by at most one unit, and the
// order of the cells changes nothing. A float, NaN or a negative number cannot be given: the types of
// Request have none.
func TestSplitOfUpToAThousandCells(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, allocator.MaxCells).Draw(t, "n")
		kinds := rapid.SliceOfN(drawnKind, 1, 7).Draw(t, "weights")
		limit := drawnUnits(t, "limit", quantity.Max)
		r := allocator.Request{
			Limit: limit, Reserve: drawnUnits(t, "reserve", limit.Int64()),
			Policy: rapid.SampledFrom([]allocator.Policy{allocator.Equal, allocator.Weighted, allocator.Demand}).Draw(t, "policy"),
		}
		weights, sum := map[string]uint64{}, new(big.Int)
		for i := range n {
			w := kinds[i%len(kinds)]
			s := allocator.Share{Cell: fmt.Sprint("c", i), Weight: w, Demand: uint64(w) << 20}
			r.Cells = append(r.Cells, s)
			weights[s.Cell] = map[allocator.Policy]uint64{allocator.Equal: 1, allocator.Weighted: uint64(w), allocator.Demand: s.Demand}[r.Policy]
			sum.Add(sum, new(big.Int).SetUint64(weights[s.Cell]))
		}
		plan, err := allocator.Split(r)
		if sum.Sign() == 0 {
			if !errors.Is(err, allocator.ErrNoWeight) {
				t.Fatalf("no weight at all: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		checkEqualWeights(t, plan, weights)
		for _, g := range plan.Grants {
			exact := new(big.Int).Mul(big.NewInt(limit.Int64()-r.Reserve.Int64()), new(big.Int).SetUint64(weights[g.Cell]))
			floor := exact.Quo(exact, sum).Int64()
			if over := g.Units.Int64() - floor; over < 0 || over > 1 {
				t.Fatalf("cell %s: %s units, its exact share is %d", g.Cell, g.Units, floor)
			}
		}
		slices.Reverse(r.Cells)
		if again, err := allocator.Split(r); err != nil || !reflect.DeepEqual(again, plan) {
			t.Fatalf("the other order of cells gives another plan: %v", err)
		}
	})
}

// drawnKind is a weight: small ones and the largest often.
var drawnKind = rapid.OneOf(rapid.Uint32Range(0, 3), rapid.Uint32(), rapid.Just(uint32(math.MaxUint32)))

// K38: edges that are no error.
func TestSplitAtTheEdges(t *testing.T) {
	q := quantity.Must
	thousand := make([]allocator.Share, allocator.MaxCells)
	for i := range thousand {
		thousand[i] = allocator.Share{Cell: fmt.Sprintf("c%d", i), Weight: math.MaxUint32}
	}
	cases := []struct {
		name string
		r    allocator.Request
		want map[string]int64
	}{
		{"2 units for 5 cells", allocator.Request{Limit: q(2), Policy: allocator.Equal, Cells: shares("e", "d", "c", "b", "a")}, map[string]int64{"a": 1, "b": 1, "c": 0, "d": 0, "e": 0}},
		{"limit 0", allocator.Request{Policy: allocator.Equal, Cells: shares("a")}, map[string]int64{"a": 0}},
		{"reserve = limit", allocator.Request{Limit: q(7), Reserve: q(7), Policy: allocator.Weighted, Cells: shares("a")}, map[string]int64{"a": 0}},
		{"explicit 0", allocator.Request{Limit: q(7), Reserve: q(7), Policy: allocator.Explicit, Cells: shares("a")}, map[string]int64{"a": 0}},
	}
	for _, c := range cases {
		plan, err := allocator.Split(c.r)
		if err != nil || !reflect.DeepEqual(unitsOf(plan), c.want) {
			t.Errorf("%s: %v, %v, want %v", c.name, unitsOf(plan), err, c.want)
		}
	}
	plan, err := allocator.Split(allocator.Request{Limit: q(quantity.Max), Policy: allocator.Weighted, Cells: thousand})
	if err != nil || plan.Units("c999").Int64() != quantity.Max/1_000 {
		t.Errorf("1000 cells of the largest weight: %s each, %v", plan.Units("c999"), err)
	}
}

// K37: sum exact, nobody below the rounded-down share, independent of the
// order, equal weights at most one unit apart; and equal to the plain twin.
func TestSplitAgreesWithThePlainTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := drawnUnits(t, "limit", quantity.Max)
		r := allocator.Request{
			Limit: limit, Reserve: drawnUnits(t, "reserve", limit.Int64()),
			Policy: rapid.SampledFrom([]allocator.Policy{allocator.Equal, allocator.Weighted, allocator.Demand}).Draw(t, "policy"),
		}
		weights := map[string]uint64{}
		for _, c := range drawnCellWeights(t, 64) {
			share := allocator.Share{Cell: c.Cell, Weight: c.Weight, Demand: uint64(c.Weight) << 26}
			r.Cells = append(r.Cells, share)
			weights[c.Cell] = map[allocator.Policy]uint64{
				allocator.Equal: 1, allocator.Weighted: uint64(c.Weight), allocator.Demand: share.Demand,
			}[r.Policy]
		}
		plan, err := allocator.Split(r)
		if err != nil {
			t.Fatal(err)
		}
		if want := plainShares(limit.Int64()-r.Reserve.Int64(), weights); !reflect.DeepEqual(unitsOf(plan), want) {
			t.Fatalf("grants %v, the twin says %v", unitsOf(plan), want)
		}
		r.Cells = shuffled(t, r.Cells)
		again, err := allocator.Split(r)
		if err != nil || !reflect.DeepEqual(again, plan) {
			t.Fatalf("another order of cells gives %v, %v, want %v", again, err, plan)
		}
		checkEqualWeights(t, plan, weights)
	})
}

func checkEqualWeights(t *rapid.T, plan allocator.Plan, weights map[string]uint64) {
	least, most := map[uint64]int64{}, map[uint64]int64{}
	total := plan.Reserve.Int64()
	for _, g := range plan.Grants {
		w, units := weights[g.Cell], g.Units.Int64()
		if _, seen := least[w]; !seen {
			least[w], most[w] = units, units
		}
		least[w], most[w] = min(least[w], units), max(most[w], units)
		total += units
		if w == 0 && units > 0 {
			t.Fatalf("cell %s has weight 0 and %d units", g.Cell, units)
		}
	}
	for w := range least {
		if most[w]-least[w] > 1 {
			t.Fatalf("cells of weight %d are granted %d and %d units", w, least[w], most[w])
		}
	}
	if total != plan.Limit.Int64() {
		t.Fatalf("the sum is %d, sale_limit %s", total, plan.Limit)
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(int64(81), int64(0), []byte{1, 1, 1, 0, 255})
	f.Add(int64(10_000), int64(400), []byte{7, 7, 7, 7})
	f.Fuzz(func(t *testing.T, limit, reserve int64, raw []byte) {
		l, err1 := quantity.New(limit)
		res, err2 := quantity.New(reserve)
		if err1 != nil || err2 != nil {
			return
		}
		r := allocator.Request{Limit: l, Reserve: res, Policy: allocator.Weighted}
		weights := map[string]uint64{}
		var sum uint64
		for i, b := range raw {
			name := fmt.Sprint("c", i)
			weight := uint32(b) * uint32(b) * uint32(b) * 255
			r.Cells = append(r.Cells, allocator.Share{Cell: name, Weight: weight})
			weights[name] = uint64(weight)
			sum += uint64(weight)
		}
		plan, err := allocator.Split(r)
		if valid := len(raw) > 0 && len(raw) <= allocator.MaxCells && sum > 0 && reserve <= limit; valid != (err == nil) {
			t.Fatalf("valid %v, error %v", valid, err)
		}
		if err != nil {
			if !errors.Is(err, allocator.ErrInvalid) {
				t.Fatalf("error %v is not ErrInvalid", err)
			}
			return
		}
		if want := plainShares(limit-reserve, weights); !reflect.DeepEqual(unitsOf(plan), want) {
			t.Fatalf("grants %v, the twin says %v", unitsOf(plan), want)
		}
	})
}

// A plan that was edited badly does not get past Check.
func TestPlanCheckFindsEachBreach(t *testing.T) {
	q := quantity.Must
	good := allocator.Plan{Limit: q(11), Reserve: q(3), Policy: allocator.Equal, Grants: []allocator.Grant{{Cell: "a", Units: q(4)}, {Cell: "b", Units: q(4)}}}
	if err := good.Check(); err != nil {
		t.Fatalf("the good plan: %v", err)
	}
	breaches := map[string]func(*allocator.Plan){
		"one unit more":       func(p *allocator.Plan) { p.Grants[1].Units = q(5) },
		"one unit less":       func(p *allocator.Plan) { p.Reserve = q(2) },
		"cell repeated":       func(p *allocator.Plan) { p.Grants[1].Cell = "a" },
		"out of order":        func(p *allocator.Plan) { p.Grants[0].Cell = "c" },
		"unnamed":             func(p *allocator.Plan) { p.Grants[0].Cell = "" },
		"EQUAL but 2 apart":   func(p *allocator.Plan) { p.Grants[0].Units, p.Grants[1].Units = q(5), q(3) },
		"grant list cut away": func(p *allocator.Plan) { p.Grants = nil },
	}
	for name, edit := range breaches {
		p := good
		p.Grants = slices.Clone(good.Grants)
		edit(&p)
		if err := p.Check(); !errors.Is(err, allocator.ErrBroken) {
			t.Errorf("%s: %v, want ErrBroken", name, err)
		}
	}
	if !good.Units("z").IsZero() || good.Units("b") != q(4) {
		t.Errorf("Units: z %s, b %s, want 0 and 4", good.Units("z"), good.Units("b"))
	}
}

func TestRedistributeHandsOutEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := drawnUnits(t, "units", quantity.Max)
		live := drawnCellWeights(t, 8)
		plan, err := allocator.Redistribute(units, live)
		if err != nil {
			t.Fatal(err)
		}
		if want := plainShares(units.Int64(), weightsOf(live)); !reflect.DeepEqual(unitsOf(plan), want) {
			t.Fatalf("%v, the twin says %v", unitsOf(plan), want)
		}
		if !plan.Reserve.IsZero() {
			t.Fatalf("%s units stay in the reserve", plan.Reserve)
		}
	})
	if _, err := allocator.Redistribute(quantity.Must(5), nil); !errors.Is(err, allocator.ErrNoCells) {
		t.Errorf("no live cell: %v, want ErrNoCells", err)
	}
}
