package rebuild_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// metric sums the series of a counter or gauge whose first label has this value;
// with "" it sums all.
func metric(t *testing.T, reg *prometheus.Registry, name, label string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || m.GetLabel()[0].GetValue() == label {
				sum, found = sum+m.GetCounter().GetValue()+m.GetGauge().GetValue(), true
			}
		}
	}
	if !found {
		t.Fatalf("no series %q of %s", label, name)
	}
	return sum
}
