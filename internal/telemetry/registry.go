package telemetry

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Namespace is the prefix of every metric of ours.
const Namespace = "cellquota"

// DurationBuckets are the histogram bounds for durations, in seconds. 0.1, 1, 3
// and 60 s are promised: the service's objectives are read at them.
var DurationBuckets = []float64{
	0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, 60,
}

// version is set by the linker (-X …/internal/telemetry.version=v1.2.3).
var version = ""

// Version returns the version the program was built as: what the linker was
// told, else what the module says, else "devel".
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// revision returns the commit the program was built from, or "".
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// NewRegistry returns a registry of this process alone, with the Go runtime,
// the process and cellquota_build_info in it. Nothing of ours is ever put into
// the global registry, which libraries write to as they please.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: Namespace, Name: "build_info",
		Help: "Always 1; the labels say what was built.",
		ConstLabels: prometheus.Labels{
			"version": Version(), "revision": revision(), "goversion": runtime.Version(),
		},
	})
	build.Set(1)
	reg.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}
