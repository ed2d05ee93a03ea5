package testkit

import (
	"fmt"
	"testing"
)

// Linear benchmarks run at each size, ascending, as what=size, and says what the
// whole costs for one of them ("ns/cell") and how that compares with the smallest
// size of the same run ("x-of-linear"): 1 is a cost in proportion to the size, below
// 1 less than that, and a figure that grows with the size is a cost that grows
// faster. Ratios of one run hold on any machine; times do not.
//
// run measures with b.Loop, after whatever it prepares.
func Linear(b *testing.B, what string, sizes []int, run func(b *testing.B, size int)) {
	b.Helper()
	least := 0.0
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%s=%d", what, size), func(b *testing.B) {
			run(b, size)
			each := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(size)
			if size == sizes[0] {
				least = each
			}
			b.ReportMetric(each, "ns/"+what)
			if least > 0 { // the smallest size was left out by the regexp
				b.ReportMetric(each/least, "x-of-linear")
			}
		})
	}
}
