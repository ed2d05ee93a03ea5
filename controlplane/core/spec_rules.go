package core

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Bounds of a campaign (seams, control plane).
const (
	MaxSKUs    = 1_000
	MaxPairs   = 100_000 // (cell, SKU) of one campaign
	maxDisplay = 4 << 10
	maxTTL     = 31 * 24 * time.Hour
)

// Check gives every broken rule of the spec, with its path in campaign.yaml.
// Rules that need a clock or other records are elsewhere.
func (s CampaignSpec) Check() []rpcstatus.Violation {
	var f faults
	s.checkFrame(&f)
	s.checkRules(&f)
	s.checkLottery(&f)
	s.checkCells(&f)
	s.checkSKUs(&f)
	return f
}

func (s CampaignSpec) checkFrame(f *faults) {
	if _, err := ids.ParseCampaignID(string(s.ID)); err != nil {
		f.addErr(err)
	}
	f.add(len(s.DisplayJSON) > maxDisplay, "display", "must be at most 4096 bytes as JSON")
	f.add(s.OpenAt.IsZero(), "open_at", "is required: an instant with its offset")
	f.add(s.CloseAt.IsZero(), "close_at", "is required: an instant with its offset")
	f.add(!s.OpenAt.IsZero() && !s.CloseAt.IsZero() && !s.CloseAt.After(s.OpenAt), "close_at", "must be after open_at")
	f.add(!known(modeNames, s.Mode), "mode", "must be DIRECT or LOTTERY")
	f.add(!known(admissionNames, s.Admission), "admission", "must be MIRROR or DATABASE")
	f.add(!known(scopeNames, s.Scope), "purchase_scope", "must be SKU or CAMPAIGN")
	f.add(s.MaxQuantity < 1 || s.MaxQuantity > 1000, "max_quantity_per_order", "must be from 1 to 1000")
	f.add(s.HoldFor < time.Second || s.HoldFor > maxTTL, "reservation_ttl", "must be from 1s to 744h")
	f.add(!known(ackNames, s.Ack), "ack_mode", "must be KAFKA or REDIS")
	f.add(!known(refundNames, s.Refund), "refund_rule", "is required: NO_RESTOCK or RESTOCK")
	f.add(!known(leaseLossNames, s.OnLeaseLoss), "on_lease_loss", "must be CONTINUE or PAUSE")
	f.add(!known(reclaimNames, s.Reclaim), "reclaim", "must be MANUAL or NEVER")
	f.add(!known(routingNames, s.Routing), "routing", "must be USER or HOME_REGION")
}

func (s CampaignSpec) checkRules(f *faults) {
	f.add(s.Permits.ClaimFrom.IsZero(), "permits.claim_from", "must be an instant")
	f.add(!s.CloseAt.IsZero() && !s.Permits.ClaimFrom.Before(s.CloseAt), "permits.claim_from", "must be before close_at")
	f.add(s.Permits.TTL < time.Second || s.Permits.TTL > maxTTL, "permits.ttl", "must be from 1s to 744h")
	for i, c := range s.Eligibility.Claims {
		path := fmt.Sprintf("eligibility.claims.%s", c.Claim)
		f.add(c.Claim == "" || len(c.Claim) > 64, fmt.Sprintf("eligibility.claims[%d]", i), "a claim's name must be 1 to 64 bytes")
		f.add(len(c.Values) == 0 || len(c.Values) > 100, path, "must list 1 to 100 values")
	}
	f.add(len(s.Eligibility.Claims) > 16, "eligibility.claims", "must be at most 16 claims")
	f.add(len(s.Eligibility.DenyRiskTiers) > 16, "eligibility.deny_risk_tiers", "must be at most 16 tiers")
	f.add(s.Holds.MaxUnpaidPerUser < 0 || s.Holds.MaxUnpaidPerUser > 1000, "holds.max_unpaid_per_user", "must be from 0 to 1000")
	f.add(s.Holds.MaxUnpaidPerDevice < 0 || s.Holds.MaxUnpaidPerDevice > 1000, "holds.max_unpaid_per_device", "must be from 0 to 1000")
	for tier, ttl := range s.Holds.PaymentTTLByRisk {
		f.add(ttl < time.Second || ttl > s.HoldFor, "holds.payment_ttl_by_risk."+tier, "must be from 1s to reservation_ttl")
	}
	f.add(s.Gate.MaxWait < time.Millisecond || s.Gate.MaxWait > time.Minute, "gate.max_wait", "must be from 1ms to 1m")
	f.add(s.Gate.MarginPermille < 0 || s.Gate.MarginPermille > 1000, "gate.margin", `must be from "0%" to "100%"`)
	f.add(s.Gate.BaselineRPS < 0 || s.Gate.BaselineRPS > 1_000_000, "gate.baseline_rps", "must be from 0 to 1000000")
	s.checkLimits(f)
}

func (s CampaignSpec) checkLimits(f *faults) {
	if s.Limits == nil {
		return
	}
	rate := func(path string, r *Rate) {
		if r == nil {
			return
		}
		f.add(r.Milli < 1 || r.Milli > 1_000_000_000, path+".rate", "must be above 0 and at most 1000000/s")
		f.add(r.Burst < 1 || r.Burst > 1_000_000, path+".burst", "must be from 1 to 1000000")
	}
	rate("limits.user", s.Limits.User)
	rate("limits.device", s.Limits.Device)
	rate("limits.network", s.Limits.Network)
	for claim, r := range s.Limits.Claims {
		rate("limits.claims."+claim, &r)
	}
	f.add(len(s.Limits.Claims) > 16, "limits.claims", "must be at most 16 claims")
}

func (s CampaignSpec) checkCells(f *faults) {
	f.add(len(s.Cells) == 0 || len(s.Cells) > allocator.MaxCells, "cells", fmt.Sprintf("must list 1 to 1000 cells, not %d", len(s.Cells)))
	seen := map[ids.CellID]int{}
	for i, c := range s.Cells {
		path := fmt.Sprintf("cells[%d]", i)
		if _, err := ids.ParseCellID(string(c)); err != nil {
			f.addErrAt(path, err)
			continue
		}
		first, twice := seen[c]
		f.add(twice, path, fmt.Sprintf("a cell may be named only once (%s is cells[%d] already)", c, first))
		if !twice {
			seen[c] = i
		}
	}
}

func (s CampaignSpec) checkPairs(f *faults) {
	pairs := len(s.SKUs) * len(s.Cells)
	f.add(pairs > MaxPairs, "skus", fmt.Sprintf("a campaign may have at most %d (cell, SKU) pairs, not %d", MaxPairs, pairs))
}

func (s CampaignSpec) checkSKUs(f *faults) {
	f.add(len(s.SKUs) == 0 || len(s.SKUs) > MaxSKUs, "skus", fmt.Sprintf("must list 1 to 1000 SKUs, not %d", len(s.SKUs)))
	s.checkPairs(f)
	seen := map[ids.SKUID]int{}
	listed := map[ids.CellID]bool{} // not searched for: a campaign may have 100,000 weights
	for _, c := range s.Cells {
		listed[c] = true
	}
	for i, sku := range s.SKUs {
		path := fmt.Sprintf("skus[%d]", i)
		if _, err := ids.ParseSKUID(string(sku.ID)); err != nil {
			f.addErrAt(path+".sku_id", err)
		} else if first, twice := seen[sku.ID]; twice {
			f.add(true, path+".sku_id", fmt.Sprintf("a SKU may be listed only once (%s is skus[%d] already)", sku.ID, first))
		} else {
			seen[sku.ID] = i
		}
		sku.check(path, listed, f)
	}
}

var (
	amountGrammar   = regexp.MustCompile(`^(0|[1-9][0-9]{0,13})(\.[0-9]{1,4})?$`)
	currencyGrammar = regexp.MustCompile(`^[A-Z]{3}$`)
)

// maxTokenUnits bounds a SKU in TOKEN mode: a cell mints a row for each unit of a grant in the grant's
// own transaction, and the largest grant is the whole limit.
var maxTokenUnits = quantity.Must(100_000)

// MayLimit refuses a limit of one SKU that its inventory mode cannot carry.
func (s CampaignSpec) MayLimit(sku ids.SKUID, limit quantity.Quantity) error {
	for _, one := range s.SKUs {
		if one.ID == sku && one.Inventory == InventoryToken && limit.Cmp(maxTokenUnits) > 0 {
			return invalid("sale_limit", fmt.Sprintf("must not be above %s with inventory_mode TOKEN", maxTokenUnits))
		}
	}
	return nil
}

func (s SKUSpec) check(path string, listed map[ids.CellID]bool, f *faults) {
	f.add(s.SaleLimit.IsZero(), path+".sale_limit", "is required: from 1 to 1000000000")
	f.add(s.PhysicalStock.IsZero(), path+".physical_stock", "is required: from 1 to 1000000000")
	f.add(!s.PhysicalStock.IsZero() && s.SaleLimit.Cmp(s.PhysicalStock) > 0, path+".sale_limit",
		fmt.Sprintf("must not be above physical_stock (%s)", s.PhysicalStock))
	f.add(!s.SaleLimit.IsZero() && s.Reserve.Cmp(s.SaleLimit) > 0, path+".reserve", fmt.Sprintf("must not be above sale_limit (%s)", s.SaleLimit))
	f.add(!known(inventoryNames, s.Inventory), path+".inventory_mode", "must be COUNTER or TOKEN")
	f.add(s.Inventory == InventoryToken && s.SaleLimit.Cmp(maxTokenUnits) > 0, path+".sale_limit",
		fmt.Sprintf("must not be above %s with inventory_mode TOKEN: each unit is a row, minted with its grant", maxTokenUnits))
	f.add(!amountGrammar.MatchString(s.Price.Amount), path+".price.amount", `is required: a decimal such as "4999.00", at most 14 digits before and 4 after the point`)
	f.add(!currencyGrammar.MatchString(s.Price.Currency), path+".price.currency", "is required: three capital letters (ISO 4217)")
	f.add(!known(autoNames, s.TopUp.Policy), path+".top_up.policy", "must be AUTO or MANUAL")
	f.add(s.TopUp.LowWaterPermille < 0 || s.TopUp.LowWaterPermille > 1000, path+".top_up.low_water", `must be from "0%" to "100%"`)
	f.add(s.TopUp.TranchePermille < 0 || s.TopUp.TranchePermille > 1000, path+".top_up.tranche", `must be from "0%" to "100%"`)
	f.add(!known(autoNames, s.Rebalance), path+".rebalance", "must be MANUAL or AUTO")
	s.Split.check(path+".split", s, listed, f)
}

func (r SplitRules) check(path string, s SKUSpec, listed map[ids.CellID]bool, f *faults) {
	f.add(r.Policy < allocator.Equal || r.Policy > allocator.Demand, path+".policy", "must be EQUAL, WEIGHTED, EXPLICIT or DEMAND")
	f.add(r.Policy != allocator.Weighted && len(r.Weights) > 0, path+".weights", "belongs to the policy WEIGHTED")
	f.add(r.Policy != allocator.Explicit && len(r.Units) > 0, path+".units", "belongs to the policy EXPLICIT")
	for _, c := range sortedCells(r.Weights) {
		f.add(!listed[c], path+".weights."+string(c), "the cell is not listed in cells")
		f.add(r.Weights[c] > MaxWeight, path+".weights."+string(c), "must be from 0 to 1000000")
	}
	for _, c := range sortedCells(r.Units) {
		f.add(!listed[c], path+".units."+string(c), "the cell is not listed in cells")
	}
	f.add(r.Policy == allocator.Weighted && len(r.Weights) > 0 && !slices.ContainsFunc(slices.Collect(maps.Values(r.Weights)), func(w uint32) bool { return w > 0 }),
		path+".weights", "must give at least one cell a weight above 0")
	if r.Policy == allocator.Explicit && s.Reserve.Cmp(s.SaleLimit) <= 0 {
		var sum int64
		for _, u := range r.Units {
			sum += u.Int64()
		}
		want := s.SaleLimit.Int64() - s.Reserve.Int64()
		f.add(sum != want, path+".units", fmt.Sprintf("must add up to sale_limit minus reserve (%d), not %d", want, sum))
	}
}

func sortedCells[V any](m map[ids.CellID]V) []ids.CellID {
	out := make([]ids.CellID, 0, len(m))
	for c := range m {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}

// CheckWindow gives the broken rules that need the time: close_at must not lie
// in the past when a campaign is created or published.
func (s CampaignSpec) CheckWindow(now time.Time) []rpcstatus.Violation {
	var f faults
	f.add(!s.CloseAt.IsZero() && !s.CloseAt.After(now), "close_at", "must not lie in the past")
	return f
}
