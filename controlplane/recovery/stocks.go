package recovery

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
)

// stockPlan is the physical stock of one SKU as recovery sets it: the limits of all
// its campaigns at once, since one that grew may stand before the one that shrank
// for it.
type stockPlan struct {
	sku    ids.SKUID
	units  quantity.Quantity
	limits map[ids.CampaignID]quantity.Quantity
}

// planStocks gives the stock of every SKU that has a plan. Pure.
func planStocks(in stored, plans []BookPlan) []stockPlan {
	bySKU := map[ids.SKUID]*stockPlan{}
	floors := map[ids.SKUID]int64{}
	for _, p := range plans {
		sku := p.Key.SKU
		if bySKU[sku] == nil {
			bySKU[sku] = &stockPlan{sku: sku, limits: map[ids.CampaignID]quantity.Quantity{}}
		}
		if p.Confirmed {
			bySKU[sku].limits[p.Key.Campaign] = p.Limit
		}
		floors[sku] += p.Floor
	}
	out := make([]stockPlan, 0, len(bySKU))
	for sku, p := range bySKU {
		p.units = in.units(sku, floors[sku])
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b stockPlan) int { return cmp.Compare(a.sku, b.sku) })
	return out
}

// units is what the warehouse has of a SKU as far as anybody knows: etcd's figure
// while an unsettled campaign stood under it, for it could not be changed then; else
// what the campaigns say that were published since; and never less than the shards
// hold.
func (in stored) units(sku ids.SKUID, floor int64) quantity.Quantity {
	stock, known := in.stocks(sku)
	units := stock.Units
	if !known || len(stock.Limits) == 0 {
		var said quantity.Quantity
		for id, c := range in.campaigns {
			if in.settled(id) || c.State == core.CampaignDraft {
				continue
			}
			for _, s := range c.Spec.SKUs {
				if s.ID == sku && s.PhysicalStock.Cmp(said) > 0 {
					said = s.PhysicalStock
				}
			}
		}
		if !said.IsZero() {
			units = said
		}
	}
	if held, err := quantity.New(floor); err == nil && held.Cmp(units) > 0 {
		units = held
	}
	return units
}

// fitStocks blocks the plans of every SKU whose limits together exceed its stock.
func fitStocks(in stored, plans []BookPlan) {
	for _, s := range planStocks(in, plans) {
		stock, _ := in.stocks(s.sku)
		_, _, err := stock.Recover(s.sku, s.units, s.limits)
		if err == nil {
			continue
		}
		for i := range plans {
			if plans[i].Key.SKU == s.sku && plans[i].BlockedBy == "" {
				plans[i].Next, plans[i].BlockedBy, plans[i].short = core.Book{}, err.Error(), err
			}
		}
	}
}

// tooMuch gives every refusal of limits that exceed a physical stock, each SKU's once.
func tooMuch(plans []BookPlan) error {
	bySKU := map[ids.SKUID]error{}
	for _, p := range plans {
		if p.short != nil {
			bySKU[p.Key.SKU] = p.short
		}
	}
	skus := slices.Sorted(maps.Keys(bySKU))
	if len(skus) == 0 {
		return nil
	}
	return bySKU[skus[0]]
}

// stocks writes the physical stock of every SKU, each in one transaction.
func (d *Driver) stocks(ctx context.Context, leader core.Leader, op core.Operation, plans []stockPlan) error {
	for _, p := range plans {
		_, err := d.Store.Update(ctx, "recover stock "+string(p.sku), func(tx *store.Tx) error {
			if _, err := d.mine(tx, leader, op.ID); err != nil {
				return err
			}
			present, _, err := tx.Stock(p.sku)
			if err != nil {
				return err
			}
			next, changed, err := present.Recover(p.sku, p.units, p.limits)
			if err != nil || !changed {
				return err
			}
			return errors.Join(tx.PutStock(next), tx.Audit(core.Audit{
				Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "stock " + string(p.sku), Reason: op.Reason,
			}))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
