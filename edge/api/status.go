package api

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/cellquota/cellquota/edge/limit"
	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Pauses between two looks of a long poll: doubled, jittered.
const (
	firstLook = 40 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// getRequest is GET …/requests/{id}[?receipt=…&wait=…].
func (s *Server) getRequest(c *call) reply {
	campaign, sku, p := c.stock()
	if p != nil {
		return p.reply()
	}
	if p := s.identify(c); p != nil {
		return p.reply()
	}
	request, err := ids.ParseRequestID(c.params[2])
	if err != nil {
		return at(atStatus, NotFound).reply()
	}
	query := c.r.URL.Query()
	wait, p := s.longest(query.Get("wait"))
	if p != nil {
		return p.reply()
	}
	if p := s.mayAsk(c); p != nil {
		return p.reply()
	}
	receipt := query.Get("receipt")
	where, p := s.trailOf(c, campaign, sku, request, receipt)
	if p != nil {
		return p.reply()
	}
	in := &cq.GetRequestRequest{
		CampaignId: string(campaign.ID), SkuId: string(sku.ID), UserId: string(c.who.User),
		RequestId: string(request), Receipt: receipt,
	}
	view, p := s.lookUntil(c, &where, in, wait)
	if p != nil {
		return p.reply()
	}
	o := newObject(make([]byte, 0, 640))
	o.request(view, c.lang, s.clock.Now())
	return reply{layer: atStatus, code: "OK", status: http.StatusOK, body: o.end()}
}

// longest reads wait: a duration ("2s", "500ms") or milliseconds, cut to the bound.
func (s *Server) longest(text string) (time.Duration, *problem) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		ms, nerr := strconv.ParseInt(text, 10, 32)
		if nerr != nil {
			return 0, at(atBody, InvalidArgument).field("", "wait: must be a duration such as 2s or 500ms, or milliseconds")
		}
		d = time.Duration(ms) * time.Millisecond
	}
	if d < 0 {
		return 0, at(atBody, InvalidArgument).field("", "wait: must not be negative")
	}
	return min(d, s.set.MaxWait), nil
}

// mayAsk is the bound on everything a customer may ask that is not a try.
func (s *Server) mayAsk(c *call) *problem {
	if wait, ok := s.parts.Limits.Ceiling(limit.Other, s.caller(c)); !ok {
		return at(atLimit, RateLimited).after(wait)
	}
	return nil
}

// receiptCell is the cell of a receipt that is this customer's for this request; "" for any other.
// The cell judges the receipt again; here it only says whom to ask.
func (s *Server) receiptCell(c *call, campaign ids.CampaignID, sku ids.SKUID, request ids.RequestID, token string) ids.CellID {
	if token == "" {
		return ""
	}
	r, err := signed.VerifyReceipt(token, s.parts.Receipts.Keys())
	if err != nil || r.User != c.who.User || r.Campaign != campaign || r.SKU != sku || r.Request != request {
		return ""
	}
	return r.Cell
}

func answering(cell *route.Cell) (*route.Cell, *problem) {
	if !cell.Answers() {
		return nil, at(atRoute, HomeCellUnavailable)
	}
	return cell, nil
}

// lookUntil looks, and looks again while the request is on its way and wait lasts. Only so many
// wait at once; whoever comes on top is told the present state.
func (s *Server) lookUntil(c *call, where *trail, in *cq.GetRequestRequest, wait time.Duration) (*cq.RequestView, *problem) {
	view, p := s.look(c.ctx(), c, where, in)
	if p != nil || wait <= 0 || !onItsWay(view.GetState()) || !s.waiters.Enter() {
		return view, p
	}
	defer s.waiters.Leave()
	end := s.clock.Now().Add(wait)
	for pause := firstLook; onItsWay(view.GetState()); pause = min(2*pause, lastLook) {
		left := end.Sub(s.clock.Now())
		if left <= 0 || s.stopping() {
			break
		}
		jittered := pause/2 + rand.N(pause/2)
		if s.clock.Sleep(c.ctx(), min(left, jittered)) != nil {
			break // the client hung up
		}
		next, p := s.look(c.ctx(), c, where, in)
		if p != nil {
			return view, nil // what is known already is better than nothing
		}
		view = next
	}
	return view, nil
}

// stopping reports whether the shutdown has begun.
func (s *Server) stopping() bool {
	select {
	case <-s.parts.Stopping:
		return true
	default:
		return false
	}
}
