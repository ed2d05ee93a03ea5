package campaignreport

import (
	"math/big"

	"github.com/cellquota/cellquota/controlplane/report/shards"
)

// plus adds the counts of another cell, word by word.
func (c Counts) plus(o Counts) Counts {
	return Counts{
		Requests: merge(c.Requests, o.Requests,
			func(a, b Requests) bool { return a.Outcome == b.Outcome && a.Reason == b.Reason },
			func(a, b Requests) Requests { a.Requests, a.Units = a.Requests+b.Requests, a.Units+b.Units; return a }),
		Sales: merge(c.Sales, o.Sales,
			func(a, b Sales) bool { return a.State == b.State && a.Currency == b.Currency },
			func(a, b Sales) Sales {
				a.Orders, a.Units, a.Amount = a.Orders+b.Orders, a.Units+b.Units, addMoney(a.Amount, b.Amount)
				return a
			}),
		Refunds: merge(c.Refunds, o.Refunds,
			func(a, b Refunds) bool { return a.State == b.State && a.Cause == b.Cause && a.Currency == b.Currency },
			func(a, b Refunds) Refunds {
				a.Refunds, a.Restocked, a.Amount = a.Refunds+b.Refunds, a.Restocked+b.Restocked, addMoney(a.Amount, b.Amount)
				return a
			}),
		Findings: merge(c.Findings, o.Findings,
			func(a, b Findings) bool { return a.Kind == b.Kind && a.State == b.State && a.Action == b.Action },
			func(a, b Findings) Findings { a.Findings, a.Units = a.Findings+b.Findings, a.Units+b.Units; return a }),
		Reversals: c.Reversals + o.Reversals,
	}
}

func merge[T any](into, from []T, same func(a, b T) bool, add func(a, b T) T) []T {
	out := append([]T(nil), into...)
next:
	for _, f := range from {
		for i := range out {
			if same(out[i], f) {
				out[i] = add(out[i], f)
				continue next
			}
		}
		out = append(out, f)
	}
	return out
}

// moneyDigits after the point, as shards keep them.
const moneyDigits = 4

// addMoney adds two exact decimals of a shard. What is none, which no shard has, is
// kept as text, so that it is seen.
func addMoney(a, b string) string {
	x, ok := new(big.Rat).SetString(a)
	y, fine := new(big.Rat).SetString(b)
	if !ok || !fine {
		return a + "+" + b
	}
	return x.Add(x, y).FloatString(moneyDigits)
}

// counted gives one SKU's counts of a shard.
func counted(t shards.Totals, sku string) (c Counts) {
	for _, r := range t.Requests {
		if r.SKU == sku {
			c.Requests = append(c.Requests, Requests{Outcome: r.Outcome, Reason: r.Reason, Requests: r.Requests, Units: r.Units})
		}
	}
	for _, o := range t.Orders {
		if o.SKU == sku {
			c.Sales = append(c.Sales, Sales{State: o.State, Orders: o.Orders, Units: o.Units, Amount: o.Amount, Currency: o.Currency})
		}
	}
	for _, f := range t.Refunds {
		if f.SKU == sku {
			c.Refunds = append(c.Refunds, Refunds{State: f.State, Cause: f.Cause, Refunds: f.Refunds, Restocked: f.Restocked, Amount: f.Amount, Currency: f.Currency})
		}
	}
	for _, f := range t.Findings {
		if f.SKU == sku {
			c.Findings = append(c.Findings, Findings{Kind: f.Kind, State: f.State, Action: f.Action, Findings: f.Findings, Units: f.Units})
		}
	}
	return c
}

// unitsOf sums the units of orders of one state.
func (c Counts) unitsOf(state string) (units int64) {
	for _, s := range c.Sales {
		if s.State == state {
			units += s.Units
		}
	}
	return units
}

// ordersOf counts orders of one state.
func (c Counts) ordersOf(state string) (orders int64) {
	for _, s := range c.Sales {
		if s.State == state {
			orders += s.Orders
		}
	}
	return orders
}
