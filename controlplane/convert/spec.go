package convert

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Spec gives a campaign's spec for the wire.
func Spec(s core.CampaignSpec) *pb.CampaignSpec {
	return &pb.CampaignSpec{
		CampaignId: string(s.ID), DisplayJson: s.DisplayJSON,
		OpenAt: Time(s.OpenAt), CloseAt: Time(s.CloseAt),
		Mode: pb.CampaignMode(s.Mode), Admission: pb.AdmissionMode(s.Admission), PurchaseScope: pb.PurchaseScope(s.Scope),
		MaxQuantityPerOrder: s.MaxQuantity, ReservationTtl: duration(s.HoldFor),
		AckMode: pb.AckMode(s.Ack), RefundRule: pb.RefundRule(s.Refund), OnLeaseLoss: pb.OnLeaseLoss(s.OnLeaseLoss),
		Reclaim: pb.ReclaimPolicy(s.Reclaim), Routing: pb.RoutingMode(s.Routing),
		Permits: &pb.PermitRules{ClaimFrom: Time(s.Permits.ClaimFrom), Ttl: duration(s.Permits.TTL)},
		Eligibility: &pb.EligibilityRules{
			Claims: mapped(s.Eligibility.Claims, func(c core.ClaimRule) *pb.ClaimRule {
				return &pb.ClaimRule{Claim: c.Claim, Values: c.Values}
			}),
			DenyRiskTiers: s.Eligibility.DenyRiskTiers,
		},
		Holds:  holds(s.Holds),
		Gate:   &pb.GateRules{MaxWait: duration(s.Gate.MaxWait), MarginPermille: s.Gate.MarginPermille, BaselineRps: s.Gate.BaselineRPS},
		Limits: limits(s.Limits), Lottery: lottery(s.Lottery), Skus: mapped(s.SKUs, sku), Cells: texts[ids.CellID, string](s.Cells),
	}
}

// FromSpec reads a campaign's spec. The caller checks it (CampaignSpec.Check).
func FromSpec(p *pb.CampaignSpec) (core.CampaignSpec, error) {
	var r reader
	s := core.CampaignSpec{
		ID: ids.CampaignID(p.GetCampaignId()), DisplayJSON: p.GetDisplayJson(),
		OpenAt: FromTime(p.GetOpenAt()), CloseAt: FromTime(p.GetCloseAt()),
		Mode: enum[core.Mode](p.GetMode()), Admission: enum[core.Admission](p.GetAdmission()), Scope: enum[core.Scope](p.GetPurchaseScope()),
		MaxQuantity: p.GetMaxQuantityPerOrder(), HoldFor: fromDuration(p.GetReservationTtl()),
		Ack: enum[core.Ack](p.GetAckMode()), Refund: enum[core.Refund](p.GetRefundRule()), OnLeaseLoss: enum[core.LeaseLoss](p.GetOnLeaseLoss()),
		Reclaim: enum[core.Reclaim](p.GetReclaim()), Routing: enum[core.Routing](p.GetRouting()),
		Permits: core.PermitRules{ClaimFrom: FromTime(p.GetPermits().GetClaimFrom()), TTL: fromDuration(p.GetPermits().GetTtl())},
		Eligibility: core.Eligibility{
			Claims: mapped(p.GetEligibility().GetClaims(), func(c *pb.ClaimRule) core.ClaimRule {
				return core.ClaimRule{Claim: c.GetClaim(), Values: c.GetValues()}
			}),
			DenyRiskTiers: p.GetEligibility().GetDenyRiskTiers(),
		},
		Holds: fromHolds(p.GetHolds()),
		Gate: core.Gate{
			MaxWait: fromDuration(p.GetGate().GetMaxWait()), MarginPermille: p.GetGate().GetMarginPermille(), BaselineRPS: p.GetGate().GetBaselineRps(),
		},
		Limits: fromLimits(p.GetLimits()), Lottery: fromLottery(p.GetLottery()), Cells: texts[string, ids.CellID](p.GetCells()),
	}
	s.SKUs = mapped(p.GetSkus(), r.sku)
	return s, r.err
}

func sku(s core.SKUSpec) *pb.SkuSpec {
	split := &pb.SplitRules{Policy: pb.SplitPolicy(s.Split.Policy)}
	for cell, w := range s.Split.Weights {
		if split.Weights == nil {
			split.Weights = map[string]int32{}
		}
		split.Weights[string(cell)] = int32(w)
	}
	for cell, u := range s.Split.Units {
		if split.Units == nil {
			split.Units = map[string]int32{}
		}
		split.Units[string(cell)] = u.Int32()
	}
	return &pb.SkuSpec{
		SkuId: string(s.ID), PhysicalStock: s.PhysicalStock.Int32(), SaleLimit: s.SaleLimit.Int32(),
		InventoryMode: pb.InventoryMode(s.Inventory), Price: &pb.Money{Amount: s.Price.Amount, Currency: s.Price.Currency},
		Reserve: s.Reserve.Int32(), Split: split,
		TopUp: &pb.TopUpRules{
			Policy: pb.AutoPolicy(s.TopUp.Policy), LowWaterPermille: s.TopUp.LowWaterPermille, TranchePermille: s.TopUp.TranchePermille,
		},
		Rebalance: pb.AutoPolicy(s.Rebalance),
	}
}

func (r *reader) sku(p *pb.SkuSpec) core.SKUSpec {
	s := core.SKUSpec{
		ID: ids.SKUID(p.GetSkuId()), PhysicalStock: r.units("physical_stock", p.GetPhysicalStock()), SaleLimit: r.units("sale_limit", p.GetSaleLimit()),
		Inventory: enum[core.Inventory](p.GetInventoryMode()), Price: core.Money{Amount: p.GetPrice().GetAmount(), Currency: p.GetPrice().GetCurrency()},
		Reserve: r.units("reserve", p.GetReserve()),
		Split:   core.SplitRules{Policy: enum[allocator.Policy](p.GetSplit().GetPolicy())},
		TopUp: core.TopUpRules{
			Policy: enum[core.Auto](p.GetTopUp().GetPolicy()), LowWaterPermille: p.GetTopUp().GetLowWaterPermille(), TranchePermille: p.GetTopUp().GetTranchePermille(),
		},
		Rebalance: enum[core.Auto](p.GetRebalance()),
	}
	for cell, w := range p.GetSplit().GetWeights() {
		if s.Split.Weights == nil {
			s.Split.Weights = map[ids.CellID]uint32{}
		}
		s.Split.Weights[ids.CellID(cell)] = uint32(w)
	}
	for cell, u := range p.GetSplit().GetUnits() {
		if s.Split.Units == nil {
			s.Split.Units = map[ids.CellID]quantity.Quantity{}
		}
		s.Split.Units[ids.CellID(cell)] = r.units("split.units."+cell, u)
	}
	return s
}

func holds(h core.Holds) *pb.HoldRules {
	out := &pb.HoldRules{MaxUnpaidPerUser: h.MaxUnpaidPerUser, MaxUnpaidPerDevice: h.MaxUnpaidPerDevice}
	for tier, ttl := range h.PaymentTTLByRisk {
		if out.PaymentTtlByRisk == nil {
			out.PaymentTtlByRisk = map[string]*durationpb.Duration{}
		}
		out.PaymentTtlByRisk[tier] = duration(ttl)
	}
	return out
}

func fromHolds(p *pb.HoldRules) core.Holds {
	out := core.Holds{MaxUnpaidPerUser: p.GetMaxUnpaidPerUser(), MaxUnpaidPerDevice: p.GetMaxUnpaidPerDevice()}
	for tier, ttl := range p.GetPaymentTtlByRisk() {
		if out.PaymentTTLByRisk == nil {
			out.PaymentTTLByRisk = map[string]time.Duration{}
		}
		out.PaymentTTLByRisk[tier] = fromDuration(ttl)
	}
	return out
}

func limits(l *core.Limits) *pb.LimitRules {
	if l == nil {
		return nil
	}
	out := &pb.LimitRules{User: rate(l.User), Device: rate(l.Device), Network: rate(l.Network)}
	for claim, r := range l.Claims {
		if out.Claims == nil {
			out.Claims = map[string]*pb.RateRule{}
		}
		out.Claims[claim] = rate(&r)
	}
	return out
}

func fromLimits(p *pb.LimitRules) *core.Limits {
	if p == nil {
		return nil
	}
	out := &core.Limits{User: fromRate(p.GetUser()), Device: fromRate(p.GetDevice()), Network: fromRate(p.GetNetwork())}
	for claim, r := range p.GetClaims() {
		if out.Claims == nil {
			out.Claims = map[string]core.Rate{}
		}
		out.Claims[claim] = core.Rate{Milli: r.GetRateMilli(), Burst: r.GetBurst()}
	}
	return out
}

func rate(r *core.Rate) *pb.RateRule {
	if r == nil {
		return nil
	}
	return &pb.RateRule{RateMilli: r.Milli, Burst: r.Burst}
}

func fromRate(p *pb.RateRule) *core.Rate {
	if p == nil {
		return nil
	}
	return &core.Rate{Milli: p.GetRateMilli(), Burst: p.GetBurst()}
}
