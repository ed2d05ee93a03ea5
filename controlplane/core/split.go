package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Deal deals the campaign's buckets over its cells by their weights: those of its one
// traffic domain, or with HOME_REGION those of each region that has cells of it, in
// order of the regions. The table of domains is frozen at publish: users of a region
// that has none then have no home in this campaign. cells are the records of exactly
// the spec's.
func (s CampaignSpec) Deal(cells map[ids.CellID]Cell) ([]DomainRoute, error) {
	shares, policy, err := s.homeShares(cells)
	if err != nil {
		return nil, err
	}
	of := map[string][]allocator.Share{}
	for _, share := range shares {
		domain := s.domain(cells[ids.CellID(share.Cell)])
		of[domain] = append(of[domain], share)
	}
	var out []DomainRoute
	for _, domain := range slices.Sorted(maps.Keys(of)) {
		homes, err := allocator.DealBuckets(allocator.HomeWeights(policy, of[domain]), allocator.Buckets)
		if err != nil && domain != "" {
			return nil, invalid("routing", fmt.Sprintf("HOME_REGION: users of region %s would have no home: %v", domain, err))
		}
		if err != nil {
			return nil, Invalid(err)
		}
		out = append(out, DomainRoute{Domain: domain, Homes: homes})
	}
	return out, nil
}

// domain names the traffic domain that a cell serves.
func (s CampaignSpec) domain(c Cell) string {
	if s.Routing == RoutingHomeRegion {
		return c.Spec.Region
	}
	return ""
}

// Owned gives how many buckets each cell owns, over all domains.
func Owned(domains []DomainRoute) map[string]int {
	out := map[string]int{}
	for _, d := range domains {
		for cell, n := range d.Homes.Owned() {
			out[cell] += n
		}
	}
	return out
}

// skews names the cells whose share of a plan's units and of their domain's buckets
// differ: how many customers one region has and another is not known here.
func skews(plan allocator.Plan, d DomainRoute) []allocator.Skew {
	if d.Domain == "" {
		return allocator.CheckSkew(plan, d.Homes)
	}
	owned := d.Homes.Owned()
	own := allocator.Plan{Policy: plan.Policy}
	for _, g := range plan.Grants {
		if owned[g.Cell] == 0 {
			continue
		}
		if sum, err := own.Limit.Add(g.Units); err == nil {
			own.Limit, own.Grants = sum, append(own.Grants, g)
		}
	}
	return allocator.CheckSkew(own, d.Homes)
}

// homeShares: when every SKU is split EQUAL, customers are dealt equally; else
// by the cells' own weights, and the preview warns where units would strand.
func (s CampaignSpec) homeShares(cells map[ids.CellID]Cell) ([]allocator.Share, allocator.Policy, error) {
	policy := allocator.Equal
	for _, sku := range s.SKUs {
		if sku.Split.Policy != allocator.Equal {
			policy = allocator.Weighted
		}
	}
	shares := make([]allocator.Share, 0, len(s.Cells))
	for _, id := range s.Cells {
		c, ok := cells[id]
		if !ok {
			return nil, 0, numbered(ErrUnknownCell, "cell_id", id)
		}
		weight := c.Spec.Weight
		if len(s.SKUs) == 1 && s.SKUs[0].Split.Policy == allocator.Weighted {
			weight = s.SKUs[0].weight(c)
		}
		shares = append(shares, allocator.Share{Cell: string(id), Weight: weight})
	}
	return shares, policy, nil
}

// weight of a cell in a WEIGHTED split: the SKU's own figure, else the cell's.
func (s SKUSpec) weight(c Cell) uint32 {
	if len(s.Split.Weights) == 0 {
		return c.Spec.Weight
	}
	return s.Split.Weights[c.Spec.ID]
}

// Demand tells how many units of a SKU were asked of a cell so far.
type Demand func(ids.SKUID, ids.CellID) uint64

// noDemand is that of a campaign that was never on sale: DEMAND cuts by weights.
func noDemand(ids.SKUID, ids.CellID) uint64 { return 0 }

// Plan cuts one SKU's limit over the campaign's cells, before anything was sold.
func (s CampaignSpec) Plan(sku SKUSpec, cells map[ids.CellID]Cell) (allocator.Plan, error) {
	return s.planBy(sku, cells, noDemand)
}

func (s CampaignSpec) planBy(sku SKUSpec, cells map[ids.CellID]Cell, demand Demand) (allocator.Plan, error) {
	shares := make([]allocator.Share, 0, len(s.Cells))
	for _, id := range s.Cells {
		c, ok := cells[id]
		if !ok {
			return allocator.Plan{}, numbered(ErrUnknownCell, "cell_id", id)
		}
		shares = append(shares, allocator.Share{Cell: string(id), Weight: sku.weight(c), Units: sku.Split.Units[id], Demand: demand(sku.ID, id)})
	}
	reserve := sku.Reserve
	if s.Mode == ModeLottery { // nobody is granted anything before his customers have won it
		reserve = sku.SaleLimit
	}
	plan, err := allocator.Split(allocator.Request{Limit: sku.SaleLimit, Reserve: reserve, Policy: sku.Split.Policy, Cells: shares})
	if err != nil {
		return allocator.Plan{}, Invalid(err)
	}
	return plan, nil
}

// Split is the whole preview of a campaign.
type Split struct {
	Domains  []DomainRoute
	Plans    []allocator.Plan // in the order of the spec's SKUs
	Warnings []string
}

// Preview cuts every SKU and deals the buckets. A cell without a bucket that
// would be granted units is an error: its units could never be sold.
func (s CampaignSpec) Preview(cells map[ids.CellID]Cell) (Split, error) {
	return s.PreviewBy(cells, noDemand)
}

// PreviewBy is Preview where demand was seen: the policy DEMAND cuts by it.
func (s CampaignSpec) PreviewBy(cells map[ids.CellID]Cell, demand Demand) (Split, error) {
	domains, err := s.Deal(cells)
	if err != nil {
		return Split{}, err
	}
	out := Split{Domains: domains}
	owned := Owned(domains)
	for i, sku := range s.SKUs {
		path := fmt.Sprintf("skus[%d]", i)
		plan, err := s.planBy(sku, cells, demand)
		if err != nil {
			return Split{}, under(path, err)
		}
		if plan.ByWeight {
			out.Warnings = append(out.Warnings, fmt.Sprintf("%s: no demand was seen: DEMAND cuts by the cells' weights", sku.ID))
		}
		for _, g := range plan.Grants {
			if !g.Units.IsZero() && owned[g.Cell] == 0 {
				return Split{}, invalid(path+".split", "cell "+g.Cell+" owns no bucket and must not be granted units")
			}
		}
		for _, d := range domains {
			for _, skew := range skews(plan, d) {
				out.Warnings = append(out.Warnings, fmt.Sprintf("%s: %s", sku.ID, skew))
			}
		}
		out.Plans = append(out.Plans, plan)
	}
	return out, nil
}

// under puts a SKU's path before the fields of a refused plan; the list of cells is
// the whole campaign's.
func under(path string, err error) error {
	v := rpcstatus.Violations(err)
	if len(v) == 0 {
		return err
	}
	out := make([]rpcstatus.Violation, 0, len(v))
	for _, x := range v {
		if x.Field != "" && !strings.HasPrefix(x.Field, "cells") {
			x.Field = path + "." + x.Field
		}
		out = append(out, x)
	}
	return rpcstatus.Invalid(out...)
}
