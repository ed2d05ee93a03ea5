package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/cellquota/cellquota/edge/limit"
	"github.com/cellquota/cellquota/edge/proxy"
	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/edge/soldout"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ask is a checked request to buy.
type ask struct {
	request  ids.RequestID
	quantity int32
	permit   string
	attempt  int32 // 0: first
}

// request is POST …/requests: the whole funnel, in the order of the package comment.
func (s *Server) request(c *call) reply {
	// 1. Campaign and window.
	campaign, sku, p := c.stock()
	if p != nil {
		return p.reply()
	}
	attempt, p := c.retryAttempt()
	if p != nil {
		return p.reply()
	}
	if attempt == 0 {
		if p := calendar(campaign.RequestCalendar(sku, c.now), campaign.OpenAt, c.now); p != nil {
			return p.reply()
		}
	} else {
		s.metrics.repeats.WithLabelValues(repeatAttempt).Inc()
	}
	// 2. Identity, then the body.
	if p := s.identify(c); p != nil {
		return p.reply()
	}
	in, p := s.readAsk(c, campaign, attempt)
	if p != nil {
		return p.reply()
	}
	// 3. Permit, eligibility, limits.
	if p := s.mayTry(c, campaign, sku, in); p != nil {
		return p.reply()
	}
	caller := s.caller(c)
	if !s.crowds.Enter(caller) {
		return at(atLimit, RateLimited).reply()
	}
	defer s.crowds.Leave(caller)
	// 4. One ask for all concurrent repeats, to the one cell.
	d, joined := s.collate.do(c.who.User, collapseKey(campaign.ID, sku.ID, c.who.User, in), func() decision {
		return s.decide(c, campaign, sku, in)
	})
	if joined {
		s.metrics.repeats.WithLabelValues(repeatCollapsed).Inc()
	}
	return s.told(c, d, joined)
}

// readAsk reads the body and checks it field by field; all that is wrong is named at once.
func (s *Server) readAsk(c *call, campaign *route.Campaign, attempt int32) (*ask, *problem) {
	var body struct {
		RequestID string `json:"request_id"`
		Quantity  int32  `json:"quantity"`
		Permit    string `json:"permit"`
	}
	if p := c.decode(&body); p != nil {
		return nil, p
	}
	bad := at(atBody, InvalidArgument)
	request, err := ids.ParseRequestID(body.RequestID)
	if err != nil {
		bad.field("/request_id", rule(err))
	}
	if body.Quantity < 1 || body.Quantity > campaign.MaxQuantity {
		bad.field("/quantity", fmt.Sprintf("must be an integer from 1 to %d", campaign.MaxQuantity))
	}
	if body.Permit == "" {
		bad.field("/permit", "must be the permit of this SKU")
	}
	if len(bad.errors) > 0 {
		return nil, bad
	}
	return &ask{request, body.Quantity, body.Permit, attempt}, nil
}

// rule is what an id's error asks for, without the field, which the pointer names.
func rule(err error) string {
	var bad *ids.Error
	if errors.As(err, &bad) {
		return bad.Rule
	}
	return "is not valid"
}

// mayTry passes permit, eligibility and limits.
func (s *Server) mayTry(c *call, campaign *route.Campaign, sku route.SKU, in *ask) *problem {
	given, err := s.parts.Permits.Check(in.permit, campaign.ID, sku.ID, c.who.User)
	if err != nil || (in.attempt == 0 && !c.now.Before(given.Expires)) {
		return at(atPermit, PermitInvalid)
	}
	if !campaign.Rules.Eligible(c.who.Values, c.tier) {
		return at(atEligibility, NotEligible)
	}
	if p := c.enter(campaign); p != nil {
		return p
	}
	class := limit.First
	if in.attempt > 0 {
		class = limit.Repeat
	}
	if wait, ok := s.parts.Limits.Allow(class, string(campaign.ID), &campaign.Rules, s.caller(c)); !ok {
		return at(atLimit, RateLimited).after(wait)
	}
	return nil
}

// decide asks the home cell, unless it was out of units a moment ago.
func (s *Server) decide(c *call, campaign *route.Campaign, sku route.SKU, in *ask) decision {
	home := c.home(campaign)
	if home == nil {
		return decision{problem: at(atRoute, HomeCellUnavailable)}
	}
	moving := campaign.Moving(c.domain, c.who.User)
	if moving && !home.Lost() && (in.attempt == 0 || !home.Admits()) { // what the giver has of a repeat it tells while it can
		return decision{problem: at(atRoute, MovedPending)}
	}
	stock := soldout.Key{Campaign: campaign.ID, SKU: sku.ID, Cell: home.ID}
	c.request = string(in.request)
	if in.attempt == 0 {
		if left, empty := s.parts.SoldOut.Empty(stock); empty {
			return decision{problem: at(atSoldOut, TempSoldOut).after(max(left, Catalog[TempSoldOut].Wait))}
		}
	}
	if !home.Admits() {
		return decision{problem: at(atRoute, HomeCellUnavailable)}
	}
	if in.attempt == 0 {
		if wait, ok := s.parts.SoldOut.Pass(stock); !ok {
			return decision{problem: at(atSoldOut, Throttled).after(max(wait, Catalog[Throttled].Wait))}
		}
	}
	if home.Paused && in.attempt == 0 { // a repeat is answered by the cell, which may know its first answer
		return decision{problem: at(atRoute, Paused)}
	}
	answer, err := s.parts.Cells.Ask(c.lasting(), home.ID, &cq.Ask{
		CampaignId: string(campaign.ID), SkuId: string(sku.ID), UserId: string(c.who.User), Domain: c.domain,
		Traceparent: traceparent(c.ctx()),
		Kind: &cq.Ask_Admit{Admit: &cq.AdmitAsk{
			RequestId: string(in.request), Quantity: in.quantity, Permit: in.permit, RetryAttempt: in.attempt,
			DeviceId: c.who.DeviceID, RiskTier: c.tier,
		}},
	})
	if err != nil {
		return decision{problem: s.unanswered(c, home.ID, err)}
	}
	s.learn(stock, campaign.Margin, answer)
	if moving && answer.GetOutcome() == cq.AdmitOutcome_ADMIT_OUTCOME_FENCED {
		return decision{problem: at(atHome, MovedPending)}
	}
	if answer = s.carried(c, home.ID, answer); hasMoved(answer.GetRequest()) { // not final: home decides a repeat
		return decision{problem: at(atHome, MovedPending)}
	}
	return decision{answer: answer}
}

// unanswered is what a customer is told whose ask has no answer.
func (s *Server) unanswered(c *call, cell ids.CellID, err error) *problem {
	switch {
	case errors.Is(err, proxy.ErrNoCell):
		return at(atRoute, HomeCellUnavailable)
	case errors.Is(err, proxy.ErrBusy):
		return at(atHome, Throttled)
	case errors.Is(err, proxy.ErrNotSent):
		return at(atHome, NotReady)
	default:
		s.log.WarnContext(c.ctx(), "no answer; the outcome is unknown", slog.String(telemetry.Event, "ask_unknown"),
			slog.String(telemetry.CampaignID, c.params[0]), slog.String(telemetry.SKUID, c.params[1]), slog.String(telemetry.UserID, string(c.who.User)),
			slog.String(telemetry.RequestID, c.request), slog.String(telemetry.CellID, string(cell)),
			slog.String(telemetry.ErrorClass, "UNKNOWN_OUTCOME"), slog.Bool(telemetry.Retryable, true), slog.Any(telemetry.Error, err))
		return at(atHome, NotReady)
	}
}

// learn remembers what an answer says about the cell's stock.
func (s *Server) learn(k soldout.Key, margin int32, a *cq.Answer) {
	switch a.GetOutcome() {
	case cq.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED:
		s.parts.SoldOut.SawSome(k)
	case cq.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT:
		s.parts.SoldOut.SawNone(k, a.GetStockLeft())
	case cq.AdmitOutcome_ADMIT_OUTCOME_THROTTLED:
		s.parts.SoldOut.SawThrottled(k, a.GetStockLeft(), margin)
	case cq.AdmitOutcome_ADMIT_OUTCOME_QUEUE_FULL:
		s.parts.SoldOut.SawFull(k)
	default: // the others have no case of their own: what follows the switch holds
	}
}

// told writes the decision for one customer's call. Whoever joined another's call repeats it.
func (s *Server) told(c *call, d decision, joined bool) reply {
	if d.problem != nil {
		return d.problem.reply()
	}
	outcome := d.answer.GetOutcome()
	accepted := outcome == cq.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED
	if !accepted && outcome != cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED {
		return refusal(d.answer).reply()
	}
	view := d.answer.GetRequest()
	c.about.Reservation, c.about.Order = view.GetReservationId(), view.GetOrderId()
	rep := reply{layer: atHome, code: strings.TrimPrefix(outcome.String(), "ADMIT_OUTCOME_"), status: http.StatusOK}
	if accepted || onItsWay(view.GetState()) {
		rep.status = http.StatusAccepted
		rep.location = statusURL(view.GetCampaignId(), view.GetSkuId(), view.GetRequestId())
	}
	if !accepted || joined {
		rep.replayed = true
	}
	if !accepted {
		s.metrics.repeats.WithLabelValues(repeatReplayed).Inc()
	}
	o := newObject(make([]byte, 0, 640))
	o.request(view, c.lang, c.now)
	rep.body = o.end()
	return rep
}
