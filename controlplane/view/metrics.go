package view

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Bounds of the labels that operators choose; what is beyond is summed up as
// "other".
const (
	campaignLabels = 64
	skuLabels      = 256
	cellLabels     = 256
)

// collector reads the metrics off a snapshot at each scrape, so that they cannot
// drift from the records.
type collector struct {
	view                   *View
	campaigns, skus, cells *telemetry.LabelSet
}

func newCollector(v *View) *collector {
	return &collector{
		view: v, campaigns: telemetry.NewLabelSet(campaignLabels),
		skus: telemetry.NewLabelSet(skuLabels), cells: telemetry.NewLabelSet(cellLabels),
	}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(telemetry.Namespace+"_"+name, help, labels, nil)
}

var (
	ageDesc        = describe("view_age_seconds", "How long ago the view was last known to be current.")
	revisionDesc   = describe("view_revision", "etcd's revision that the view holds.")
	quarantineDesc = describe("view_quarantined_records", "Records that cannot be read.")
	reserveDesc    = describe("book_reserve_units", "Units of a SKU that no cell holds.", "campaign_id", "sku_id")
	allocatedDesc  = describe("book_allocated_units", "Units of a SKU granted to a cell.", "campaign_id", "sku_id", "cell_id")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ageDesc, revisionDesc, quarantineDesc, reserveDesc, allocatedDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.view.Snapshot()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(ageDesc, s.Age().Seconds())
	gauge(revisionDesc, float64(s.Revision()))
	gauge(quarantineDesc, float64(len(s.Quarantined())))
	reserves, allocated := c.units(s.Books(""))
	for l, units := range reserves {
		gauge(reserveDesc, float64(units), l[0], l[1])
	}
	for l, units := range allocated {
		gauge(allocatedDesc, float64(units), l[0], l[1], l[2])
	}
}

// units adds the books up by their bounded labels.
func (c *collector) units(books []core.Book) (reserves map[[2]string]int64, allocated map[[3]string]int64) {
	reserves, allocated = map[[2]string]int64{}, map[[3]string]int64{}
	for _, b := range books {
		campaign := c.campaigns.Value(string(b.Key.Campaign))
		sku := c.skus.Value(string(b.Key.SKU))
		reserves[[2]string{campaign, sku}] += b.Reserve.Int64()
		for _, a := range b.Allocations {
			allocated[[3]string{campaign, sku, c.cells.Value(string(a.Cell))}] += a.Granted.Int64()
		}
	}
	return reserves, allocated
}
