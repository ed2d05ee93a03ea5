package allocator_test

import (
	"math/big"
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
