package allocator

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
)

// Skew is a cell whose share of the units and share of the buckets differ by
// more than a tenth: its units would strand, or its customers go short.
type Skew struct {
	Cell    string
	Units   quantity.Quantity // granted to it
	Buckets int               // it is home to
	// Fair is the units that its buckets would bring, rounded down.
	Fair quantity.Quantity
}

// String gives the warning of the preview.
func (s Skew) String() string {
	if s.Buckets == 0 {
		return fmt.Sprintf("cell %s owns no bucket: none of its %s units can be sold", s.Cell, s.Units)
	}
	return fmt.Sprintf("cell %s is granted %s units where its %d buckets would bring %s", s.Cell, s.Units, s.Buckets, s.Fair)
}

// CheckSkew compares a split with a deal of buckets, cell by cell, and gives
// the cells that are skewed, ascending by cell id: those of the plan and those
// that own buckets without being in it. The measure is the difference of the
// two shares relative to the share of buckets; less than one whole unit is
// never a warning, because units do not divide further. Where nothing is
// granted, nothing is skewed.
func CheckSkew(plan Plan, homes HomeMap) []Skew {
	granted := plan.Limit.Int64() - plan.Reserve.Int64()
	if granted <= 0 || homes.n == 0 {
		return nil
	}
	owned := homes.Owned()
	cells := slices.Collect(maps.Keys(owned))
	for _, g := range plan.Grants {
		cells = append(cells, g.Cell)
	}
	slices.Sort(cells)
	var warnings []Skew
	for _, cell := range slices.Compact(cells) {
		units, buckets := plan.Units(cell), owned[cell]
		if skewed(units.Int64(), granted, int64(buckets), int64(homes.n)) {
			fair := quantity.Must(granted * int64(buckets) / int64(homes.n))
			warnings = append(warnings, Skew{Cell: cell, Units: units, Buckets: buckets, Fair: fair})
		}
	}
	return warnings
}

// skewed compares units/granted with buckets/n by cross products, all below
// 10 × 1e9 × 4096, so nothing is rounded.
func skewed(units, granted, buckets, n int64) bool {
	byUnits, byBuckets := units*n, buckets*granted
	apart := max(byUnits-byBuckets, byBuckets-byUnits)
	return apart >= n && apart*10 > byBuckets
}
