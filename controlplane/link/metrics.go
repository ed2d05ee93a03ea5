package link

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// cellLabels bounds the label that operators choose; what is beyond is "other".
const cellLabels = 256

var (
	fenceDesc = prometheus.NewDesc(telemetry.Namespace+"_fence_version",
		"The cell's fence version as etcd has it.", []string{"cell_id"}, nil)
	leaseDesc = prometheus.NewDesc(telemetry.Namespace+"_lease_remaining_seconds",
		"Rest of the longest lease that a process of the cell holds, on the leader; 0: nobody holds one.", []string{"cell_id"}, nil)
)

// collector reads the metrics at each scrape, so that they cannot drift.
type collector struct {
	hub   *Hub
	cells *telemetry.LabelSet
}

func newCollector(h *Hub) *collector {
	return &collector{hub: h, cells: telemetry.NewLabelSet(cellLabels)}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	out <- fenceDesc
	out <- leaseDesc
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	versions, leases := map[string]float64{}, map[string]float64{}
	leads := c.hub.present() != nil
	for _, cell := range c.hub.View.Snapshot().Cells() {
		label := c.cells.Value(string(cell.Spec.ID))
		versions[label] = max(versions[label], float64(cell.FenceVersion))
		if !leads {
			continue
		}
		leases[label] = max(leases[label], 0)
		for _, p := range c.hub.Processes(cell.Spec.ID) {
			leases[label] = max(leases[label], p.LeaseRemaining.Seconds())
		}
	}
	for label, v := range versions {
		out <- prometheus.MustNewConstMetric(fenceDesc, prometheus.GaugeValue, v, label)
	}
	for label, v := range leases {
		out <- prometheus.MustNewConstMetric(leaseDesc, prometheus.GaugeValue, v, label)
	}
}
