package campaignfile

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Defaults of campaign.yaml.
const (
	defaultHold      = 15 * time.Minute
	defaultClaimLead = 30 * time.Minute
	defaultPermitTTL = 5 * time.Minute
	defaultMaxWait   = 2 * time.Second
	defaultMargin    = "5%"
	defaultLowWater  = "10%"
	defaultTranche   = "5%"
)

// Check is a further rule of the caller's (cells that exist, a window that is not
// over); what it breaks is told with the rest, each with its line.
type Check func(core.CampaignSpec) []rpcstatus.Violation

// ParseCampaign reads campaign.yaml. The spec is valid when there are no faults;
// warnings name what is read but has no effect.
func ParseCampaign(text string, checks ...Check) (spec core.CampaignSpec, warnings []string, faults []Fault) {
	f, root := parse(text)
	if root == nil {
		return core.CampaignSpec{}, nil, f.sorted()
	}
	root.header("Campaign")
	spec = campaign(root)
	root.close()
	f.add(spec.Check())
	for _, check := range checks {
		f.add(check(spec))
	}
	if faults = f.sorted(); len(faults) > 0 {
		return core.CampaignSpec{}, f.warnings, faults
	}
	return spec, f.warnings, nil
}

// header checks apiVersion and kind.
func (o *object) header(kind string) {
	for _, h := range [][2]string{{"apiVersion", "cellquota/v1"}, {"kind", kind}} {
		if got := o.text(h[0], ""); got != h[1] && !o.f.refused[o.at(h[0])] {
			o.f.fault(h[0], o.f.position(h[0]), "must be "+h[1])
		}
	}
}

func campaign(o *object) core.CampaignSpec {
	s := core.CampaignSpec{
		ID: ids.CampaignID(o.text("campaign_id", "")), DisplayJSON: o.display(),
		OpenAt: o.instant("open_at"), CloseAt: o.instant("close_at"),
		Mode: enum(o, "mode", core.Modes(), core.ModeDirect), Admission: enum(o, "admission", core.Admissions(), core.AdmissionMirror),
		Scope: enum(o, "purchase_scope", core.Scopes(), core.ScopeSKU), MaxQuantity: o.count("max_quantity_per_order", 1),
		HoldFor: o.span("reservation_ttl", defaultHold), Ack: enum(o, "ack_mode", core.Acks(), core.AckKafka),
		Refund: enum(o, "refund_rule", core.Refunds(), 0), OnLeaseLoss: enum(o, "on_lease_loss", core.LeaseLosses(), core.LeaseLossContinue),
		Reclaim: enum(o, "reclaim", core.Reclaims(), core.ReclaimManual), Routing: enum(o, "routing", core.Routings(), core.RoutingUser),
	}
	s.Permits = permits(o.child("permits"), s.OpenAt)
	s.Eligibility = eligibility(o.child("eligibility"))
	s.Holds = holds(o.child("holds"))
	s.Gate = gate(o.child("gate"))
	if o.has("limits") {
		s.Limits = limits(o.child("limits"))
	}
	s.Lottery = lottery(o, s.Mode)
	if s.Lottery != nil && !o.child("permits").has("claim_from") && s.Permits.ClaimFrom.Before(s.Lottery.EntryCloseAt) {
		s.Permits.ClaimFrom = s.Lottery.EntryCloseAt
	}
	for i, n := range o.list("skus") {
		if item := o.f.object(fmt.Sprintf("%s[%d]", o.at("skus"), i), n); item != nil {
			s.SKUs = append(s.SKUs, sku(item))
		} else {
			s.SKUs = append(s.SKUs, core.SKUSpec{})
		}
	}
	for _, c := range o.texts("cells") {
		s.Cells = append(s.Cells, ids.CellID(c))
	}
	return s
}

// display keeps the block as JSON; what it says is the customer page's affair.
func (o *object) display() string {
	n := o.node("display")
	if n == nil {
		return ""
	}
	if o.f.object(o.at("display"), n) == nil {
		return ""
	}
	value, err := plain(n)
	if err == nil {
		var out []byte
		if out, err = json.Marshal(value, json.Deterministic(true)); err == nil {
			return string(out)
		}
	}
	o.refuse("display", "cannot be written as JSON")
	return ""
}

func permits(o *object, open time.Time) core.PermitRules {
	defer o.close()
	p := core.PermitRules{ClaimFrom: o.instant("claim_from"), TTL: o.span("ttl", defaultPermitTTL)}
	if !o.has("claim_from") && !open.IsZero() {
		p.ClaimFrom = open.Add(-defaultClaimLead)
	}
	if open.IsZero() {
		o.f.refused[o.at("claim_from")] = true // its default comes from a value that was refused
	}
	return p
}

func eligibility(o *object) core.Eligibility {
	defer o.close()
	out := core.Eligibility{DenyRiskTiers: o.texts("deny_risk_tiers")}
	claims := o.child("claims")
	names := slices.Clone(claims.keys)
	slices.Sort(names)
	for _, name := range names {
		out.Claims = append(out.Claims, core.ClaimRule{Claim: name, Values: claims.texts(name)})
	}
	return out
}

func holds(o *object) core.Holds {
	defer o.close()
	out := core.Holds{MaxUnpaidPerUser: o.count("max_unpaid_per_user", 0), MaxUnpaidPerDevice: o.count("max_unpaid_per_device", 0)}
	tiers := o.child("payment_ttl_by_risk")
	for _, tier := range tiers.keys {
		if out.PaymentTTLByRisk == nil {
			out.PaymentTTLByRisk = map[string]time.Duration{}
		}
		out.PaymentTTLByRisk[tier] = tiers.span(tier, 0)
	}
	return out
}

func gate(o *object) core.Gate {
	defer o.close()
	return core.Gate{MaxWait: o.span("max_wait", defaultMaxWait), MarginPermille: o.permille("margin", defaultMargin), BaselineRPS: o.count("baseline_rps", 0)}
}

// lottery is the block of mode LOTTERY; with DIRECT it is read and has no effect.
func lottery(o *object, mode core.Mode) *core.LotteryRules {
	if !o.has("lottery") {
		return nil
	}
	block := o.child("lottery")
	defer block.close()
	out := &core.LotteryRules{EntryOpenAt: block.instant("entry_open_at"), EntryCloseAt: block.instant("entry_close_at")}
	tiers := block.child("tiers")
	for _, tier := range tiers.keys {
		if out.Tiers == nil {
			out.Tiers = map[string]int32{}
		}
		out.Tiers[tier] = tiers.count(tier, 0)
	}
	if mode != core.ModeLottery {
		o.f.warnings = append(o.f.warnings, "lottery: has no effect with mode DIRECT")
		return nil
	}
	return out
}
