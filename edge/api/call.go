package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/cellquota/cellquota/edge/identity"
	"github.com/cellquota/cellquota/edge/limit"
	"github.com/cellquota/cellquota/edge/risk"
	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/edge/routes"
	"github.com/cellquota/cellquota/internal/ids"
)

// call is one HTTP call on its way through the layers. It belongs to one goroutine.
type call struct {
	w       http.ResponseWriter
	r       *http.Request
	within  context.Context //nolint:containedctx // the call's own, with its span; it lives as long as the call
	params  params
	now     time.Time
	lang    Lang
	traceID string
	view    *routes.Snapshot
	who     *identity.Identity // after identify
	domain  string             // after enter
	request string             // its request id, once it is checked
	tier    string             // risk tier, after identify
	about   risk.Event         // what a handler knows of it, for the judge
}

// ctx ends with the call or with its client.
func (c *call) ctx() context.Context { return c.within }

// lasting carries the call's trace but does not end when the client hangs up: what was begun in its
// name is carried through (K58).
func (c *call) lasting() context.Context { return context.WithoutCancel(c.within) }

// campaign finds the campaign of the first path parameter.
func (c *call) campaign() (*route.Campaign, *problem) {
	if c.view == nil {
		return nil, at(atCampaign, NotReady)
	}
	id, err := ids.ParseCampaignID(c.params[0])
	if err != nil {
		return nil, at(atCampaign, NotFound)
	}
	found, ok := c.view.Campaign(id)
	if !ok || found.Stage == route.Hidden {
		return nil, at(atCampaign, NotFound)
	}
	return found, nil
}

// stock finds the campaign and the SKU of the first two path parameters.
func (c *call) stock() (*route.Campaign, route.SKU, *problem) {
	found, p := c.campaign()
	if p != nil {
		return nil, route.SKU{}, p
	}
	id, err := ids.ParseSKUID(c.params[1])
	if err != nil {
		return nil, route.SKU{}, at(atCampaign, NotFound)
	}
	sku, ok := found.SKU(id)
	if !ok {
		return nil, route.SKU{}, at(atCampaign, NotFound)
	}
	return found, sku, nil
}

// identify verifies the bearer token.
func (s *Server) identify(c *call) *problem {
	values := c.r.Header["Authorization"]
	if len(values) != 1 {
		c.w.Header().Set("WWW-Authenticate", "Bearer")
		return at(atIdentity, Unauthenticated)
	}
	who, err := s.parts.Identity.Verify(values[0])
	switch {
	case err == nil:
		c.who, c.tier = who, s.parts.Risk.Tier(string(who.User), who.DeviceID, who.RiskTier)
		return nil
	case errors.Is(err, identity.ErrNoKeys):
		return at(atIdentity, NotReady)
	case errors.Is(err, identity.ErrInvalid):
		return at(atIdentity, InvalidArgument).field("", err.Error())
	default:
		c.w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		return at(atIdentity, Unauthenticated)
	}
}

// enter finds the customer's traffic domain.
func (c *call) enter(campaign *route.Campaign) *problem {
	domain, verdict := campaign.DomainOf(c.who.HomeRegion, c.who.Since)
	switch verdict {
	case route.RegionRequired:
		return at(atEligibility, HomeRegionRequired)
	case route.RegionChanged:
		return at(atEligibility, HomeRegionChanged)
	default:
		c.domain = domain
		return nil
	}
}

// home is the customer's home cell in the campaign, whatever it can do now. nil: the map names a
// cell that is gone.
func (c *call) home(campaign *route.Campaign) *route.Cell {
	id, _ := campaign.Home(c.domain, c.who.User) // the domain was looked up in enter
	return c.view.Cell(id)
}

// caller is who the limits count.
func (s *Server) caller(c *call) limit.Caller {
	return limit.Caller{
		User: string(c.who.User), Device: c.who.DeviceID, Network: s.parts.Networks.Of(c.r), Claims: c.who.Values,
	}
}

// calendar turns a verdict of the calendar into its refusal; nil: go on.
func calendar(v route.Calendar, opens time.Time, now time.Time) *problem {
	switch v {
	case route.NotStarted:
		return at(atCampaign, NotStarted).after(opens.Sub(now))
	case route.Ended:
		return at(atCampaign, Ended)
	case route.OnHold:
		return at(atCampaign, Paused)
	case route.SoldOut:
		return at(atCampaign, FinalSoldOut)
	default:
		return nil
	}
}

// maxRetryAttempt bounds the header; a client that counts higher has lost count.
const maxRetryAttempt = 1_000_000

// retryAttempt reads the header: 0 for a first attempt.
func (c *call) retryAttempt() (int32, *problem) {
	values := c.r.Header["Retry-Attempt"]
	if len(values) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseInt(values[0], 10, 32)
	if len(values) > 1 || err != nil || n < 1 || n > maxRetryAttempt {
		return 0, at(atBody, InvalidArgument).field("", "Retry-Attempt: must be one integer from 1 to 1000000")
	}
	return int32(n), nil
}

// traceparent is the call's W3C context for the ask that is made for it.
func traceparent(ctx context.Context) string {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return ""
	}
	const version, dash = "00", '-'
	b := make([]byte, 0, 55)
	b = append(append(b, version...), dash)
	b = append(append(b, sc.TraceID().String()...), dash)
	b = append(append(b, sc.SpanID().String()...), dash)
	if sc.IsSampled() {
		return string(append(b, "01"...))
	}
	return string(append(b, "00"...))
}
