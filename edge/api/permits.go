package api

import (
	"log/slog"
	"net/http"

	"github.com/cellquota/cellquota/edge/limit"
	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/telemetry"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// claimPermit is POST …/permits. The home cell is asked whether anything but time and stock stands
// against a first attempt, so that whoever has bought already is told now and not at the start.
func (s *Server) claimPermit(c *call) reply {
	campaign, sku, p := c.stock()
	if p != nil {
		return p.reply()
	}
	if p := calendar(campaign.PermitCalendar(sku, c.now), campaign.ClaimFrom, c.now); p != nil {
		return p.reply()
	}
	if p := s.identify(c); p != nil {
		return p.reply()
	}
	if p := c.empty(); p != nil {
		return p.reply()
	}
	if p := s.mayClaim(c, campaign); p != nil {
		return p.reply()
	}
	if campaign.Lottery != nil {
		if p := s.winner(c, campaign, sku); p != nil {
			return p.reply()
		}
	}
	if p := s.precheck(c, campaign, sku); p != nil {
		return p.reply()
	}
	return s.issue(c, campaign, sku)
}

// mayClaim passes eligibility and limits.
func (s *Server) mayClaim(c *call, campaign *route.Campaign) *problem {
	if !campaign.Rules.Eligible(c.who.Values, c.tier) {
		return at(atEligibility, NotEligible)
	}
	if p := c.enter(campaign); p != nil {
		return p
	}
	if wait, ok := s.parts.Limits.Allow(limit.Claim, string(campaign.ID), &campaign.Rules, s.caller(c)); !ok {
		return at(atLimit, RateLimited).after(wait)
	}
	return nil
}

// precheck asks the home cell; nil: nothing stands against it.
func (s *Server) precheck(c *call, campaign *route.Campaign, sku route.SKU) *problem {
	home := c.home(campaign)
	if campaign.Moving(c.domain, c.who.User) && !home.Lost() {
		return at(atRoute, MovedPending)
	}
	if !home.Admits() {
		return at(atRoute, HomeCellUnavailable)
	}
	if home.Paused {
		return at(atRoute, Paused)
	}
	answer, err := s.parts.Cells.Ask(c.lasting(), home.ID, &cq.Ask{
		CampaignId: string(campaign.ID), SkuId: string(sku.ID), UserId: string(c.who.User), Domain: c.domain,
		Traceparent: traceparent(c.ctx()),
		Kind:        &cq.Ask_Precheck{Precheck: &cq.PrecheckAsk{}},
	})
	if err != nil {
		return s.unanswered(c, home.ID, err)
	}
	switch answer.GetOutcome() {
	case cq.AdmitOutcome_ADMIT_OUTCOME_CLEAR, cq.AdmitOutcome_ADMIT_OUTCOME_NOT_STARTED:
		return nil
	default:
		return refusal(s.carried(c, home.ID, answer))
	}
}

// issue signs the permit.
func (s *Server) issue(c *call, campaign *route.Campaign, sku route.SKU) reply {
	notBefore, expires := campaign.PermitWindow(c.now)
	token, err := s.parts.Permits.Issue(campaign.ID, sku.ID, c.who.User, notBefore, expires)
	if err != nil {
		s.log.ErrorContext(c.ctx(), "permit not signed", slog.String(telemetry.Event, "permit_unsigned"), slog.Any(telemetry.Error, err))
		return at(atPermit, NotReady).reply()
	}
	o := newObject(make([]byte, 0, 512))
	o.str("permit", token)
	o.time("not_before", notBefore)
	o.time("expires_at", expires)
	o.int("opens_in_ms", max(campaign.OpenAt.Sub(c.now).Milliseconds(), 0))
	return reply{layer: atPermit, code: "ISSUED", status: http.StatusCreated, body: o.end()}
}
