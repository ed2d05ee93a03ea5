package telemetry_test

import (
	"fmt"
	"slices"
	"sync"
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
	set := telemetry.NewLabelSet(10)
	var mu sync.Mutex
	seen := map[string]bool{}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range 100 {
				v := set.Value(fmt.Sprintf("%d-%d", worker, i))
				mu.Lock()
				seen[v] = true
				mu.Unlock()
			}
		}()
	}
	all.Wait()
	if len(seen) != 11 {
		t.Fatalf("%d values, want 10 and other", len(seen))
	}
}
