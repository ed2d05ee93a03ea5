package testkit

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// leastPairs is how many pairs Against measures at least: their median is one of them.
const leastPairs = 3

// Against compares two ways to do the same on the same server in one run: ours and
// theirs take turns, each call does some and returns how many per second, and the
// median of the pairs' ratios is reported as "x-of-NAME" beside both medians and the
// goal. What else the machine does then burdens both alike. Nothing is asserted: a
// ratio is read by a person, beside its goal.
//
// Each iteration of the benchmark is one pair, three at least; round counts them from 0.
func Against(b *testing.B, name string, goal float64, ours, theirs func(round int) float64) {
	b.Helper()
	var own, other, ratios []float64
	pair := func() {
		n := len(ratios)
		// Who begins alternates: what one leaves behind, dirty pages say, burdens the next.
		if n%2 == 0 {
			own, other = append(own, ours(n)), append(other, theirs(n))
		} else {
			other, own = append(other, theirs(n)), append(own, ours(n))
		}
		ratios = append(ratios, own[n]/other[n])
		b.Logf("pair %d: %.0f/s against %.0f/s of %s: %.2f", n+1, own[n], other[n], name, ratios[n])
	}
	for b.Loop() {
		pair()
	}
	for len(ratios) < leastPairs {
		pair()
	}
	b.ReportMetric(0, "ns/op") // of a pair: says nothing
	b.ReportMetric(median(ratios), "x-of-"+name)
	b.ReportMetric(goal, "x-goal")
	b.ReportMetric(median(own), "per-s")
	b.ReportMetric(median(other), name+"-per-s")
}

// median is the middle one, or the lower of the two in the middle.
func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[(len(sorted)-1)/2]
}

// OwnCPU is the processor time that this process has used: on a busy machine a
// steadier figure than time.
func OwnCPU(t testing.TB) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
