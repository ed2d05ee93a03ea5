package core_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

func demoSpec() core.CampaignSpec {
	open := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	return core.CampaignSpec{
		ID: "double-eleven", OpenAt: open, CloseAt: open.Add(30 * time.Minute),
		Mode: core.ModeDirect, Admission: core.AdmissionMirror, Scope: core.ScopeSKU, MaxQuantity: 1, HoldFor: 15 * time.Minute,
		Ack: core.AckKafka, Refund: core.RefundNoRestock, OnLeaseLoss: core.LeaseLossContinue, Reclaim: core.ReclaimManual, Routing: core.RoutingUser,
		Permits: core.PermitRules{ClaimFrom: open.Add(-30 * time.Minute), TTL: 5 * time.Minute},
		Gate:    core.Gate{MaxWait: 2 * time.Second, MarginPermille: 50},
		SKUs: []core.SKUSpec{{
			ID: "phone-x", PhysicalStock: quantity.Must(12_000), SaleLimit: quantity.Must(10_000), Inventory: core.InventoryCounter,
			Price: core.Money{Amount: "4999.00", Currency: "CNY"}, Reserve: quantity.Must(400), Split: core.SplitRules{Policy: allocator.Equal},
			TopUp: core.TopUpRules{Policy: core.AutoManual}, Rebalance: core.AutoManual,
		}},
		Cells: []ids.CellID{"cell-1", "cell-2", "cell-3", "cell-4"},
	}
}

func TestSpecRules(t *testing.T) {
	if v := demoSpec().Check(); len(v) != 0 {
		t.Fatalf("the demo's spec is refused: %v", v)
	}
	cases := []struct {
		field string
		spoil func(*core.CampaignSpec)
	}{
		{"campaign_id", func(s *core.CampaignSpec) { s.ID = "Double Eleven" }},
		{"open_at", func(s *core.CampaignSpec) { s.OpenAt = time.Time{} }},
		{"close_at", func(s *core.CampaignSpec) { s.CloseAt = s.OpenAt }},
		{"refund_rule", func(s *core.CampaignSpec) { s.Refund = 0 }},
		{"mode", func(s *core.CampaignSpec) { s.Mode = 9 }},
		{"max_quantity_per_order", func(s *core.CampaignSpec) { s.MaxQuantity = 0 }},
		{"reservation_ttl", func(s *core.CampaignSpec) { s.HoldFor = time.Millisecond }},
		{"permits.claim_from", func(s *core.CampaignSpec) { s.Permits.ClaimFrom = s.CloseAt }},
		{"gate.max_wait", func(s *core.CampaignSpec) { s.Gate.MaxWait = 0 }},
		{"cells", func(s *core.CampaignSpec) { s.Cells = nil }},
		{"cells[1]", func(s *core.CampaignSpec) { s.Cells[1] = "cell-1" }},
		{"cells[2]", func(s *core.CampaignSpec) { s.Cells[2] = "Cell" }},
		{"skus", func(s *core.CampaignSpec) { s.SKUs = nil }},
		{"skus[1].sku_id", func(s *core.CampaignSpec) { s.SKUs = append(s.SKUs, s.SKUs[0]) }},
		{"skus[0].sale_limit", func(s *core.CampaignSpec) { s.SKUs[0].SaleLimit = quantity.Must(12_001) }},
		{"skus[0].reserve", func(s *core.CampaignSpec) { s.SKUs[0].Reserve = quantity.Must(10_001) }},
		{"skus[0].price.amount", func(s *core.CampaignSpec) { s.SKUs[0].Price.Amount = "-1" }},
		{"skus[0].price.currency", func(s *core.CampaignSpec) { s.SKUs[0].Price.Currency = "cny" }},
		{"skus[0].split.policy", func(s *core.CampaignSpec) { s.SKUs[0].Split.Policy = 9 }},
		{"skus[0].split.weights", func(s *core.CampaignSpec) {
			s.SKUs[0].Split = core.SplitRules{Policy: allocator.Weighted, Weights: map[ids.CellID]uint32{"cell-1": 0}}
		}},
		{"skus[0].split.units", func(s *core.CampaignSpec) { s.SKUs[0].Split.Policy = allocator.Explicit }},
		{"skus[0].split.weights.cell-9", func(s *core.CampaignSpec) {
			s.SKUs[0].Split = core.SplitRules{Policy: allocator.Weighted, Weights: map[ids.CellID]uint32{"cell-9": 1}}
		}},
		{"limits.user.rate", func(s *core.CampaignSpec) { s.Limits = &core.Limits{User: &core.Rate{Burst: 1}} }},
	}
	for _, c := range cases {
		s := demoSpec()
		c.spoil(&s)
		v := s.Check()
		if len(v) != 1 || v[0].Field != c.field || v[0].Rule == "" {
			t.Errorf("%s: violations %v, want exactly one on it", c.field, v)
		}
	}
}

func TestPreviewOfTheDemo(t *testing.T) {
	split, err := demoSpec().Preview(four(core.CellActive))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range split.Plans[0].Grants {
		if g.Units.Int64() != 2_400 || core.Owned(split.Domains)[g.Cell] != 1_024 {
			t.Errorf("%s is granted %s and owns %d buckets", g.Cell, g.Units, core.Owned(split.Domains)[g.Cell])
		}
	}
	if len(split.Warnings) != 0 {
		t.Errorf("warnings: %v", split.Warnings)
	}
}

// DEMAND is taken before anything was sold: the cells' weights decide, and the preview says so.
func TestDemandBeforeAnyDemand(t *testing.T) {
	s := demoSpec()
	s.SKUs[0].Split.Policy = allocator.Demand
	if v := s.Check(); len(v) != 0 {
		t.Fatal(v)
	}
	split, err := s.Preview(four(core.CellActive))
	if err != nil || len(split.Warnings) != 1 || !strings.Contains(split.Warnings[0], "no demand was seen") || split.Plans[0].Grants[0].Units.Int64() != 2_400 {
		t.Errorf("%+v, %v", split, err)
	}
}

// A plan that cannot be made names the SKU's path.
func TestPreviewNamesTheSKU(t *testing.T) {
	s := demoSpec()
	s.SKUs[0].Split.Policy = allocator.Weighted
	cells := four(core.CellActive)
	for id, c := range cells {
		c.Spec.Weight = 0
		cells[id] = c
	}
	s.SKUs = append(s.SKUs, s.SKUs[0]) // two SKUs: buckets by the cells' own weights
	s.SKUs[1].ID = "tablet"
	if _, err := s.Preview(cells); err == nil || len(rpcstatus.Violations(err)) == 0 {
		t.Errorf("no weight at all: %v", err)
	}
	s = demoSpec()
	s.SKUs[0].Reserve = quantity.Must(10_001)
	if _, err := s.Preview(four(core.CellActive)); len(rpcstatus.Violations(err)) != 1 || rpcstatus.Violations(err)[0].Field != "skus[0].reserve" {
		t.Errorf("a reserve above the limit: %v", err)
	}
}

func TestPreviewWarnsWhereUnitsWouldStrand(t *testing.T) {
	s := demoSpec()
	s.SKUs[0].Split = core.SplitRules{Policy: allocator.Explicit, Units: map[ids.CellID]quantity.Quantity{
		"cell-1": quantity.Must(9_000), "cell-2": quantity.Must(200), "cell-3": quantity.Must(200), "cell-4": quantity.Must(200),
	}}
	if v := s.Check(); len(v) != 0 {
		t.Fatal(v)
	}
	split, err := s.Preview(four(core.CellActive))
	if err != nil || len(split.Warnings) != 4 || !strings.Contains(split.Warnings[0], "cell-1") {
		t.Errorf("warnings %v, %v", split.Warnings, err)
	}
	cells := four(core.CellActive)
	weightless := cells["cell-1"]
	weightless.Spec.Weight = 0
	cells["cell-1"] = weightless
	if _, err := s.Preview(cells); len(rpcstatus.Violations(err)) != 1 {
		t.Errorf("units for a cell without buckets: %v", err)
	}
}

// Each unit of a SKU in TOKEN mode is a row that a cell mints with its grant.
func TestTokensAreBounded(t *testing.T) {
	s := demoSpec()
	s.SKUs[0].Inventory = core.InventoryToken
	sku := s.SKUs[0].ID
	if err := s.MayLimit(sku, quantity.Must(100_000)); err != nil {
		t.Error(err)
	}
	if v := rpcstatus.Violations(s.MayLimit(sku, quantity.Must(100_001))); len(v) != 1 || v[0].Field != "sale_limit" {
		t.Errorf("raised above what a cell can mint: %v", v)
	}
	s.SKUs[0].SaleLimit, s.SKUs[0].PhysicalStock = quantity.Must(100_001), quantity.Must(100_001)
	if v := s.Check(); !slices.ContainsFunc(v, func(x rpcstatus.Violation) bool { return x.Field == "skus[0].sale_limit" }) {
		t.Errorf("published above it: %v", v)
	}
	if err := demoSpec().MayLimit(sku, quantity.Must(100_001)); err != nil {
		t.Errorf("a counter is not bounded by rows: %v", err)
	}
	s = demoSpec()
	s.Admission = core.AdmissionDatabase
	if v := s.Check(); len(v) != 0 {
		t.Errorf("a sale by the shard alone is refused: %v", v)
	}
}
