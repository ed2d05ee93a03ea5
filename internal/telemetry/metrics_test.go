package telemetry_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

func TestRegistryIsItsOwn(t *testing.T) {
	reg := telemetry.NewRegistry()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
	}
	for _, want := range []string{"cellquota_build_info", "go_goroutines", "process_open_fds"} {
		if !names[want] {
			t.Errorf("%s is missing", want)
		}
	}
	global, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range global {
		if f.GetName() == "cellquota_build_info" {
			t.Error("something of ours is in the global registry")
		}
	}
}

func TestDurationBucketsHaveThePromisedBounds(t *testing.T) {
	for _, bound := range []float64{0.1, 1, 3, 60} {
		if !slices.Contains(telemetry.DurationBuckets, bound) {
			t.Errorf("%v s is missing", bound)
		}
	}
	if !slices.IsSorted(telemetry.DurationBuckets) {
		t.Error("not sorted")
	}
}

func TestLabelSetIsBounded(t *testing.T) {
	set := telemetry.NewLabelSet(2)
	got := []string{set.Value("a"), set.Value("b"), set.Value("c"), set.Value("a")}
	if !slices.Equal(got, []string{"a", "b", telemetry.Other, "a"}) {
		t.Fatalf("got %v", got)
	}
	set.Forget("a")
	if set.Value("c") != "c" || set.Value("a") != telemetry.Other {
		t.Fatal("a forgotten value gives its room back")
	}
}

func TestLabelSetUnderConcurrency(t *testing.T) {
	for range 300 {
		set, begin := telemetry.NewLabelSet(1), make(chan struct{})
		var kept atomic.Int32
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				<-begin
				if set.Value(fmt.Sprint(worker)) != telemetry.Other {
					kept.Add(1)
				}
			})
		}
		close(begin)
		all.Wait()
		if kept.Load() != 1 {
			t.Fatalf("%d values kept in a set with room for one", kept.Load())
		}
	}
}
