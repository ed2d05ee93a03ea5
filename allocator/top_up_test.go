package allocator_test

import (
	"errors"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
)

func percent(t interface{ Fatal(...any) }, text string) allocator.Percent {
	p, err := allocator.ParsePercent("percent", text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTrancheCases(t *testing.T) {
	q := quantity.Must
	cases := []struct {
		name                      string
		first, reserve, available int64
		lowWater, tranche         string
		want                      int64
		reason                    allocator.TopUpReason
	}{
		{"above the mark", 2_400, 400, 241, "10%", "5%", 0, allocator.NotLow},
		{"at the mark", 2_400, 400, 240, "10%", "5%", 20, allocator.TopUpDue},
		{"empty cell", 2_400, 400, 0, "10%", "5%", 20, allocator.TopUpDue},
		{"at least one", 2_400, 3, 0, "10%", "5%", 1, allocator.TopUpDue},
		{"tranche 0% still moves one", 2_400, 3, 0, "10%", "0%", 1, allocator.TopUpDue},
		{"the last one", 2_400, 1, 0, "10%", "100%", 1, allocator.TopUpDue},
		{"nothing left", 2_400, 0, 0, "10%", "5%", 0, allocator.ReserveEmpty},
		{"the mark rounds down", 9, 10, 1, "10%", "50%", 0, allocator.NotLow},
		{"no first grant", 0, 10, 0, "10%", "50%", 5, allocator.TopUpDue},
	}
	for _, c := range cases {
		got, reason := allocator.Tranche(allocator.TopUp{
			FirstGrant: q(c.first), Reserve: q(c.reserve), Available: q(c.available),
			LowWaterPct: percent(t, c.lowWater), TranchePct: percent(t, c.tranche),
		})
		if got != q(c.want) || reason != c.reason {
			t.Errorf("%s: %s, %s, want %d, %s", c.name, got, reason, c.want, c.reason)
		}
	}
}

func TestTrancheAgreesWithThePlainTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.IntRange(0, 100).Draw(t, "low")
		size := rapid.IntRange(0, 100).Draw(t, "size")
		in := allocator.TopUp{
			FirstGrant: drawnUnits(t, "first", quantity.Max), Reserve: drawnUnits(t, "reserve", quantity.Max),
			Available:   drawnUnits(t, "available", quantity.Max),
			LowWaterPct: percent(t, big.NewInt(int64(low)).String()+"%"),
			TranchePct:  percent(t, big.NewInt(int64(size)).String()+"%"),
		}
		got, _ := allocator.Tranche(in)
		mark := new(big.Rat).SetFrac64(in.FirstGrant.Int64()*int64(low), 100)
		var want int64
		if new(big.Rat).SetInt64(in.Available.Int64()).Cmp(mark) <= 0 && !in.Reserve.IsZero() {
			want = max(1, in.Reserve.Int64()*int64(size)/100)
		}
		if got.Int64() != want {
			t.Fatalf("%+v: tranche %s, the twin says %d", in, got, want)
		}
	})
}

// G-06: drawn again and again the reserve comes to exactly zero, in tranches
// that never grow.
func TestTranchesShrinkAndEmptyTheReserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := allocator.TopUp{
			FirstGrant: quantity.Must(100), LowWaterPct: percent(t, "10%"),
			TranchePct: percent(t, big.NewInt(int64(rapid.IntRange(1, 100).Draw(t, "size"))).String()+"%"),
			Reserve:    drawnUnits(t, "reserve", 100_000),
		}
		last := in.Reserve
		for steps := 0; !in.Reserve.IsZero(); steps++ {
			units, reason := allocator.Tranche(in)
			if reason != allocator.TopUpDue || units.IsZero() || units.Cmp(last) > 0 {
				t.Fatalf("step %d: %s units (%s) after %s, reserve %s", steps, units, reason, last, in.Reserve)
			}
			rest, err := in.Reserve.Sub(units)
			if err != nil {
				t.Fatalf("step %d: %v", steps, err)
			}
			in.Reserve, last = rest, units
		}
		if units, reason := allocator.Tranche(in); !units.IsZero() || reason != allocator.ReserveEmpty {
			t.Fatalf("an empty reserve gives %s (%s)", units, reason)
		}
	})
}

func shelf(cell string, first, available int64) allocator.Shelf {
	return allocator.Shelf{Cell: cell, FirstGrant: quantity.Must(first), Available: quantity.Must(available)}
}

func TestPlanRoundCases(t *testing.T) {
	cases := []struct {
		name    string
		reserve int64
		cells   []allocator.Shelf
		want    string
		after   int64
	}{
		{"one low cell: a tranche", 400, []allocator.Shelf{shelf("a", 2_400, 240), shelf("b", 2_400, 241)}, "a:20", 380},
		// 20 + 19 + 18, shared equally: nobody gains by coming first.
		{"three low cells: three tranches, evenly", 400, []allocator.Shelf{shelf("c", 2_400, 0), shelf("a", 2_400, 9), shelf("b", 2_400, 100)}, "a:19 b:19 c:19", 343},
		// 20 + 19 = 39: the odd unit goes to the emptier.
		{"what does not divide goes to the emptiest", 400, []allocator.Shelf{shelf("a", 2_400, 5), shelf("b", 2_400, 4)}, "a:19 b:20", 361},
		{"fewer units than low cells: the emptiest", 2, []allocator.Shelf{shelf("a", 100, 1), shelf("b", 100, 0), shelf("c", 100, 1)}, "a:1 b:1", 0},
		{"nothing left", 0, []allocator.Shelf{shelf("a", 100, 1)}, "", 0},
		{"nobody low", 9, []allocator.Shelf{shelf("a", 100, 11)}, "", 9},
		{"nobody", 9, nil, "", 9},
	}
	for _, c := range cases {
		plan, err := allocator.PlanRound(allocator.Round{Reserve: quantity.Must(c.reserve), Cells: c.cells, LowWaterPct: percent(t, "10%"), TranchePct: percent(t, "5%")})
		var got []string
		for _, g := range plan.Grants {
			got = append(got, g.Cell+":"+g.Units.String())
		}
		if err != nil || strings.Join(got, " ") != c.want || plan.ReserveAfter.Int64() != c.after {
			t.Errorf("%s: %v, reserve %s, %v, want %s, %d", c.name, got, plan.ReserveAfter, err, c.want, c.after)
		}
	}
	if _, err := allocator.PlanRound(allocator.Round{Cells: []allocator.Shelf{shelf("a", 1, 1), shelf("a", 1, 1)}}); !errors.Is(err, allocator.ErrDuplicateCell) {
		t.Errorf("a cell twice: %v", err)
	}
}

func drawnRound(t *rapid.T, most int) allocator.Round {
	r := allocator.Round{
		Reserve: drawnUnits(t, "reserve", quantity.Max), LowWaterPct: percent(t, "10%"),
		TranchePct: percent(t, strconv.Itoa(rapid.IntRange(0, 100).Draw(t, "size"))+"%"),
	}
	for _, name := range drawnCells(t, most) {
		r.Cells = append(r.Cells, shelf(name, rapid.Int64Range(0, 1_000).Draw(t, "first"), rapid.Int64Range(0, 150).Draw(t, "available")))
	}
	return r
}

// G-06: a round comes to what the tranches one after the other come to, is fair to
// the unit, and does not depend on the order in which cells are listed.
func TestPlanRoundAgreesWithTranchesOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawnRound(t, 60)
		plan, err := allocator.PlanRound(r)
		if err != nil {
			t.Fatal(err)
		}
		left, low := r.Reserve, 0
		for _, c := range r.Cells {
			units, reason := allocator.Tranche(allocator.TopUp{
				FirstGrant: c.FirstGrant, Available: c.Available, Reserve: left, LowWaterPct: r.LowWaterPct, TranchePct: r.TranchePct,
			})
			if reason != allocator.NotLow {
				low++
			}
			left = quantity.Must(left.Int64() - units.Int64())
		}
		if plan.ReserveAfter != left || plan.Low != low {
			t.Fatalf("reserve %s after and %d low cells; one by one %s and %d", plan.ReserveAfter, plan.Low, left, low)
		}
		for _, g := range plan.Grants {
			for _, other := range plan.Grants {
				if g.Units.Int64()-other.Units.Int64() > 1 {
					t.Fatalf("%v", plan.Grants)
				}
			}
		}
		r.Cells = shuffled(t, r.Cells)
		if again, err := allocator.PlanRound(r); err != nil || !reflect.DeepEqual(again, plan) {
			t.Fatalf("another order of cells gives %v, %v", again, err)
		}
	})
}

// G-06: with several hungry cells, round after round never grows and ends at the
// last unit; nothing strands.
func TestRoundsShrinkAndEmptyTheReserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawnRound(t, 20)
		r.Reserve = drawnUnits(t, "reserve", 100_000)
		for i := range r.Cells {
			r.Cells[i].Available = quantity.Quantity{}
		}
		last := r.Reserve.Int64()
		for !r.Reserve.IsZero() {
			plan, err := allocator.PlanRound(r)
			if err != nil {
				t.Fatal(err)
			}
			units := r.Reserve.Int64() - plan.ReserveAfter.Int64()
			if units < 1 || units > last {
				t.Fatalf("a round of %d after one of %d, reserve %s", units, last, r.Reserve)
			}
			r.Reserve, last = plan.ReserveAfter, units
		}
	})
}

func TestRoundPlanCheckFindsEachBreach(t *testing.T) {
	good := allocator.RoundPlan{Reserve: quantity.Must(9), ReserveAfter: quantity.Must(4), Low: 2, Grants: []allocator.Grant{{Cell: "a", Units: quantity.Must(2)}, {Cell: "b", Units: quantity.Must(3)}}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*allocator.RoundPlan){
		"a unit made":  func(p *allocator.RoundPlan) { p.ReserveAfter = quantity.Must(5) },
		"out of order": func(p *allocator.RoundPlan) { slices.Reverse(p.Grants) },
		"unnamed":      func(p *allocator.RoundPlan) { p.Grants[0].Cell = "" },
		"nothing granted": func(p *allocator.RoundPlan) {
			p.Grants[0].Units, p.ReserveAfter = quantity.Quantity{}, quantity.Must(6)
		},
		"unfair":             func(p *allocator.RoundPlan) { p.Grants[1].Units, p.ReserveAfter = quantity.Must(4), quantity.Must(3) },
		"more than were low": func(p *allocator.RoundPlan) { p.Low = 1 },
	} {
		p := good
		p.Grants = slices.Clone(good.Grants)
		edit(&p)
		if err := p.Check(); !errors.Is(err, allocator.ErrBroken) {
			t.Errorf("%s: %v, want ErrBroken", name, err)
		}
	}
}
