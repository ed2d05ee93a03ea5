package core

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/cellquota/cellquota/internal/ids"
)

// Diff names every path of campaign.yaml whose value differs, in the order of the
// file: "close_at", "skus[0].price". SKUs are compared by id and cells as a set:
// another order of either is no difference. A SKU that is new or gone is named
// whole. The ids of the campaigns are not compared.
func (s CampaignSpec) Diff(other CampaignSpec) []string {
	var d diff
	for _, field := range campaignPaths {
		d.add(field.path, field.of(s), field.of(other))
	}
	d.skus(s.SKUs, other.SKUs)
	if !slices.Equal(sorted(s.Cells), sorted(other.Cells)) {
		d = append(d, "cells")
	}
	return d
}

// campaignPaths are the blocks of the file beside skus and cells, as one value each.
var campaignPaths = []struct {
	path string
	of   func(CampaignSpec) any
}{
	{"display", func(s CampaignSpec) any { return s.DisplayJSON }},
	{"open_at", func(s CampaignSpec) any { return s.OpenAt.UnixNano() }},
	{"close_at", func(s CampaignSpec) any { return s.CloseAt.UnixNano() }},
	{"mode", func(s CampaignSpec) any { return s.Mode }},
	{"admission", func(s CampaignSpec) any { return s.Admission }},
	{"purchase_scope", func(s CampaignSpec) any { return s.Scope }},
	{"max_quantity_per_order", func(s CampaignSpec) any { return s.MaxQuantity }},
	{"reservation_ttl", func(s CampaignSpec) any { return s.HoldFor }},
	{"ack_mode", func(s CampaignSpec) any { return s.Ack }},
	{"refund_rule", func(s CampaignSpec) any { return s.Refund }},
	{"on_lease_loss", func(s CampaignSpec) any { return s.OnLeaseLoss }},
	{"reclaim", func(s CampaignSpec) any { return s.Reclaim }},
	{"routing", func(s CampaignSpec) any { return s.Routing }},
	{"permits.claim_from", func(s CampaignSpec) any { return s.Permits.ClaimFrom.UnixNano() }},
	{"permits.ttl", func(s CampaignSpec) any { return s.Permits.TTL }},
	{"eligibility", func(s CampaignSpec) any { return s.Eligibility }},
	{"limits", func(s CampaignSpec) any { return s.Limits }},
	{"lottery", func(s CampaignSpec) any { return s.normal().Lottery }},
	{"holds", func(s CampaignSpec) any { return s.Holds }},
	{"gate", func(s CampaignSpec) any { return s.Gate }},
}

// skuPaths are the keys of one SKU beside its id.
var skuPaths = []struct {
	path string
	of   func(SKUSpec) any
}{
	{"physical_stock", func(s SKUSpec) any { return s.PhysicalStock }},
	{"sale_limit", func(s SKUSpec) any { return s.SaleLimit }},
	{"inventory_mode", func(s SKUSpec) any { return s.Inventory }},
	{"price", func(s SKUSpec) any { return s.Price }},
	{"reserve", func(s SKUSpec) any { return s.Reserve }},
	{"split", func(s SKUSpec) any { return s.Split }},
	{"top_up", func(s SKUSpec) any { return s.TopUp }},
	{"rebalance", func(s SKUSpec) any { return s.Rebalance }},
}

type diff []string

func (d *diff) add(path string, a, b any) {
	if !reflect.DeepEqual(a, b) {
		*d = append(*d, path)
	}
}

// skus names differences by the new file's index; a SKU that is gone has none.
func (d *diff) skus(old, now []SKUSpec) {
	before := make(map[ids.SKUID]SKUSpec, len(old))
	for _, s := range old {
		before[s.ID] = s
	}
	for i, s := range now {
		path := fmt.Sprintf("skus[%d]", i)
		was, known := before[s.ID]
		if !known {
			*d = append(*d, path)
			continue
		}
		delete(before, s.ID)
		for _, key := range skuPaths {
			d.add(path+"."+key.path, key.of(was), key.of(s))
		}
	}
	for _, s := range old {
		if _, gone := before[s.ID]; gone {
			*d = append(*d, "skus."+string(s.ID))
		}
	}
}

func sorted(cells []ids.CellID) []ids.CellID {
	out := slices.Clone(cells)
	slices.Sort(out)
	return out
}
