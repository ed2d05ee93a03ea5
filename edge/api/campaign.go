package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/edge/soldout"
)

// maxFresh bounds how long what GET of a campaign says may be kept by a cache.
const maxFresh = 2 * time.Second

// States of a SKU as everybody may see them.
const (
	skuNotStarted   = "NOT_STARTED"
	skuOpen         = "OPEN"
	skuBusy         = "BUSY"
	skuTempSoldOut  = "TEMP_SOLD_OUT"
	skuFinalSoldOut = "FINAL_SOLD_OUT"
	skuPaused       = "PAUSED"
	skuEnded        = "ENDED"
)

// getCampaign is GET /v1/campaigns/{c}: no user, no stock numbers, cacheable.
func (s *Server) getCampaign(c *call) reply {
	campaign, p := c.campaign()
	if p != nil {
		return p.reply()
	}
	o := newObject(make([]byte, 0, 512))
	o.time("server_time", c.now)
	o.time("open_at", campaign.OpenAt)
	o.time("close_at", campaign.CloseAt)
	o.int("version", campaign.Version)
	display := campaign.Display
	if display == nil {
		display = []byte("{}")
	}
	o.raw("display", display)
	if l := campaign.Lottery; l != nil {
		o.raw("lottery", lotteryOf(l))
	}
	o.list("skus", len(campaign.SKUs), func(i int, sku *object) {
		sku.str("sku_id", string(campaign.SKUs[i].ID))
		sku.str("state", s.skuState(c, campaign, campaign.SKUs[i]))
	})
	return reply{layer: atCampaign, code: "OK", status: http.StatusOK, body: o.end(), cache: freshness(campaign, c.now)}
}

// lotteryOf is what anybody may hold the draw against later.
func lotteryOf(l *route.Lottery) []byte {
	o := newObject(make([]byte, 0, 192))
	o.time("entry_open_at", l.EntryOpenAt)
	o.time("entry_close_at", l.EntryCloseAt)
	o.str("commitment", l.Commitment)
	return o.end()
}

// skuState sums up what is known of a SKU. Cells are looked at only where the calendar says
// nothing: it is open while any cell that can be reached may have a unit.
func (s *Server) skuState(c *call, campaign *route.Campaign, sku route.SKU) string {
	switch campaign.RequestCalendar(sku, c.now) {
	case route.NotStarted:
		return skuNotStarted
	case route.Ended:
		return skuEnded
	case route.OnHold:
		return skuPaused
	case route.SoldOut:
		return skuFinalSoldOut
	default: // the others have no case of their own: what follows the switch holds
	}
	state := skuPaused // until a cell that admits is found
	for _, id := range campaign.Cells() {
		if !c.view.Cell(id).Takes() {
			continue
		}
		switch s.parts.SoldOut.See(soldout.Key{Campaign: campaign.ID, SKU: sku.ID, Cell: id}) {
		case soldout.Nothing:
			return skuOpen
		case soldout.Full:
			state = skuBusy
		case soldout.Empty:
			if state != skuBusy {
				state = skuTempSoldOut
			}
		}
	}
	return state
}

// freshness is the answer's Cache-Control: whole seconds, never past the next boundary.
func freshness(campaign *route.Campaign, now time.Time) string {
	fresh := maxFresh
	if next, ok := campaign.NextBoundary(now); ok {
		fresh = min(fresh, next)
	}
	seconds := int64(fresh / time.Second)
	if seconds < 1 {
		return "no-cache"
	}
	return "public, max-age=" + strconv.FormatInt(seconds, 10)
}
