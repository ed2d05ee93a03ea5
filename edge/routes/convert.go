package routes

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/ids"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Defaults of a campaign that leaves them out.
const (
	defaultClaimLead = 30 * time.Minute // permits may be claimed so long before the start
	defaultPermitTTL = 5 * time.Minute
)

// campaign reads one campaign. Its error says which campaign it is and what cannot be read.
func campaign(in *cq.CampaignRoute) (*route.Campaign, error) {
	spec := in.GetSpec()
	id, err := ids.ParseCampaignID(spec.GetCampaignId())
	if err != nil {
		return nil, err
	}
	out := &route.Campaign{
		ID:          id,
		Version:     in.GetVersion(),
		Stage:       stage(in.GetState()),
		OpenAt:      spec.GetOpenAt().AsTime(),
		CloseAt:     spec.GetCloseAt().AsTime(),
		PermitTTL:   defaultPermitTTL,
		Lottery:     lottery(in),
		HomeRegion:  spec.GetRouting() == cq.RoutingMode_ROUTING_MODE_HOME_REGION,
		PublishedAt: time.UnixMilli(in.GetPublishedAtMs()),
		MaxQuantity: cmp.Or(spec.GetMaxQuantityPerOrder(), 1),
		Margin:      spec.GetGate().GetMarginPermille(),
		Rules:       rules(spec),
	}
	if err := window(out, spec); err != nil {
		return nil, fmt.Errorf("campaign %s: %w", id, err)
	}
	out.Display = display(spec.GetDisplayJson())
	if err := skus(out, in); err != nil {
		return nil, fmt.Errorf("campaign %s: %w", id, err)
	}
	domains, err := domains(in.GetDomains())
	if err != nil {
		return nil, fmt.Errorf("campaign %s: %w", id, err)
	}
	if out.Stage != route.Hidden && len(domains) == 0 {
		return nil, fmt.Errorf("campaign %s: %w: no domain", id, route.ErrBuckets)
	}
	out.Seal(domains)
	return out, nil
}

// lottery is nil of a campaign that does not draw.
func lottery(in *cq.CampaignRoute) *route.Lottery {
	spec := in.GetSpec()
	if spec.GetMode() != cq.CampaignMode_CAMPAIGN_MODE_LOTTERY {
		return nil
	}
	return &route.Lottery{
		EntryOpenAt: spec.GetLottery().GetEntryOpenAt().AsTime(), EntryCloseAt: spec.GetLottery().GetEntryCloseAt().AsTime(), Commitment: in.GetLotteryCommitment(),
	}
}

// display is the text as one line of JSON; nil where it is no object, which is no reason not to sell.
func display(text string) []byte {
	v := jsontext.Value(text)
	if v.Kind() != '{' || v.Compact() != nil {
		return nil
	}
	return v
}

func stage(s cq.CampaignState) route.Stage {
	switch s {
	case cq.CampaignState_CAMPAIGN_STATE_PUBLISHED, cq.CampaignState_CAMPAIGN_STATE_OPEN:
		return route.Published
	case cq.CampaignState_CAMPAIGN_STATE_PAUSED:
		return route.Paused
	case cq.CampaignState_CAMPAIGN_STATE_CLOSED, cq.CampaignState_CAMPAIGN_STATE_SETTLED:
		return route.Closed
	default:
		return route.Hidden
	}
}

// window reads the instants; a campaign without them must never read as "on sale since 1970".
func window(out *route.Campaign, spec *cq.CampaignSpec) error {
	if spec.GetOpenAt() == nil || spec.GetCloseAt() == nil || !out.OpenAt.Before(out.CloseAt) {
		return errors.New("open_at and close_at: must be there, in this order")
	}
	out.ClaimFrom = out.OpenAt.Add(-defaultClaimLead)
	if from := spec.GetPermits().GetClaimFrom(); from != nil {
		out.ClaimFrom = from.AsTime()
	}
	if ttl := spec.GetPermits().GetTtl(); ttl != nil {
		out.PermitTTL = ttl.AsDuration()
	}
	return nil
}

func skus(out *route.Campaign, in *cq.CampaignRoute) error {
	paused, final := set(in.GetPausedSkus()), set(in.GetFinalSkus())
	for _, s := range in.GetSpec().GetSkus() {
		id, err := ids.ParseSKUID(s.GetSkuId())
		if err != nil {
			return err
		}
		out.SKUs = append(out.SKUs, route.SKU{ID: id, Paused: paused[s.GetSkuId()], Final: final[s.GetSkuId()]})
	}
	return nil
}

func domains(in []*cq.DomainRoute) (map[string]*route.Domain, error) {
	out := make(map[string]*route.Domain, len(in))
	for _, d := range in {
		var owned []route.Owned
		for _, c := range d.GetCells() {
			cell, err := ids.ParseCellID(c.GetCellId())
			if err != nil {
				return nil, err
			}
			for _, r := range c.GetBuckets().GetRanges() {
				owned = append(owned, route.Owned{Cell: cell, From: r.GetBucketFrom(), To: r.GetBucketTo()})
			}
		}
		domain, err := route.NewDomain(owned)
		if err != nil {
			return nil, fmt.Errorf("domain %q: %w", d.GetDomain(), err)
		}
		handovers, err := moves(d.GetMoves())
		if err == nil {
			err = domain.WithMoves(handovers)
		}
		if err != nil {
			return nil, fmt.Errorf("domain %q: %w", d.GetDomain(), err)
		}
		out[d.GetDomain()] = domain
	}
	return out, nil
}

// moves reads a domain's handovers. One in a state that this edge has no word for yet counts as under
// way: nobody is sold to.
func moves(in []*cq.BucketMove) ([]route.Move, error) {
	out := make([]route.Move, 0, len(in))
	for _, m := range in {
		from, err := ids.ParseCellID(m.GetFromCell())
		if err != nil {
			return nil, err
		}
		to, err := ids.ParseCellID(m.GetToCell())
		if err != nil {
			return nil, err
		}
		one := route.Move{From: from, To: to, Done: m.GetState() == cq.BucketMoveState_BUCKET_MOVE_STATE_MOVED}
		for _, r := range m.GetBuckets().GetRanges() {
			one.Buckets = append(one.Buckets, route.Range{First: r.GetBucketFrom(), Last: r.GetBucketTo()})
		}
		out = append(out, one)
	}
	return out, nil
}

func rules(spec *cq.CampaignSpec) route.Rules {
	limits := spec.GetLimits()
	out := route.Rules{
		DenyRisk: spec.GetEligibility().GetDenyRiskTiers(),
		User:     rate(limits.GetUser()),
		Device:   rate(limits.GetDevice()),
		Network:  rate(limits.GetNetwork()),
	}
	for _, c := range spec.GetEligibility().GetClaims() {
		out.Claims = append(out.Claims, route.ClaimRule{Name: c.GetClaim(), Values: c.GetValues()})
	}
	for name, r := range limits.GetClaims() {
		if out.PerName == nil {
			out.PerName = map[string]route.Rate{}
		}
		out.PerName[name] = rate(r)
	}
	return out
}

func rate(r *cq.RateRule) route.Rate {
	if r == nil {
		return route.Rate{}
	}
	return route.Rate{PerSecond: float64(max(r.GetRateMilli(), 1)) / 1000, Burst: int(max(r.GetBurst(), 1))}
}

func cell(in *cq.CellRoute) (*route.Cell, error) {
	id, err := ids.ParseCellID(in.GetCellId())
	if err != nil {
		return nil, err
	}
	return &route.Cell{
		ID: id, Region: in.GetRegion(), Standing: standing(in.GetState()), Paused: in.GetPaused(), Addresses: in.GetAddresses(),
	}, nil
}

// standing reads a cell's state. What this edge has no word for yet admits nobody.
func standing(s cq.CellState) route.Standing {
	switch s {
	case cq.CellState_CELL_STATE_ACTIVE, cq.CellState_CELL_STATE_SUSPECT, cq.CellState_CELL_STATE_DRAINING:
		return route.Selling
	case cq.CellState_CELL_STATE_PROVISIONED, cq.CellState_CELL_STATE_RETIRED:
		return route.Gone
	default:
		return route.Settling
	}
}

func set(in []string) map[string]bool {
	out := make(map[string]bool, len(in))
	for _, s := range in {
		out[s] = true
	}
	return out
}
