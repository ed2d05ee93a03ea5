package campaignreport

import (
	"encoding/json"
	"time"

	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/controlplane/report/verify"
	"github.com/cellquota/cellquota/internal/ids"
)

// Report is a campaign's account and what its shards count. Make it with Make or Decode.
type Report struct {
	Schema    int             `json:"schema"`
	Kind      string          `json:"kind"` // "final-report", live or not
	Campaign  ids.CampaignID  `json:"campaign_id"`
	Spec      json.RawMessage `json:"spec"` // cellquota.v1.CampaignSpec as JSON
	Owner     string          `json:"owner"`
	Published time.Time       `json:"published_at"`
	Ended     time.Time       `json:"ended_at"` // close_at, or when it was closed before
	Cancelled string          `json:"cancelled_by_operation,omitempty"`
	TakenAt   time.Time       `json:"taken_at"`
	// Orders counts what became of the orders, over the shards that answered.
	Orders Orders `json:"orders"`
	// SKUs: sale_limit = confirmed + Σ units, per SKU (I10).
	SKUs []undersell.Account `json:"skus"`

	// The rest is of schema 2.

	// Verdict: OK, BROKEN (Breaches name where) or UNCHECKED (Unread names what).
	Verdict verify.Verdict `json:"verdict,omitempty"`
	// Cells that answered, by SKU and cell.
	Cells []Cell `json:"cells,omitempty"`
	// Counts per SKU stand for those of its cells where there are more than maxDetailed.
	Counts   []SKUCounts `json:"counts,omitempty"`
	Breaches []Breach    `json:"breaches,omitempty"`
	Unread   []Unread    `json:"unread,omitempty"`
}

// Orders counts orders by how they ended.
type Orders struct {
	Paid   int64 `json:"paid"`
	Closed int64 `json:"closed"`
}

// Cell is one SKU in one cell.
type Cell struct {
	Cell ids.CellID `json:"cell_id"`
	SKU  ids.SKUID  `json:"sku_id"`
	// Allocated is the book's, WrittenOff the part of it that is lost.
	Allocated  int64 `json:"allocated"`
	WrittenOff int64 `json:"written_off,omitempty"`
	Stock      Stock `json:"stock"`
	Counts
}

// SKUCounts are a SKU's counts over all cells that answered.
type SKUCounts struct {
	SKU ids.SKUID `json:"sku_id"`
	Counts
}

// Stock is the cell's stock row.
type Stock struct {
	Granted   int64 `json:"granted"`
	Available int64 `json:"available"`
	Reserved  int64 `json:"reserved"`
	Confirmed int64 `json:"confirmed"`
	Released  int64 `json:"released"` // units that ever came back
	Entries   int64 `json:"entries"`  // ledger entries
}

// Counts is what became of requests, orders, refunds and findings. Lists hold what there
// is; a word that is missing counts 0.
type Counts struct {
	Requests []Requests `json:"requests,omitempty"`
	Sales    []Sales    `json:"sales,omitempty"`
	Refunds  []Refunds  `json:"refunds,omitempty"`
	Findings []Findings `json:"findings,omitempty"`
	// Reversals counts REVERSAL entries: repairs that moved units.
	Reversals int64 `json:"reversals,omitempty"`
}

// Requests of one outcome and reason, as the inbox has them.
type Requests struct {
	Outcome  string `json:"outcome"`
	Reason   string `json:"reason,omitempty"`
	Requests int64  `json:"requests"`
	Units    int64  `json:"units"`
}

// Sales are the orders of one state and currency.
type Sales struct {
	State    string `json:"state"`
	Orders   int64  `json:"orders"`
	Units    int64  `json:"units"`
	Amount   string `json:"amount"` // exact decimal
	Currency string `json:"currency"`
}

// Refunds of one state, cause and currency.
type Refunds struct {
	State     string `json:"state"`
	Cause     string `json:"cause"`
	Refunds   int64  `json:"refunds"`
	Restocked int64  `json:"restocked"` // refunds whose units went back on sale
	Amount    string `json:"amount"`    // exact decimal
	Currency  string `json:"currency"`
}

// Findings of one kind, state and action; those REPAIRED by an action are the repairs.
type Findings struct {
	Kind     string `json:"kind"`
	State    string `json:"state"`
	Action   string `json:"action,omitempty"`
	Findings int64  `json:"findings"`
	Units    int64  `json:"units"`
}

// Breach names a sum that does not hold; Cell is empty where several are concerned.
type Breach struct {
	SKU    ids.SKUID  `json:"sku_id"`
	Cell   ids.CellID `json:"cell_id,omitempty"`
	Detail string     `json:"detail"`
}

// Unread names a cell whose part of the report is unknown.
type Unread struct {
	Cell ids.CellID `json:"cell_id"`
	Why  string     `json:"why"`
	// Lost: all that the cell held is written off; its shard is not asked.
	Lost bool `json:"lost,omitempty"`
}

// Account gives a SKU's account.
func (r Report) Account(sku ids.SKUID) (undersell.Account, bool) {
	for _, a := range r.SKUs {
		if a.SKU == sku {
			return a, true
		}
	}
	return undersell.Account{}, false
}

// Of sums the counts of a SKU over the cells that answered.
func (r Report) Of(sku ids.SKUID) Counts {
	var out Counts
	for _, c := range r.Counts {
		if c.SKU == sku {
			return c.Counts
		}
	}
	for _, c := range r.Cells {
		if c.SKU == sku {
			out = out.plus(c.Counts)
		}
	}
	return out
}
