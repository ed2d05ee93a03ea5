package settle

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/controlplane/archive"
	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/internal/ids"
)

// reportSchema is the version of the final report.
const reportSchema = 1

// Report is a campaign's final report, as it stands in the archive.
type Report struct {
	Schema    int             `json:"schema"`
	Kind      string          `json:"kind"` // "final-report"
	Campaign  ids.CampaignID  `json:"campaign_id"`
	Spec      json.RawMessage `json:"spec"` // cellquota.v1.CampaignSpec as JSON
	Owner     string          `json:"owner"`
	Published time.Time       `json:"published_at"`
	Ended     time.Time       `json:"ended_at"`
	Cancelled string          `json:"cancelled_by_operation,omitempty"`
	TakenAt   time.Time       `json:"taken_at"`
	// Orders counts what became of the orders, over all shards.
	Orders ReportOrders `json:"orders"`
	// SKUs: sale_limit = confirmed + Σ units, per SKU (I10).
	SKUs []undersell.Account `json:"skus"`
}

// ReportOrders counts orders by how they ended.
type ReportOrders struct {
	Paid   int64 `json:"paid"`
	Closed int64 `json:"closed"`
}

// account gives a SKU's account.
func (r Report) account(sku ids.SKUID) (undersell.Account, bool) {
	for _, a := range r.SKUs {
		if a.SKU == sku {
			return a, true
		}
	}
	return undersell.Account{}, false
}

func makeReport(result undersell.Result, ends []cellEnd, now time.Time) ([]byte, error) {
	c := result.Side.Campaign
	spec, err := toJSON.Marshal(convert.Spec(c.Spec))
	if err != nil {
		return nil, fmt.Errorf("spec of %s: %w", c.Spec.ID, err)
	}
	report := Report{
		Schema: reportSchema, Kind: "final-report", Campaign: c.Spec.ID, Spec: spec, Owner: c.Owner, Published: c.PublishedAt,
		Ended: c.EndedAt().UTC(), Cancelled: c.CancelledBy, TakenAt: now.UTC(), SKUs: result.Accounts,
	}
	for _, e := range ends {
		report.Orders.Paid += e.said.Paid
		report.Orders.Closed += e.said.Closed
	}
	return json.Marshal(report)
}

func decodeReport(object core.ArchiveObject, content []byte) (Report, error) {
	var report Report
	if err := json.Unmarshal(content, &report); err != nil {
		return Report{}, fmt.Errorf("%w: %s: %w", archive.ErrCorrupt, object.Name, err)
	}
	if report.Kind != "final-report" || report.Schema != reportSchema {
		return Report{}, fmt.Errorf("%w: %s: kind %q of schema %d", archive.ErrCorrupt, object.Name, report.Kind, report.Schema)
	}
	return report, nil
}
