package allocator

import (
	"cmp"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
)

// Buckets is the number of hash buckets of a traffic domain (architecture 5).
const Buckets = 4_096

// Bucket gives the bucket of a user from the 64-bit hash of the user id, which
// internal/ids computes.
func Bucket(hash uint64) uint16 { return uint16(hash % Buckets) }

// HomeMap says which cell is home to each bucket of one traffic domain. It is a
// value that nobody changes: a handover makes a new one. Every bucket has
// exactly one home (I4 stands on it). The zero value has no bucket.
type HomeMap struct {
	n      int
	ranges []Range // ascending, gapless, no two neighbours of one cell
}

// DealBuckets deals n buckets (1 to Buckets) to the cells in contiguous ranges,
// ascending by cell id, whose sizes are by largest remainder over the weights.
// A cell of weight 0, or too light for one bucket, gets none and must not be
// granted units. Errors are *Error: those of a WEIGHTED split on names and
// weights, and ErrBucketCount.
func DealBuckets(cells []CellWeight, n int) (HomeMap, error) {
	if n < 1 || n > Buckets {
		return HomeMap{}, invalid("buckets", ErrBucketCount, "%d", n)
	}
	if err := checkNames(len(cells), func(i int) string { return cells[i].Cell }); err != nil {
		return HomeMap{}, err
	}
	sorted := slices.SortedFunc(slices.Values(cells), func(a, b CellWeight) int { return cmp.Compare(a.Cell, b.Cell) })
	weights := make([]claim, len(sorted))
	for i, c := range sorted {
		weights[i] = claim{cell: c.Cell, weight: uint64(c.Weight)}
	}
	sizes, err := apportion(quantity.Must(int64(n)), weights, "cells[].weight")
	if err != nil {
		return HomeMap{}, err
	}
	var ranges []Range
	next := 0
	for i, c := range sorted {
		if size := int(sizes[i].Int64()); size > 0 {
			ranges = append(ranges, Range{From: uint16(next), To: uint16(next + size - 1), Cell: c.Cell})
			next += size
		}
	}
	return NewHomeMap(n, ranges)
}

// HomeWeights gives the weights by which buckets are dealt so that customers
// come in the proportion in which a split of this policy hands out units: EQUAL
// deals equally, WEIGHTED by the weights of the split. EXPLICIT and DEMAND say
// nothing about customers: there the cells' own weights count, and CheckSkew
// tells where the two part.
func HomeWeights(policy Policy, cells []Share) []CellWeight {
	out := make([]CellWeight, len(cells))
	for i, c := range cells {
		out[i] = CellWeight{Cell: c.Cell, Weight: c.Weight}
		if policy == Equal {
			out[i].Weight = 1
		}
	}
	return out
}

// NewHomeMap makes the map of n buckets from ranges in any order, as a store
// kept them. ErrBucketCount, ErrOutOfRange, ErrCellUnnamed, or ErrRanges where a
// bucket has no home or two.
func NewHomeMap(n int, ranges []Range) (HomeMap, error) {
	if n < 1 || n > Buckets {
		return HomeMap{}, invalid("buckets", ErrBucketCount, "%d", n)
	}
	for i, r := range ranges {
		if err := r.check(i, n); err != nil {
			return HomeMap{}, err
		}
	}
	sorted := slices.SortedFunc(slices.Values(ranges), func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	next := 0
	for _, r := range sorted {
		if int(r.From) != next {
			return HomeMap{}, invalid("ranges", ErrRanges, "bucket %d without home or with two", min(next, int(r.From)))
		}
		next = int(r.To) + 1
	}
	if next != n {
		return HomeMap{}, invalid("ranges", ErrRanges, "%d of %d buckets", next, n)
	}
	return HomeMap{n: n, ranges: MergeRanges(sorted)}, nil
}

// Home gives the home cell of a bucket; ok is false for a bucket outside the
// map. It is a binary search over the ranges.
func (m HomeMap) Home(bucket uint16) (cell string, ok bool) {
	at, _ := slices.BinarySearchFunc(m.ranges, bucket, func(r Range, b uint16) int { return cmp.Compare(r.To, b) })
	if at == len(m.ranges) {
		return "", false
	}
	return m.ranges[at].Cell, true
}

// Buckets gives the number of buckets of the map.
func (m HomeMap) Buckets() int { return m.n }

// Ranges gives a copy of the ranges, ascending, neighbours of one cell merged.
func (m HomeMap) Ranges() []Range { return slices.Clone(m.ranges) }

// Owned gives how many buckets each cell is home to; a cell with none is absent.
func (m HomeMap) Owned() map[string]int {
	owned := map[string]int{}
	for _, r := range m.ranges {
		owned[r.Cell] += r.Count()
	}
	return owned
}

// HandOver gives the map after the buckets of [from, to] that giver owns went to
// taker, and those buckets (`route handover` moves no other). The map itself
// does not change. ErrOutOfRange, ErrSameCell, ErrCellUnnamed for the taker, or
// ErrNothingToMove.
func (m HomeMap) HandOver(giver, taker string, from, to uint16) (HomeMap, []Range, error) {
	switch {
	case from > to || int(to) >= m.n:
		return HomeMap{}, nil, invalid("buckets", ErrOutOfRange, "%d-%d of %d", from, to, m.n)
	case taker == "":
		return HomeMap{}, nil, &Error{Field: "to", Rule: ErrCellUnnamed}
	case giver == taker:
		return HomeMap{}, nil, invalid("to", ErrSameCell, "%.64q", taker)
	}
	var moved, after []Range
	for _, r := range m.ranges {
		before, inside, behind := r.Cut(from, to)
		after = append(append(after, before...), behind...)
		for _, part := range inside {
			if part.Cell == giver {
				moved = append(moved, part)
				part.Cell = taker
			}
			after = append(after, part)
		}
	}
	if len(moved) == 0 {
		return HomeMap{}, nil, invalid("buckets", ErrNothingToMove, "%d-%d of %.64q", from, to, giver)
	}
	next, err := NewHomeMap(m.n, after)
	return next, moved, err
}
