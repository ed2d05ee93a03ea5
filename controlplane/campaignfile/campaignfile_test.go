package campaignfile_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/campaignfile"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// contract is the file of the outside contract, section 5, word for word.
const contract = `apiVersion: cellquota/v1
kind: Campaign
campaign_id: double-eleven
display: {title: "…"}                     # opaque to us, shown by GET
open_at: 2026-11-11T00:00:00+08:00        # offsets are mandatory; [open_at, close_at)
close_at: 2026-11-11T00:30:00+08:00
mode: DIRECT                              # or LOTTERY
lottery: {entry_open_at: 2026-11-10T00:00:00+08:00, entry_close_at: 2026-11-10T12:00:00+08:00, tiers: {gold: 3, default: 1}}
admission: MIRROR                         # or DATABASE: no Redis, no Kafka, for small sales
purchase_scope: SKU                       # or CAMPAIGN
max_quantity_per_order: 1
reservation_ttl: 15m
ack_mode: KAFKA                           # or REDIS
refund_rule: NO_RESTOCK                   # or RESTOCK; required
on_lease_loss: CONTINUE                   # or PAUSE
reclaim: MANUAL                           # or NEVER: rather sell a few less than take back in a short sale
routing: USER                             # or HOME_REGION (the token must carry home_region)
permits: {claim_from: 2026-11-10T23:30:00+08:00, ttl: 5m}
eligibility: {claims: {account_status: [active]}, deny_risk_tiers: [blocked]}
limits: {user: {rate: 2/s, burst: 5}, device: {rate: 5/s}, network: {rate: 200/s}, claims: {payment_account: {rate: 5/s}}}
holds: {max_unpaid_per_user: 1, max_unpaid_per_device: 2, payment_ttl_by_risk: {high: 3m}}
gate: {max_wait: 2s, margin: "5%", baseline_rps: 0}
skus:
  - sku_id: phone-x
    physical_stock: 12000
    sale_limit: 10000
    inventory_mode: COUNTER               # or TOKEN
    price: {amount: "4999.00", currency: CNY}
    reserve: 400                          # units, or "4%" of sale_limit
    split: {policy: EQUAL}                # EQUAL | WEIGHTED (weights: {cell: n}) | EXPLICIT (units: {cell: n}) | DEMAND
    top_up: {policy: AUTO, low_water: "10%", tranche: "5%"}   # of the first grant; of the present reserve, at least 1. Or MANUAL
    rebalance: MANUAL                     # or AUTO
cells: [cell-1, cell-2, cell-3, cell-4]
`

// least is a file with what is required and nothing else.
const least = `apiVersion: cellquota/v1
kind: Campaign
campaign_id: c
open_at: 2026-11-11T00:00:00Z
close_at: 2026-11-11T01:00:00Z
refund_rule: RESTOCK
skus:
- sku_id: s
  physical_stock: 10
  sale_limit: 10
  price: {amount: "1", currency: EUR}
cells: [cell-1]
`

func TestTheContractsFile(t *testing.T) {
	s, warnings, faults := campaignfile.ParseCampaign(contract)
	if len(faults) != 0 {
		t.Fatal(faults)
	}
	sku := s.SKUs[0]
	if s.ID != "double-eleven" || !s.OpenAt.Equal(time.Date(2026, 11, 10, 16, 0, 0, 0, time.UTC)) || s.DisplayJSON != `{"title":"…"}` ||
		s.HoldFor != 15*time.Minute || s.Limits.User.Milli != 2_000 || s.Limits.User.Burst != 5 || s.Limits.Device.Burst != 5 || s.Limits.Claims["payment_account"].Milli != 5_000 ||
		s.Holds.PaymentTTLByRisk["high"] != 3*time.Minute || s.Gate.MarginPermille != 50 || s.Eligibility.Claims[0].Values[0] != "active" {
		t.Errorf("spec %+v", s)
	}
	if sku.SaleLimit.Int64() != 10_000 || sku.Reserve.Int64() != 400 || sku.Split.Policy != allocator.Equal || sku.TopUp.LowWaterPermille != 100 || sku.Price.Amount != "4999.00" {
		t.Errorf("sku %+v", sku)
	}
	if len(warnings) != 1 {
		t.Errorf("warnings %v, want one of the lottery", warnings)
	}
}

func TestDefaults(t *testing.T) {
	s, warnings, faults := campaignfile.ParseCampaign(least)
	if len(faults) != 0 || len(warnings) != 0 {
		t.Fatal(faults, warnings)
	}
	if s.Mode != core.ModeDirect || s.Admission != core.AdmissionMirror || s.Scope != core.ScopeSKU || s.MaxQuantity != 1 || s.HoldFor != 15*time.Minute ||
		s.Ack != core.AckKafka || s.OnLeaseLoss != core.LeaseLossContinue || s.Reclaim != core.ReclaimManual || s.Routing != core.RoutingUser || s.Limits != nil ||
		!s.Permits.ClaimFrom.Equal(s.OpenAt.Add(-30*time.Minute)) || s.Permits.TTL != 5*time.Minute || s.Gate.MaxWait != 2*time.Second || s.Gate.MarginPermille != 50 {
		t.Errorf("spec %+v", s)
	}
	if k := s.SKUs[0]; k.Inventory != core.InventoryCounter || !k.Reserve.IsZero() || k.Split.Policy != allocator.Equal || k.TopUp.Policy != core.AutoManual || k.Rebalance != core.AutoManual {
		t.Errorf("sku %+v", k)
	}
}

// Each row changes one place of the contract's file and names the one fault.
func TestFaults(t *testing.T) {
	rows := []struct{ from, to, path, rule string }{
		{"open_at: 2026-11-11T00:00:00+08:00 ", "open_at: 2026-11-11T00:00:00 ", "open_at", "must say its offset"},
		{"open_at: 2026-11-11T00:00:00+08:00 ", "open_at: tomorrow ", "open_at", "must be an instant"},
		{"close_at: 2026-11-11T00:30:00+08:00", "close_at: 2026-11-11T00:00:00+08:00", "close_at", "must be after open_at"},
		{"sale_limit: 10000", "sale_limit: -1", "skus[0].sale_limit", "must be a whole number of units"},
		{"sale_limit: 10000", "sale_limit: 9223372036854775808", "skus[0].sale_limit", "must be a whole number of units"},
		{"sale_limit: 10000", "sale_limit: 1000000001", "skus[0].sale_limit", "must be a whole number of units"},
		{"sale_limit: 10000", "sale_limit: 1e4", "skus[0].sale_limit", "must be a whole number of units"},
		{"sale_limit: 10000", "sale_limit: 10000.0", "skus[0].sale_limit", "must be a whole number of units"},
		{"sale_limit: 10000", "sale_limit: 0x10", "skus[0].sale_limit", "must be a whole number of units"},
		{"sale_limit: 10000", `sale_limit: "10000"`, "skus[0].sale_limit", "must be a number, not text"},
		{"sale_limit: 10000", "sale_limit: 0", "skus[0].sale_limit", "is required"},
		{"sale_limit: 10000", "sale_limit:", "skus[0].sale_limit", "must have a value"},
		{"    sale_limit: 10000\n", "", "skus[0].sale_limit", "is required"},
		{"sale_limit: 10000", "sale_limit: 12001", "skus[0].sale_limit", "must not be above physical_stock (12000)"},
		{"reserve: 400", "reserve: 10001", "skus[0].reserve", "must not be above sale_limit"},
		{"reserve: 400", "reserve: -400", "skus[0].reserve", "must be units"},
		{"reserve: 400", `reserve: "101%"`, "skus[0].reserve", "must be a percentage"},
		{"cells: [cell-1, cell-2, cell-3, cell-4]", "cells: [cell-1, cell-2, cell-1]", "cells[2]", "may be named only once"},
		{"cells: [cell-1, cell-2, cell-3, cell-4]", "cells: []", "cells", "must list 1 to 1000"},
		{"cells: [cell-1, cell-2, cell-3, cell-4]", "cells: cell-1", "cells", "must be a list"},
		{"cells: [cell-1, cell-2, cell-3, cell-4]", "cells: [Cell_1]", "cells[0]", "a-z"},
		{"refund_rule: NO_RESTOCK", "refund_rules: NO_RESTOCK", "", ""}, // two faults, see below
		{"refund_rule: NO_RESTOCK", "refund_rule: MAYBE", "refund_rule", "must be NO_RESTOCK or RESTOCK"},
		{"routing: USER ", "routing: REGION ", "routing", "must be USER or HOME_REGION"},
		{"campaign_id: double-eleven", "campaign_id: Double Eleven", "campaign_id", "a-z"},
		{"campaign_id: double-eleven", "campaign_id: double-eleven\ncampaign_id: again", "campaign_id", "given twice"},
		{"apiVersion: cellquota/v1", "apiVersion: cellquota/v2", "apiVersion", "must be cellquota/v1"},
		{"kind: Campaign", "kind: Cell", "kind", "must be Campaign"},
		{`amount: "4999.00"`, "amount: 4999.00", "skus[0].price.amount", "in quotes"},
		{`amount: "4999.00"`, `amount: "4999,00"`, "skus[0].price.amount", "decimal"},
		{"reservation_ttl: 15m", "reservation_ttl: 15", "reservation_ttl", "must be a duration with its unit"},
		{"reservation_ttl: 15m", "reservation_ttl: -15m", "reservation_ttl", "must be a duration with its unit"},
		{`margin: "5%"`, `margin: "5.55%"`, "gate.margin", "at most one decimal"},
		{"rate: 2/s", "rate: fast", "limits.user.rate", "must be a rate"},
		{"baseline_rps: 0", "baseline_rps: 0, extra: 1", "gate.extra", "is not a known key"},
		{"policy: EQUAL}", "policy: EQUAL, weights: {cell-1: 2}}", "skus[0].split.weights", "belongs to the policy WEIGHTED"},
		{"policy: EQUAL}", "policy: WEIGHTED, weights: {cell-9: 2}}", "skus[0].split.weights.cell-9", "not listed in cells"},
		{"policy: EQUAL}", "policy: WEIGHTED, weights: {cell-1: -2}}", "skus[0].split.weights.cell-1", "whole number"},
		{"policy: EQUAL}", "policy: EXPLICIT, units: {cell-1: 9599}}", "skus[0].split.units", "must add up to sale_limit minus reserve (9600), not 9599"},
		{"policy: EQUAL}", "policy: SOMEHOW}", "skus[0].split.policy", "must be EQUAL"},
		{"display: {title: \"…\"}", "display: [1]", "display", "must be a mapping"},
		{"purchase_scope: SKU", "purchase_scope: &a SKU", "purchase_scope", "aliases, anchors and tags"},
		{"inventory_mode: COUNTER", "inventory_mode: SERIAL", "skus[0].inventory_mode", "must be COUNTER or TOKEN"},
		{"max_quantity_per_order: 1", "max_quantity_per_order: true", "max_quantity_per_order", "whole number"},
		{"claim_from: 2026-11-10T23:30:00+08:00", "claim_from: 2026-11-11T00:30:00+08:00", "permits.claim_from", "must be before close_at"},
	}
	for _, r := range rows {
		text := strings.Replace(contract, r.from, r.to, 1)
		if text == contract {
			t.Errorf("%q is not in the file", r.from)
			continue
		}
		spec, _, faults := campaignfile.ParseCampaign(text)
		if r.path == "" {
			continue
		}
		if len(faults) != 1 || faults[0].Path != r.path || !strings.Contains(faults[0].Rule, r.rule) {
			t.Errorf("%s: faults %v, want one on %s: %s", strings.TrimSpace(r.to), faults, r.path, r.rule)
			continue
		}
		if line := faults[0].Line; line < 1 || line > strings.Count(text, "\n") {
			t.Errorf("%s: line %d", r.path, line)
		}
		if spec.ID != "" {
			t.Errorf("%s: a spec came with the fault", r.path)
		}
	}
}

// Every fault at once, in order of lines, each with its line.
func TestEveryFaultAtOnce(t *testing.T) {
	text := strings.NewReplacer(
		"refund_rule: NO_RESTOCK", "refund_rules: NO_RESTOCK", "open_at: 2026-11-11T00:00:00+08:00 ", "open_at: 2026-11-11T00:00:00 ",
		"sale_limit: 10000", "sale_limit: -1", "cells: [cell-1, cell-2, cell-3, cell-4]", "cells: [cell-1, cell-1]").Replace(contract)
	_, _, faults := campaignfile.ParseCampaign(text)
	var paths []string
	last := 0
	for _, f := range faults {
		paths = append(paths, f.Path)
		if f.Line < last {
			t.Errorf("fault %v is out of order", f)
		}
		last = f.Line
	}
	want := []string{"refund_rule", "open_at", "refund_rules", "skus[0].sale_limit", "cells[1]"}
	if fmt.Sprint(paths) != fmt.Sprint(want) {
		t.Errorf("faults on %v, want %v", paths, want)
	}
	lines := strings.Split(text, "\n")
	for _, f := range faults {
		if name := f.Path[strings.LastIndexAny(f.Path, ".")+1:]; f.Path != "refund_rule" && !strings.Contains(lines[f.Line-1], strings.TrimRight(name, "[]01")) {
			t.Errorf("%s is said to stand on line %d: %s", f.Path, f.Line, lines[f.Line-1])
		}
	}
	err := campaignfile.Error(faults)
	if !errors.Is(err, rpcstatus.ErrInvalidArgument) || len(rpcstatus.Violations(err)) != 5 {
		t.Errorf("as an error: %v", err)
	}
}

func TestNotAFile(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "scalar": "hello", "list": "- a", "two documents": least + "---\n" + least, "broken": "a: [1,", "tab": "\ta: b", "null": "~",
		"brackets": strings.Repeat("[", 1<<20), "dashes": strings.Repeat("- ", 1<<19), "braces": strings.Repeat("{a: ", 1<<18), "long": strings.Repeat("#", 1<<20+1),
		"indent": strings.Repeat(" ", 600) + "a: 1", "binary": "\x00\x01\x02", "invalid utf-8": "a: \xff",
	} {
		began := time.Now()
		if _, _, faults := campaignfile.ParseCampaign(text); len(faults) == 0 {
			t.Errorf("%s: no fault", name)
		}
		if _, faults := campaignfile.ParseCell(text); len(faults) == 0 {
			t.Errorf("%s: no fault as a cell", name)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
}

func FuzzParseCampaign(f *testing.F) {
	f.Add(contract)
	f.Add(least)
	f.Add("a: &x [*x]")
	f.Fuzz(func(t *testing.T, text string) {
		spec, _, faults := campaignfile.ParseCampaign(text)
		if len(faults) == 0 && len(spec.Check()) != 0 {
			t.Fatalf("a file without faults breaks rules: %v", spec.Check())
		}
	})
}

// A percentage of the limit is the exact floor.
func TestReserveAsPercentage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, percent := rapid.Int64Range(1, 1_000_000_000).Draw(t, "limit"), rapid.Int64Range(0, 100).Draw(t, "percent")
		text := strings.NewReplacer("sale_limit: 10\n", fmt.Sprintf("sale_limit: %d\n  reserve: %q\n", limit, fmt.Sprint(percent, "%")), "physical_stock: 10\n", "physical_stock: 1000000000\n").Replace(least)
		s, _, faults := campaignfile.ParseCampaign(text)
		if len(faults) != 0 || s.SKUs[0].Reserve.Int64() != limit*percent/100 {
			t.Fatalf("%d%% of %d is %v, %v", percent, limit, s.SKUs, faults)
		}
	})
}

const cellFile = `apiVersion: cellquota/v1
kind: Cell
cell_id: cell-1
region: east
instance_group: group-a
weight: 2
redis: {mode: standalone, addrs: ["127.0.0.1:6379"]}
kafka: {brokers: ["127.0.0.1:9092"], partitions: 1, replication: 1}
shard: {dsn_file: app.dsn, reader_dsn_file: reader.dsn, fencer_dsn_file: fencer.dsn}
`

func TestCellFile(t *testing.T) {
	s, faults := campaignfile.ParseCell(cellFile)
	if len(faults) != 0 || s.ID != "cell-1" || s.Kafka.Topic != "cellquota.admissions.cell-1" || s.Weight != 2 || s.Shard.FencerDSNFile != "fencer.dsn" {
		t.Fatalf("%+v, %v", s, faults)
	}
	if p, faults := campaignfile.CellProto(cellFile); len(faults) != 0 || p.GetKafka().GetTopic() != "cellquota.admissions.cell-1" {
		t.Errorf("as proto: %v, %v", p, faults)
	}
	for _, r := range []struct{ from, to, path string }{
		{"cell_id: cell-1", "cell_id: Cell", "cell_id"},
		{"weight: 2", "weight: 0", "weight"},
		{"weight: 2", "weight: -1", "weight"},
		{"region: east", "region: EAST", "region"},
		{"mode: standalone", "mode: single", "redis.mode"},
		{`"127.0.0.1:6379"`, `"127.0.0.1"`, "redis.addrs[0]"},
		{"partitions: 1", "partitions: 0", "kafka.partitions"},
		{"fencer_dsn_file: fencer.dsn", "fencer_dsn: x", "shard.fencer_dsn_file"},
		{"weight: 2", "weight: 2\npassword: x", "password"},
	} {
		_, faults := campaignfile.ParseCell(strings.Replace(cellFile, r.from, r.to, 1))
		found := false
		for _, f := range faults {
			found = found || f.Path == r.path && f.Line > 0
		}
		if !found {
			t.Errorf("%s: faults %v, want one on %s", r.to, faults, r.path)
		}
	}
}

// wide is least with that many SKUs and cells.
func wide(skus, cells int) string {
	var s, c strings.Builder
	for i := range skus {
		fmt.Fprintf(&s, "- {sku_id: s%d, physical_stock: 10, sale_limit: 10, price: {amount: \"1\", currency: EUR}}\n", i)
	}
	for i := range cells {
		fmt.Fprintf(&c, "c%d,", i)
	}
	head, _, _ := strings.Cut(least, "skus:")
	return head + "skus:\n" + s.String() + "cells: [" + c.String() + "]\n"
}

// TestK38Edges: nothing, too much and figures that do not fit are refused with a reason on their path, or
// are a valid file; never a panic.
func TestK38Edges(t *testing.T) {
	with := func(from, to string) string { return strings.Replace(contract, from, to, 1) }
	for _, row := range []struct{ name, text, path, rule string }{
		{"no cell", with("cells: [cell-1, cell-2, cell-3, cell-4]", "cells: []"), "cells", "not 0"},
		{"a cell twice", with("cells: [cell-1, cell-2,", "cells: [cell-1, cell-1,"), "cells[1]", "only once"},
		{"1,000 cells", wide(1, 1000), "", ""},
		{"1,001 cells", wide(1, 1001), "cells", "must list 1 to 1000 cells, not 1001"},
		{"1,000 SKUs", wide(1000, 1), "", ""},
		{"1,001 SKUs", wide(1001, 1), "skus", "must list 1 to 1000 SKUs, not 1001"},
		{"100,000 pairs", wide(1000, 100), "", ""},
		{"101,000 pairs", wide(1000, 101), "skus", "at most 100000 (cell, SKU) pairs, not 101000"},
		{"every weight 0", with("policy: EQUAL}", "policy: WEIGHTED, weights: {cell-1: 0, cell-2: 0}}"), "skus[0].split.weights", "above 0"},
		{"one weight 0", with("policy: EQUAL}", "policy: WEIGHTED, weights: {cell-1: 0, cell-2: 1}}"), "", ""},
		{"a negative weight", with("policy: EQUAL}", "policy: WEIGHTED, weights: {cell-1: -1, cell-2: 1}}"), "skus[0].split.weights.cell-1", "whole number"},
		{"a huge weight", with("policy: EQUAL}", "policy: WEIGHTED, weights: {cell-1: 1000001}}"), "skus[0].split.weights.cell-1", "from 0 to 1000000"},
		{"a weight that is no number", with("policy: EQUAL}", "policy: WEIGHTED, weights: {cell-1: .nan}}"), "skus[0].split.weights.cell-1", "whole number"},
		{"a weight without end", with("policy: EQUAL}", "policy: WEIGHTED, weights: {cell-1: .inf}}"), "skus[0].split.weights.cell-1", "whole number"},
		{"a float of a weight", with("policy: EQUAL}", "policy: WEIGHTED, weights: {cell-1: 1e308}}"), "skus[0].split.weights.cell-1", "whole number"},
		{"demand", with("policy: EQUAL}", "policy: DEMAND}"), "", ""},
		{"fewer units than cells", strings.NewReplacer("sale_limit: 10000", "sale_limit: 2", "reserve: 400", "reserve: 0").Replace(contract), "", ""},
		{"nothing to sell", strings.NewReplacer("sale_limit: 10000", "sale_limit: 0", "reserve: 400", "reserve: 0").Replace(contract), "skus[0].sale_limit", "is required"},
		{"all of it reserve", with("reserve: 400", "reserve: 10000"), "", ""},
		{"more reserve than units", with("reserve: 400", "reserve: 10001"), "skus[0].reserve", "must not be above sale_limit"},
	} {
		_, _, faults := campaignfile.ParseCampaign(row.text)
		switch {
		case row.rule == "" && len(faults) > 0:
			t.Errorf("%s: %v", row.name, faults)
		case row.rule != "" && (len(faults) != 1 || faults[0].Path != row.path || !strings.Contains(faults[0].Rule, row.rule)):
			t.Errorf("%s: %v, want one on %s: %s", row.name, faults, row.path, row.rule)
		}
	}
}

// A lottery's file: every rule that it breaks at once; the good one has its block, and permits from when
// entry ends unless the file says later.
func TestLotteryFile(t *testing.T) {
	text := strings.Replace(contract, "mode: DIRECT ", "mode: LOTTERY ", 1)
	_, _, faults := campaignfile.ParseCampaign(strings.Replace(text, "tiers: {gold: 3", "tiers: {gold: 101", 1))
	var paths []string
	for _, f := range faults {
		paths = append(paths, f.Path)
	}
	if want := []string{"lottery.tiers.gold", "skus[0].reserve", "skus[0].top_up.policy"}; !slices.Equal(paths, want) {
		t.Errorf("faults on %v, want %v", paths, want)
	}
	text = strings.NewReplacer("reserve: 400 ", "reserve: 0 ", "policy: AUTO, low_water", "policy: MANUAL, low_water", "claim_from: 2026-11-10T23:30:00+08:00, ", "",
		"entry_close_at: 2026-11-10T12:00:00+08:00", "entry_close_at: 2026-11-10T23:59:00+08:00").Replace(text)
	spec, warnings, faults := campaignfile.ParseCampaign(text)
	if len(faults) > 0 || len(warnings) > 0 {
		t.Fatalf("faults %v, warnings %v", faults, warnings)
	}
	if l := spec.Lottery; l == nil || l.Tickets("gold") != 3 || l.Tickets("none") != 1 || !spec.Permits.ClaimFrom.Equal(l.EntryCloseAt) {
		t.Errorf("lottery %+v, permits %+v", spec.Lottery, spec.Permits)
	}
	_, _, faults = campaignfile.ParseCampaign(strings.Replace(text, "entry_close_at: 2026-11-10T23:59:00", "entry_close_at: 2026-11-11T00:01:00", 1))
	if len(faults) != 1 || faults[0].Path != "lottery.entry_close_at" {
		t.Errorf("entry after open_at: %v", faults)
	}
}
