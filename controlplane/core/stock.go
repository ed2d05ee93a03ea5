package core

import (
	"maps"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/internal/ids"
)

// PhysicalStock is what the warehouse can allocate of one SKU, and which
// unsettled campaigns hold how much of it. It has a key of its own, so
// that two campaigns published at once meet in one compare.
type PhysicalStock struct {
	SKU     ids.SKUID
	Units   quantity.Quantity
	Limits  map[ids.CampaignID]quantity.Quantity
	Version int64 // grows by 1 with every change, from 1
	// ModRevision is etcd's; 0: not stored.
	ModRevision int64
}

// Check verifies that the limits fit the stock. ErrBroken.
func (p PhysicalStock) Check() error {
	if p.SKU == "" {
		return broken("physical stock without SKU")
	}
	if held := p.held(""); held > p.Units.Int64() {
		return broken("physical stock of %s: %s units, limits of %d", p.SKU, p.Units, held)
	}
	return nil
}

// Take gives the stock with a campaign's limit in it. The first campaign sets
// the figure; another figure is refused while any is unsettled. A repeat with
// the same figures changes nothing (changed is false). ErrStockShort.
func (p PhysicalStock) Take(sku ids.SKUID, campaign ids.CampaignID, units, limit quantity.Quantity) (next PhysicalStock, changed bool, err error) {
	if p.Limits[campaign] == limit && p.Units == units && p.SKU == sku {
		return p, false, nil
	}
	next = p
	next.SKU = sku
	next.Limits = map[ids.CampaignID]quantity.Quantity{}
	maps.Copy(next.Limits, p.Limits)
	if others := p.held(campaign); others > 0 && units != p.Units {
		return PhysicalStock{}, false, numbered(ErrStockShort, "sku_id", sku, "physical_stock", p.Units, "given", units, "held_by_others", others)
	}
	next.Units = units
	next.Limits[campaign] = limit
	if held := next.held(""); held > units.Int64() {
		return PhysicalStock{}, false, numbered(ErrStockShort, "sku_id", sku, "physical_stock", units, "limits", held)
	}
	next.Version++
	return next, true, next.Check()
}

// GiveBack takes a campaign's limit out again; changed is false where it held none.
func (p PhysicalStock) GiveBack(campaign ids.CampaignID) (next PhysicalStock, changed bool) {
	if _, holds := p.Limits[campaign]; !holds {
		return p, false
	}
	next = p
	next.Limits = maps.Clone(p.Limits)
	delete(next.Limits, campaign)
	next.Version++
	return next, true
}

// Settle takes a campaign's limit out, and what it sold or wrote off from the
// units: they are not in the warehouse any more, or may not be. changed is false
// where the campaign holds no limit: it was settled before. ErrBroken when more is
// gone than the limit.
func (p PhysicalStock) Settle(campaign ids.CampaignID, gone quantity.Quantity) (next PhysicalStock, changed bool, err error) {
	limit, holds := p.Limits[campaign]
	if !holds {
		return p, false, nil
	}
	if gone.Cmp(limit) > 0 {
		return PhysicalStock{}, false, broken("%s: campaign %s sold or wrote off %s units of a limit of %s", p.SKU, campaign, gone, limit)
	}
	next, _ = p.GiveBack(campaign)
	if next.Units, err = p.Units.Sub(gone); err != nil {
		return PhysicalStock{}, false, broken("%s: %s units, %s are gone", p.SKU, p.Units, gone)
	}
	return next, true, next.Check()
}

// Recover sets the limits of several campaigns at once, and the units, after etcd lost
// its past: one by one, a limit that grew could stand before the one that shrank for
// it. Limits of other campaigns stay. ErrStockShort names the sum that does not fit.
func (p PhysicalStock) Recover(sku ids.SKUID, units quantity.Quantity, limits map[ids.CampaignID]quantity.Quantity) (next PhysicalStock, changed bool, err error) {
	next = p
	next.SKU, next.Units = sku, units
	next.Limits = map[ids.CampaignID]quantity.Quantity{}
	maps.Copy(next.Limits, p.Limits)
	maps.Copy(next.Limits, limits)
	if held := next.held(""); held > units.Int64() {
		return PhysicalStock{}, false, numbered(ErrStockShort, "sku_id", sku, "physical_stock", units, "limits", held)
	}
	if next.Units == p.Units && maps.Equal(next.Limits, p.Limits) {
		return p, false, nil
	}
	next.Version++
	return next, true, next.Check()
}

// held is the sum of the limits of all campaigns but one.
func (p PhysicalStock) held(except ids.CampaignID) int64 {
	var sum int64
	for c, limit := range p.Limits {
		if c != except {
			sum += limit.Int64()
		}
	}
	return sum
}
