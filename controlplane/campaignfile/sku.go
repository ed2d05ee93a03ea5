package campaignfile

import (
	"strconv"
	"strings"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

func sku(o *object) core.SKUSpec {
	defer o.close()
	s := core.SKUSpec{
		ID: ids.SKUID(o.text("sku_id", "")), PhysicalStock: o.units("physical_stock"), SaleLimit: o.units("sale_limit"),
		Inventory: enum(o, "inventory_mode", core.Inventories(), core.InventoryCounter),
		Rebalance: enum(o, "rebalance", core.Autos(), core.AutoManual),
	}
	s.Reserve = o.reserve(s.SaleLimit)
	price := o.child("price")
	s.Price = core.Money{Amount: price.amount("amount"), Currency: price.text("currency", "")}
	price.close()
	s.Split = split(o.child("split"))
	topUp := o.child("top_up")
	s.TopUp = core.TopUpRules{
		Policy:           enum(topUp, "policy", core.Autos(), core.AutoManual),
		LowWaterPermille: topUp.permille("low_water", defaultLowWater), TranchePermille: topUp.permille("tranche", defaultTranche),
	}
	topUp.close()
	return s
}

// reserve reads units (400) or a percentage of the limit ("4%").
func (o *object) reserve(limit quantity.Quantity) quantity.Quantity {
	n := o.node("reserve")
	if n == nil {
		return quantity.Quantity{}
	}
	text, _, ok := o.f.scalar(o.at("reserve"), n)
	if !ok {
		return quantity.Quantity{}
	}
	if limit.IsZero() || o.f.unread(o.at("sale_limit")) {
		limit = quantity.Must(quantity.Max) // whether it fits cannot be said
	}
	q, err := allocator.ParseReserve(text, limit)
	if err != nil {
		rule := err.Error()
		o.refuse("reserve", strings.TrimPrefix(rule, "reserve: "))
		return quantity.Quantity{}
	}
	return q
}

// amount reads a price, which must stand in quotes: YAML would otherwise turn
// 4999.00 into a binary fraction.
func (o *object) amount(key string) string {
	n := o.node(key)
	if n == nil {
		return ""
	}
	text, quoted, ok := o.f.scalar(o.at(key), n)
	if ok && !quoted {
		o.refuse(key, `must be text in quotes, such as "4999.00"`)
		return ""
	}
	return text
}

func split(o *object) core.SplitRules {
	defer o.close()
	r := core.SplitRules{Policy: enum(o, "policy", allocator.Policies(), allocator.Equal)}
	weights := o.child("weights")
	for _, cell := range weights.keys {
		if r.Weights == nil {
			r.Weights = map[ids.CellID]uint32{}
		}
		r.Weights[ids.CellID(cell)] = uint32(weights.count(cell, 0))
	}
	units := o.child("units")
	for _, cell := range units.keys {
		if r.Units == nil {
			r.Units = map[ids.CellID]quantity.Quantity{}
		}
		r.Units[ids.CellID(cell)] = units.units(cell)
	}
	return r
}

func limits(o *object) *core.Limits {
	defer o.close()
	out := &core.Limits{User: o.rate("user"), Device: o.rate("device"), Network: o.rate("network")}
	claims := o.child("claims")
	for _, claim := range claims.keys {
		if r := claims.rate(claim); r != nil {
			if out.Claims == nil {
				out.Claims = map[string]core.Rate{}
			}
			out.Claims[claim] = *r
		}
	}
	return out
}

// rate reads {rate: 2/s, burst: 5}; burst defaults to one second's worth, at
// least 1.
func (o *object) rate(key string) *core.Rate {
	if !o.has(key) {
		return nil
	}
	block := o.child(key)
	defer block.close()
	milli, ok := perSecond(block.text("rate", ""))
	if !ok {
		block.f.fault(block.at("rate"), block.f.position(block.at("rate")), "must be a rate such as 2/s or 30/m, at most three decimals")
		milli = 1
	}
	burst := int32(min(1_000_000, max(1, (milli+999)/1000)))
	return &core.Rate{Milli: milli, Burst: block.count("burst", burst)}
}

// perSecond reads "2/s", "0.5/s" or "30/m" in thousandths of a request per second.
func perSecond(text string) (milli int64, ok bool) {
	number, unit, found := strings.Cut(text, "/")
	seconds, known := map[string]int64{"s": 1, "m": 60, "h": 3600}[unit]
	whole, decimals, _ := strings.Cut(number, ".")
	if !found || !known || len(decimals) > 3 || whole == "" || len(whole) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(whole+decimals+"000"[len(decimals):], 10, 40)
	if err != nil || n == 0 {
		return 0, false
	}
	return max(1, int64(n)/seconds), true
}
