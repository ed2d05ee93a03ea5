package api

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/campaigns"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Bounds of what travels with an ask and has no grammar of its own.
const (
	maxDevice      = 128
	maxTier        = 64
	maxDomain      = 64
	maxTraceparent = 64
)

// checked is an ask whose fields, campaign and permit are in order.
type checked struct {
	ask      *pb.Ask
	campaign *campaigns.Campaign
	sku      campaigns.SKU
	user     ids.UserID
	request  ids.RequestID // admits only
	permit   signed.Permit // admits only
	quantity int32         // admits only
}

// refused is an ask that is answered without the mirror.
type refused struct {
	outcome pb.AdmitOutcome
	detail  string
}

func invalid(err error) *refused {
	return &refused{pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT, err.Error()}
}

// check reads an ask. Expiry and nonce of a permit, stock, window and place are for the mirror, so
// that replay comes before them.
func (s *Server) check(rules *campaigns.Snapshot, ask *pb.Ask) (checked, *refused) {
	out := checked{ask: ask}
	campaign, err1 := ids.ParseCampaignID(ask.GetCampaignId())
	sku, err2 := ids.ParseSKUID(ask.GetSkuId())
	user, err3 := ids.ParseUserID(ask.GetUserId())
	err := errors.Join(err1, err2, err3, plain("domain", ask.GetDomain(), maxDomain), plain("traceparent", ask.GetTraceparent(), maxTraceparent))
	if err != nil {
		return out, invalid(err)
	}
	out.user = user
	var ok bool
	if out.campaign, ok = rules.Campaign(campaign); !ok {
		return out, &refused{outcome: pb.AdmitOutcome_ADMIT_OUTCOME_UNKNOWN_CAMPAIGN}
	}
	if out.sku, ok = out.campaign.SKU(sku); !ok {
		return out, &refused{outcome: pb.AdmitOutcome_ADMIT_OUTCOME_UNKNOWN_CAMPAIGN}
	}
	switch k := ask.GetKind().(type) {
	case *pb.Ask_Admit:
		no := s.checkAdmit(&out, k.Admit)
		return out, no
	case *pb.Ask_Precheck:
		return out, nil
	default:
		return out, &refused{pb.AdmitOutcome_ADMIT_OUTCOME_INVALID_ARGUMENT, "kind: must be admit or precheck"}
	}
}

func (s *Server) checkAdmit(out *checked, in *pb.AdmitAsk) *refused {
	var err error
	if out.request, err = ids.ParseRequestID(in.GetRequestId()); err != nil {
		return invalid(err)
	}
	out.quantity = in.GetQuantity()
	if most := max(out.campaign.Spec.GetMaxQuantityPerOrder(), 1); out.quantity < 1 || out.quantity > most {
		return invalid(fmt.Errorf("quantity: must be 1 to %d", most))
	}
	if err := errors.Join(plain("device_id", in.GetDeviceId(), maxDevice), plain("risk_tier", in.GetRiskTier(), maxTier)); err != nil {
		return invalid(err)
	}
	out.permit, err = signed.VerifyPermit(in.GetPermit(), s.Permits.Keys())
	if err != nil || out.permit.Campaign != out.campaign.ID || out.permit.SKU != out.sku.ID || out.permit.User != out.user {
		return &refused{outcome: pb.AdmitOutcome_ADMIT_OUTCOME_PERMIT_INVALID}
	}
	return nil
}

// plain refuses text that a log or a database may choke on.
func plain(field, text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("%s: must have at most %d bytes", field, most)
	case !utf8.ValidString(text):
		return fmt.Errorf("%s: must be UTF-8", field)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%s: must have no control characters", field)
	}
	return nil
}

// standsAgainst is what the rules have against a first attempt; 0: nothing. A repeat is answered
// before it.
func standsAgainst(rules *campaigns.Snapshot, c *campaigns.Campaign, sku campaigns.SKU) pb.AdmitOutcome {
	_, paused := rules.Paused()
	switch {
	case sku.Final:
		return pb.AdmitOutcome_ADMIT_OUTCOME_FINAL_SOLD_OUT
	case c.State == pb.CampaignState_CAMPAIGN_STATE_CLOSED, c.State == pb.CampaignState_CAMPAIGN_STATE_SETTLED:
		return pb.AdmitOutcome_ADMIT_OUTCOME_ENDED
	case !c.Sells(), sku.Paused, paused:
		return pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED
	default:
		return pb.AdmitOutcome_ADMIT_OUTCOME_UNSPECIFIED
	}
}

// admit is a checked ask as the mirror takes it.
func (c *checked) admit() admission.Ask {
	in := c.ask.GetAdmit()
	return admission.Ask{
		Scope: scope(c.campaign, c.sku.ID), SKU: c.sku.ID, User: c.user, Request: c.request, Quantity: c.quantity, Domain: c.ask.GetDomain(),
		Nonce: c.permit.Nonce, PermitExpiresAtMS: c.permit.Expires.UnixMilli(), Price: c.sku.Price, CampaignVersion: c.campaign.Version,
		DeviceID: in.GetDeviceId(), RiskTier: in.GetRiskTier(), Holds: c.campaign.Holds, Traceparent: c.ask.GetTraceparent(),
	}
}
