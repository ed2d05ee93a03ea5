package allocator_test

import (
	"fmt"
	"testing"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
)

// Each function takes time in proportion to the cells (times the logarithm of
// sorting them): compare the lines of 10, 100 and 1,000.

func perCells(b *testing.B, run func(b *testing.B, cells int)) {
	for _, n := range []int{10, 100, 1_000} {
		b.Run(fmt.Sprintf("cells=%d", n), func(b *testing.B) { run(b, n) })
	}
}

func BenchmarkSplit(b *testing.B) {
	perCells(b, func(b *testing.B, n int) {
		r := allocator.Request{Limit: quantity.Must(quantity.Max), Policy: allocator.Weighted}
		for i := range n {
			r.Cells = append(r.Cells, allocator.Share{Cell: fmt.Sprintf("cell-%d", i), Weight: uint32(i%7 + 1)})
		}
		for b.Loop() {
			if _, err := allocator.Split(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkPlanRound(b *testing.B) {
	perCells(b, func(b *testing.B, n int) {
		r := allocator.Round{Reserve: quantity.Must(1_000_000), LowWaterPct: percent(b, "10%"), TranchePct: percent(b, "5%")}
		for i := range n {
			r.Cells = append(r.Cells, shelf(fmt.Sprintf("cell-%d", i), 100, int64(i%20)))
		}
		for b.Loop() {
			if _, err := allocator.PlanRound(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkPlanRebalance(b *testing.B) {
	perCells(b, func(b *testing.B, n int) {
		r := allocator.Rebalance{Margin: percent(b, "25%")}
		for i := range n {
			r.Cells = append(r.Cells, usage(fmt.Sprintf("cell-%d", i), 1_000, int64(i*37%1_000), int64(i*91%1_000), allocator.Selling))
		}
		for b.Loop() {
			if _, err := allocator.PlanRebalance(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
