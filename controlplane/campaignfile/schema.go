package campaignfile

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
)

// Schema gives the JSON schema of campaign.yaml, for editors and checks before a
// commit. It says what one value may be and what is left out; what several values
// must agree on (close_at after open_at, a split that adds up) only the validator
// says. Whatever the validator takes, the schema takes; a test holds them together.
func Schema() []byte {
	out, err := json.Marshal(campaignSchema(), json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		panic(fmt.Sprintf("campaignfile: the schema is not JSON: %v", err)) // a defect: it is made of literals
	}
	return append(out, '\n')
}

// node is one schema.
type node map[string]any

// says adds what a value means.
func (n node) says(text string) node { n["description"] = text; return n }

// or adds the value that stands where the key is left out.
func (n node) or(value any) node { n["default"] = value; return n }

func block(required []string, properties map[string]node) node {
	n := node{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		n["required"] = required
	}
	return n
}

func mapOf(value node) node { return node{"type": "object", "additionalProperties": value} }

func listOf(value node, least, most int) node {
	return node{"type": "array", "items": value, "minItems": least, "maxItems": most}
}

func whole(least, most int64) node { return node{"type": "integer", "minimum": least, "maximum": most} }

func pattern(p string) node { return node{"type": "string", "pattern": p} }

func word[T interface{ String() string }](all []T) node {
	var words []string
	for _, v := range all {
		words = append(words, v.String())
	}
	return node{"type": "string", "enum": words}
}

func instantNode() node {
	return pattern(`^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$`)
}

func spanNode() node { return pattern(`^\+?([0-9.]+(ns|us|µs|μs|ms|s|m|h))+$|^[+]?0$`) }

func percentNode() node { return pattern(`^[0-9]+(\.[0-9]+)?%$`) }

func rateNode(of string) node {
	return block([]string{"rate"}, map[string]node{
		"rate":  pattern(`^[0-9]{1,9}(\.[0-9]{0,3})?/[smh]$`).says("Requests per second, minute or hour, such as 2/s or 30/m."),
		"burst": whole(0, quantity.Max).says("Requests that may come at once. Default: one second's worth, at least 1."),
	}).says("Rate limit per " + of + ".")
}

const (
	idPattern  = `^[a-z0-9-]{1,63}$`
	skuPattern = `^[A-Za-z0-9._-]{1,64}$`
)

func campaignSchema() node {
	root := block([]string{"apiVersion", "kind", "campaign_id", "open_at", "close_at", "refund_rule", "skus", "cells"}, map[string]node{
		"apiVersion":             {"type": "string", "enum": []string{"cellquota/v1"}},
		"kind":                   {"type": "string", "enum": []string{"Campaign"}},
		"campaign_id":            node{"anyOf": []node{pattern(idPattern), {"type": "integer"}}}.says("Names the campaign for ever."),
		"display":                node{"type": "object"}.says("Opaque to Cellquota, shown by GET; at most 4 KiB as JSON."),
		"open_at":                instantNode().says("First instant at which a request is admitted; the offset is mandatory. May lie in the past: on sale at once."),
		"close_at":               instantNode().says("First instant at which none is admitted any more."),
		"mode":                   word(core.Modes()).or("DIRECT").says("DIRECT: first come, first served by each home cell; LOTTERY: customers enter, each SKU's winners are drawn, and each buys one unit."),
		"lottery":                lotterySchema(),
		"admission":              word(core.Admissions()).or("MIRROR").says("MIRROR: Redis, then the log; DATABASE: the shard alone, for small sales: no Redis, no Kafka, an accepted request has its order at once."),
		"purchase_scope":         word(core.Scopes()).or("SKU").says(`What "one order per user" counts.`),
		"max_quantity_per_order": whole(1, 1000).or(1),
		"reservation_ttl":        spanNode().or("15m").says("How long an order may stay unpaid; 1s to 744h."),
		"ack_mode":               word(core.Acks()).or("KAFKA").says("202 on the log's acknowledgement, or as soon as Redis granted."),
		"refund_rule":            word(core.Refunds()).says("Whether a full refund returns its unit to the campaign."),
		"on_lease_loss":          word(core.LeaseLosses()).or("CONTINUE").says("What a cell does while the control plane is gone."),
		"reclaim":                word(core.Reclaims()).or("MANUAL").says("NEVER: rather sell a few less than take back in a short sale."),
		"routing":                word(core.Routings()).or("USER").says("HOME_REGION: the token must carry home_region and home_region_since."),
		"permits": block(nil, map[string]node{
			"claim_from": instantNode().says("Earliest claim. Default: 30 minutes before open_at."),
			"ttl":        spanNode().or("5m").says("Life of a permit from max(claim, open_at); 1s to 744h."),
		}),
		"eligibility": block(nil, map[string]node{
			"claims":          mapOf(listOf(node{}, 1, 100)).says("Token claim to the values that are accepted; at most 16 claims."),
			"deny_risk_tiers": listOf(node{}, 0, 16).says("Risk tiers that are refused."),
		}),
		"limits": block(nil, map[string]node{
			"user": rateNode("user"), "device": rateNode("device"), "network": rateNode("network address; it never bans a user by itself"),
			"claims": mapOf(rateNode("value of the claim")),
		}).says("Default: no rate limit but the edge's own ceilings."),
		"holds": block(nil, map[string]node{
			"max_unpaid_per_user":   whole(0, 1000).or(0).says("0: no bound."),
			"max_unpaid_per_device": whole(0, 1000).or(0).says("Counted within the home cell; 0: no bound."),
			"payment_ttl_by_risk":   mapOf(spanNode()).says("Payment window by risk tier, 1s to reservation_ttl."),
		}),
		"gate": block(nil, map[string]node{
			"max_wait":     spanNode().or("2s").says("Longest wait from admission to order that is accepted; 1ms to 1m."),
			"margin":       percentNode().or("5%").says("Requests let through beyond the remaining stock when throttled."),
			"baseline_rps": whole(0, 1_000_000).or(0).says("Requests per second by the shard alone while Redis is down."),
		}),
		"skus":  listOf(skuSchema(), 1, core.MaxSKUs),
		"cells": listOf(node{}, 1, allocator.MaxCells).says("The cells that sell, each once; with skus at most 100,000 pairs."),
	})
	root["$schema"], root["title"] = "https://json-schema.org/draft/2020-12/schema", "Cellquota campaign"
	return root
}

func skuSchema() node {
	return block([]string{"sku_id", "physical_stock", "sale_limit", "price"}, map[string]node{
		"sku_id":         {"anyOf": []node{pattern(skuPattern), {"type": "integer"}}},
		"physical_stock": whole(1, quantity.Max).says("Units that the warehouse can allocate, over all unsettled campaigns of the SKU."),
		"sale_limit":     whole(1, quantity.Max).says("Units that the campaign may sell; at most physical_stock."),
		"inventory_mode": word(core.Inventories()).or("COUNTER").says("TOKEN: one row per unit, with a serial; at most 100000 units."),
		"price": block([]string{"amount", "currency"}, map[string]node{
			"amount":   pattern(`^(0|[1-9][0-9]{0,13})(\.[0-9]{1,4})?$`).says("A decimal in quotes."),
			"currency": pattern(`^[A-Z]{3}$`).says("ISO 4217."),
		}),
		"reserve": node{"anyOf": []node{whole(0, quantity.Max), pattern(`^([0-9]+|[0-9]+(\.[0-9]+)?%)$`)}}.or(0).says(`Units kept back, or a share of sale_limit such as "4%".`),
		"split": block(nil, map[string]node{
			"policy":  word(allocator.Policies()).or("EQUAL"),
			"weights": mapOf(whole(0, core.MaxWeight)).says("WEIGHTED: cell to weight; left out: the cells' own."),
			"units":   mapOf(whole(0, quantity.Max)).says("EXPLICIT: cell to units; they add up to sale_limit minus reserve."),
		}).says("How sale_limit minus reserve is cut. DEMAND: by weights until demand was seen."),
		"top_up": block(nil, map[string]node{
			"policy":    word(core.Autos()).or("MANUAL"),
			"low_water": percentNode().or("10%").says("Of a cell's first grant."),
			"tranche":   percentNode().or("5%").says("Of the present reserve, at least 1 unit."),
		}),
		"rebalance": word(core.Autos()).or("MANUAL").says("Who moves units between cells."),
	})
}

func lotterySchema() node {
	return block(nil, map[string]node{
		"entry_open_at":  instantNode(),
		"entry_close_at": instantNode(),
		"tiers":          mapOf(whole(1, allocator.MaxTickets)).says(`The token's claim "tier" to tickets in the draw; at most 32; "default" is everybody else's, 1 where it is not named.`),
	}).says("Required with mode LOTTERY, has no effect with DIRECT.")
}
