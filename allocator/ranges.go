package allocator

import (
	"cmp"
	"fmt"
	"slices"
)

// Range is the buckets From to To, both inclusive, and their home.
type Range struct {
	From, To uint16
	Cell     string
}

// Count gives the number of buckets of a range.
func (r Range) Count() int { return int(r.To) - int(r.From) + 1 }

// String gives "0-1023 cell-1".
func (r Range) String() string { return fmt.Sprintf("%d-%d %s", r.From, r.To, r.Cell) }

func (r Range) check(i, n int) error {
	field := fmt.Sprintf("ranges[%d]", i)
	switch {
	case r.Cell == "":
		return &Error{Field: field, Rule: ErrCellUnnamed}
	case r.From > r.To || int(r.To) >= n:
		return invalid(field, ErrOutOfRange, "%d-%d of %d", r.From, r.To, n)
	}
	return nil
}

// Cut divides a range into what lies before, inside and behind [from, to]; each
// part is one range or none.
func (r Range) Cut(from, to uint16) (before, inside, behind []Range) {
	if r.From < from {
		before = []Range{{From: r.From, To: min(r.To, from-1), Cell: r.Cell}}
	}
	if low, high := max(r.From, from), min(r.To, to); low <= high {
		inside = []Range{{From: low, To: high, Cell: r.Cell}}
	}
	if r.To > to {
		behind = []Range{{From: max(r.From, to+1), To: r.To, Cell: r.Cell}}
	}
	return before, inside, behind
}

// MergeRanges gives the ranges ascending, with neighbours of one cell made one.
// It does not care whether they cover everything; it expects no overlap.
func MergeRanges(ranges []Range) []Range {
	var merged []Range
	for _, r := range slices.SortedFunc(slices.Values(ranges), func(a, b Range) int { return cmp.Compare(a.From, b.From) }) {
		if last := len(merged) - 1; last >= 0 && merged[last].Cell == r.Cell && int(merged[last].To)+1 == int(r.From) {
			merged[last].To = r.To
			continue
		}
		merged = append(merged, r)
	}
	return merged
}
