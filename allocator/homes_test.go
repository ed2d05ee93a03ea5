package allocator_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
)

// every lists the home of each bucket, found one by one.
func every(t interface{ Fatalf(string, ...any) }, m allocator.HomeMap) []string {
	var out []string
	for b := range m.Buckets() {
		cell, ok := m.Home(uint16(b))
		if !ok {
			t.Fatalf("bucket %d has no home", b)
		}
		out = append(out, cell)
	}
	return out
}

func TestDealBucketsOfTheDemo(t *testing.T) {
	m, err := allocator.DealBuckets([]allocator.CellWeight{{"cell-2", 1}, {"cell-1", 1}, {"cell-4", 1}, {"cell-3", 1}}, allocator.Buckets)
	if err != nil {
		t.Fatal(err)
	}
	want := []allocator.Range{
		{From: 0, To: 1023, Cell: "cell-1"},
		{From: 1024, To: 2047, Cell: "cell-2"},
		{From: 2048, To: 3071, Cell: "cell-3"},
		{From: 3072, To: 4095, Cell: "cell-4"},
	}
	if got := m.Ranges(); !reflect.DeepEqual(got, want) {
		t.Errorf("ranges %v, want %v", got, want)
	}
	if got := want[0].String(); got != "0-1023 cell-1" {
		t.Errorf("a range reads %q", got)
	}
	m.Ranges()[0].Cell = "changed"
	if cell, _ := m.Home(0); cell != "cell-1" {
		t.Errorf("who changes the answer of Ranges changes the map: home of 0 is %s", cell)
	}
}

func TestBucketIsTheRemainder(t *testing.T) {
	for hash, want := range map[uint64]uint16{0: 0, 4095: 4095, 4096: 0, 1<<64 - 1: 4095, 1<<40 + 7: 7} {
		if got := allocator.Bucket(hash); got != want {
			t.Errorf("Bucket(%d) = %d, want %d", hash, got, want)
		}
	}
}

func TestDealBucketsAgreesWithThePlainTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(1, 20), rapid.Just(allocator.Buckets)).Draw(t, "n")
		cells := drawnCellWeights(t, 24)
		m, err := allocator.DealBuckets(cells, n)
		if err != nil {
			t.Fatal(err)
		}
		want := plainHomes(n, weightsOf(cells))
		if got := every(t, m); !reflect.DeepEqual(got, want) {
			t.Fatalf("homes %v, the twin says %v", got, want)
		}
		if cell, ok := m.Home(uint16(n)); ok {
			t.Fatalf("bucket %d is outside and has home %s", n, cell)
		}
		if again, err := allocator.DealBuckets(shuffled(t, cells), n); err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("another order of cells gives %v, %v", again, err)
		}
		owned := m.Owned()
		for _, cell := range want {
			owned[cell]--
		}
		for cell, count := range owned {
			if count != 0 {
				t.Fatalf("Owned is wrong by %d for %s", count, cell)
			}
		}
		if back, err := allocator.NewHomeMap(n, shuffled(t, m.Ranges())); err != nil || !reflect.DeepEqual(back, m) {
			t.Fatalf("the ranges make another map: %v, %v", back, err)
		}
	})
}

func FuzzDealBuckets(f *testing.F) {
	f.Add([]byte{1, 1, 1, 1}, 4096)
	f.Add([]byte{0, 255, 3}, 7)
	f.Fuzz(func(t *testing.T, weights []byte, n int) {
		var cells []allocator.CellWeight
		var sum int
		for i, w := range weights {
			cells = append(cells, allocator.CellWeight{Cell: fmt.Sprint("c", i), Weight: uint32(w)})
			sum += int(w)
		}
		m, err := allocator.DealBuckets(cells, n)
		if valid := n >= 1 && n <= allocator.Buckets && sum > 0 && len(cells) <= allocator.MaxCells; valid != (err == nil) {
			t.Fatalf("valid %v, error %v", valid, err)
		}
		if err == nil && !reflect.DeepEqual(every(t, m), plainHomes(n, weightsOf(cells))) {
			t.Fatalf("ranges %v differ from the twin", m.Ranges())
		}
	})
}

func TestNewHomeMapRefusals(t *testing.T) {
	whole := []allocator.CellWeight{{"a", 1}}
	cases := map[string]struct {
		make func() (allocator.HomeMap, error)
		rule error
	}{
		"n 0":        {func() (allocator.HomeMap, error) { return allocator.DealBuckets(whole, 0) }, allocator.ErrBucketCount},
		"n 4097":     {func() (allocator.HomeMap, error) { return allocator.DealBuckets(whole, 4_097) }, allocator.ErrBucketCount},
		"no cells":   {func() (allocator.HomeMap, error) { return allocator.DealBuckets(nil, 9) }, allocator.ErrNoCells},
		"no weights": {func() (allocator.HomeMap, error) { return allocator.DealBuckets([]allocator.CellWeight{{"a", 0}}, 9) }, allocator.ErrNoWeight},
		"gap": {func() (allocator.HomeMap, error) {
			return allocator.NewHomeMap(9, []allocator.Range{{0, 3, "a"}, {5, 8, "b"}})
		}, allocator.ErrRanges},
		"overlap": {func() (allocator.HomeMap, error) {
			return allocator.NewHomeMap(9, []allocator.Range{{0, 5, "a"}, {5, 8, "b"}})
		}, allocator.ErrRanges},
		"short":     {func() (allocator.HomeMap, error) { return allocator.NewHomeMap(9, []allocator.Range{{0, 7, "a"}}) }, allocator.ErrRanges},
		"empty":     {func() (allocator.HomeMap, error) { return allocator.NewHomeMap(9, nil) }, allocator.ErrRanges},
		"too long":  {func() (allocator.HomeMap, error) { return allocator.NewHomeMap(9, []allocator.Range{{0, 9, "a"}}) }, allocator.ErrOutOfRange},
		"backwards": {func() (allocator.HomeMap, error) { return allocator.NewHomeMap(9, []allocator.Range{{8, 0, "a"}}) }, allocator.ErrOutOfRange},
		"unnamed":   {func() (allocator.HomeMap, error) { return allocator.NewHomeMap(9, []allocator.Range{{0, 8, ""}}) }, allocator.ErrCellUnnamed},
	}
	for name, c := range cases {
		if m, err := c.make(); !errors.Is(err, c.rule) || m.Buckets() != 0 {
			t.Errorf("%s: %v, %v, want no map and %v", name, m, err, c.rule)
		}
	}
}

// A handover moves exactly the buckets of the range that the giver owns.
func TestHandOverAgreesWithALoopOverBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 40).Draw(t, "n")
		cells := append(drawnCellWeights(t, 5), allocator.CellWeight{Cell: "target", Weight: 1})
		m, err := allocator.DealBuckets(cells, n)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 5).Draw(t, "handovers") {
			giver := rapid.SampledFrom(cells).Draw(t, "giver").Cell
			taker := rapid.SampledFrom(cells).Draw(t, "taker").Cell
			from, to := uint16(rapid.IntRange(0, n).Draw(t, "from")), uint16(rapid.IntRange(0, n).Draw(t, "to"))
			before := every(t, m)
			want, moved := every(t, m), 0
			for b := int(from); b <= int(to) && b < n; b++ {
				if before[b] == giver {
					want[b] = taker
					moved++
				}
			}
			next, ranges, err := m.HandOver(giver, taker, from, to)
			valid := giver != taker && from <= to && int(to) < n && moved > 0
			if valid != (err == nil) {
				t.Fatalf("%s to %s, %d-%d: valid %v, error %v", giver, taker, from, to, valid, err)
			}
			if !reflect.DeepEqual(every(t, m), before) {
				t.Fatal("the handover changed the map it was asked of")
			}
			if err != nil {
				continue
			}
			if got := every(t, next); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s to %s, %d-%d: %v, want %v", giver, taker, from, to, got, want)
			}
			for _, r := range ranges {
				moved -= r.Count()
			}
			if moved != 0 {
				t.Fatalf("the moved ranges %v are off by %d buckets", ranges, moved)
			}
			m = next
		}
	})
}

func TestHandOverRefusals(t *testing.T) {
	m, err := allocator.DealBuckets([]allocator.CellWeight{{"a", 1}, {"b", 1}}, 8)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		giver, taker string
		from, to     uint16
		rule         error
	}{
		"outside":       {"a", "b", 0, 8, allocator.ErrOutOfRange},
		"backwards":     {"a", "b", 3, 2, allocator.ErrOutOfRange},
		"same cell":     {"a", "a", 0, 3, allocator.ErrSameCell},
		"unnamed taker": {"a", "", 0, 3, allocator.ErrCellUnnamed},
		"not the owner": {"b", "a", 0, 3, allocator.ErrNothingToMove},
		"unknown giver": {"z", "a", 0, 7, allocator.ErrNothingToMove},
	}
	for name, c := range cases {
		if _, _, err := m.HandOver(c.giver, c.taker, c.from, c.to); !errors.Is(err, c.rule) {
			t.Errorf("%s: %v, want %v", name, err, c.rule)
		}
	}
}

func TestCutAtTheEndOfTheSpace(t *testing.T) {
	before, inside, behind := allocator.Range{From: 0, To: 65_535, Cell: "a"}.Cut(65_535, 65_535)
	if len(before) != 1 || before[0].To != 65_534 || len(inside) != 1 || inside[0].From != 65_535 || behind != nil {
		t.Errorf("cut into %v, %v, %v", before, inside, behind)
	}
}

func TestMergeRangesJoinsOnlyNeighboursOfOneCell(t *testing.T) {
	merged := allocator.MergeRanges([]allocator.Range{
		{From: 6, To: 7, Cell: "a"}, {From: 0, To: 1, Cell: "a"}, {From: 2, To: 2, Cell: "a"}, {From: 3, To: 4, Cell: "b"}, {From: 8, To: 9, Cell: "a"},
	})
	want := []allocator.Range{{From: 0, To: 2, Cell: "a"}, {From: 3, To: 4, Cell: "b"}, {From: 6, To: 9, Cell: "a"}}
	if !reflect.DeepEqual(merged, want) {
		t.Errorf("merged into %v, want %v", merged, want)
	}
	if apart := allocator.MergeRanges([]allocator.Range{{From: 5, To: 6, Cell: "a"}, {From: 0, To: 1, Cell: "a"}}); len(apart) != 2 {
		t.Errorf("ranges with a gap became %v", apart)
	}
}

func TestHomeWeightsFollowThePolicy(t *testing.T) {
	cells := []allocator.Share{{Cell: "a", Weight: 3}, {Cell: "b", Weight: 0}}
	if got := allocator.HomeWeights(allocator.Equal, cells); !reflect.DeepEqual(got, []allocator.CellWeight{{"a", 1}, {"b", 1}}) {
		t.Errorf("EQUAL: %v", got)
	}
	for _, p := range []allocator.Policy{allocator.Weighted, allocator.Explicit, allocator.Demand} {
		if got := allocator.HomeWeights(p, cells); !reflect.DeepEqual(got, []allocator.CellWeight{{"a", 3}, {"b", 0}}) {
			t.Errorf("%s: %v", p, got)
		}
	}
}

func TestCheckSkew(t *testing.T) {
	plan := func(reserve int64, units ...int64) allocator.Plan {
		p := allocator.Plan{Reserve: quantity.Must(reserve)}
		sum := reserve
		for i, u := range units {
			p.Grants = append(p.Grants, allocator.Grant{Cell: string(rune('a' + i)), Units: quantity.Must(u)})
			sum += u
		}
		p.Limit = quantity.Must(sum)
		return p
	}
	deal := func(weights ...uint32) allocator.HomeMap {
		var cells []allocator.CellWeight
		for i, w := range weights {
			cells = append(cells, allocator.CellWeight{Cell: string(rune('a' + i)), Weight: w})
		}
		m, err := allocator.DealBuckets(cells, 1_000)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	cases := []struct {
		name  string
		plan  allocator.Plan
		homes allocator.HomeMap
		want  string
	}{
		{"alike", plan(400, 500, 500), deal(1, 1), ""},
		{"exactly a tenth", plan(0, 550, 450), deal(1, 1), ""},
		{"a unit more than a tenth", plan(0, 5_501, 4_499), deal(1, 1), "a b"},
		{"small cell by a unit only", plan(0, 1, 1, 0), deal(1, 1, 1), ""},
		{"no bucket", plan(0, 999, 1), deal(1, 0), "b"},
		{"buckets and no units", plan(0, 10), deal(1, 1), "a b"},
		{"nothing granted", plan(10, 0, 0), deal(1, 9), ""},
	}
	for _, c := range cases {
		var got []string
		for _, s := range allocator.CheckSkew(c.plan, c.homes) {
			got = append(got, s.Cell)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: skewed %v, want %q", c.name, got, c.want)
		}
	}
	texts := allocator.CheckSkew(plan(0, 999, 1), deal(1, 0))
	if len(texts) != 1 || !strings.Contains(texts[0].String(), "owns no bucket") {
		t.Errorf("the warning of a cell without bucket reads %v", texts)
	}
	texts = allocator.CheckSkew(plan(0, 800, 200), deal(1, 1))
	if len(texts) != 2 || !strings.Contains(texts[1].String(), "granted 200 units where its 500 buckets would bring 500") {
		t.Errorf("the warning of a skewed cell reads %v", texts)
	}
}

// HomeWeights exists so that EQUAL and WEIGHTED splits with enough units for
// everyone are not skewed when every cell has a good number of buckets.
func TestEqualAndWeightedSplitsAreNotSkewed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cells []allocator.Share
		for _, name := range drawnCells(t, 10) {
			cells = append(cells, allocator.Share{Cell: name, Weight: rapid.Uint32Range(10, 40).Draw(t, "weight")})
		}
		policy := rapid.SampledFrom([]allocator.Policy{allocator.Equal, allocator.Weighted}).Draw(t, "policy")
		plan, err := allocator.Split(allocator.Request{Limit: drawnUnits(t, "limit", 1_000_000), Policy: policy, Cells: cells})
		if err != nil {
			t.Fatal(err)
		}
		m, err := allocator.DealBuckets(allocator.HomeWeights(policy, cells), allocator.Buckets)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range allocator.CheckSkew(plan, m) {
			if apart := s.Units.Int64() - s.Fair.Int64(); apart > 1 || apart < -1 {
				t.Fatalf("skewed: %s", s)
			}
		}
	})
}
