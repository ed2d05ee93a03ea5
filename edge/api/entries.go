package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/edge/proxy"
	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/ids"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// tierClaim is the claim of a token that says how many tickets its entry has.
const tierClaim = "tier"

// enterLottery is POST …/entries, without a body. It is taken by the home cell's shard; a repeat answers the same entry,
// also once entry has ended. A 202 says that the customer takes part, and nothing about winning.
func (s *Server) enterLottery(c *call) reply {
	campaign, sku, p := c.lottery()
	if p != nil {
		return p.reply()
	}
	attempt, p := c.retryAttempt()
	if p != nil {
		return p.reply()
	}
	if verdict := campaign.EntryCalendar(c.now); verdict != route.Ended || attempt == 0 { // a repeat's answer may have been lost before the end
		if p := calendar(verdict, campaign.Lottery.EntryOpenAt, c.now); p != nil {
			return p.reply()
		}
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
	home := c.home(campaign)
	if !home.Takes() {
		return at(atRoute, HomeCellUnavailable).reply()
	}
	in := &cq.EnterRequest{CampaignId: string(campaign.ID), SkuId: string(sku.ID), UserId: string(c.who.User), Tier: first(c.who.Values(tierClaim))}
	out, err := once(s, c.lasting(), home.ID, in, doorEnter)
	if err != nil {
		return s.failed(c, atEntry, home.ID, err).reply()
	}
	return s.entered(c, out)
}

// entered gives the cell's answer to an entry.
func (s *Server) entered(c *call, out *cq.EnterResponse) reply {
	switch out.GetOutcome() {
	case cq.EntryOutcome_ENTRY_OUTCOME_ENTERED, cq.EntryOutcome_ENTRY_OUTCOME_REPLAYED:
		return reply{
			layer: atEntry, code: "ENTERED", status: http.StatusAccepted, body: renderEntry(c, out.GetEntry()), location: entryURL(out.GetEntry()),
			replayed: out.GetOutcome() == cq.EntryOutcome_ENTRY_OUTCOME_REPLAYED,
		}
	case cq.EntryOutcome_ENTRY_OUTCOME_NOT_STARTED:
		return at(atEntry, NotStarted).after(time.Duration(out.GetOpensInMs()) * time.Millisecond).reply()
	case cq.EntryOutcome_ENTRY_OUTCOME_ENDED:
		return at(atEntry, Ended).reply()
	case cq.EntryOutcome_ENTRY_OUTCOME_MOVED:
		return at(atEntry, MovedPending).reply()
	default: // a cell that does not know the campaign yet
		return at(atEntry, NotReady).reply()
	}
}

// getEntry is GET …/entries/{entry_id}.
func (s *Server) getEntry(c *call) reply {
	campaign, sku, p := c.lottery()
	if p != nil {
		return p.reply()
	}
	if p := s.identify(c); p != nil {
		return p.reply()
	}
	if p := s.mayAsk(c); p != nil {
		return p.reply()
	}
	id, err := ids.ParseEntry(c.params[2])
	if err != nil {
		return at(atEntry, NotFound).reply()
	}
	cell := c.view.Cell(id.Cell())
	if cell == nil {
		return at(atEntry, NotFound).reply()
	}
	if cell, p = answering(cell); p != nil {
		return p.reply()
	}
	out, err := read(s, c.ctx(), cell.ID, &cq.GetEntryRequest{CampaignId: string(campaign.ID), SkuId: string(sku.ID), UserId: string(c.who.User), EntryId: string(id)}, doorGetEntry)
	if err != nil {
		return s.failed(c, atEntry, cell.ID, err).reply()
	}
	return reply{layer: atEntry, code: "OK", status: http.StatusOK, body: renderEntry(c, out.GetEntry())}
}

// winner refuses the permit of a lottery to whoever has not won; before the draw it says: not yet.
func (s *Server) winner(c *call, campaign *route.Campaign, sku route.SKU) *problem {
	home := c.home(campaign)
	if !home.Answers() {
		return at(atRoute, HomeCellUnavailable)
	}
	out, err := read(s, c.ctx(), home.ID, &cq.GetEntryRequest{CampaignId: string(campaign.ID), SkuId: string(sku.ID), UserId: string(c.who.User)}, doorGetEntry)
	if err != nil {
		if p := s.failed(c, atEligibility, home.ID, err); p.code != NotFound {
			return p
		}
		return at(atEligibility, NotEligible)
	}
	switch out.GetEntry().GetState() {
	case cq.EntryState_ENTRY_STATE_WON:
		return nil
	case cq.EntryState_ENTRY_STATE_ENTERED:
		return at(atEligibility, NotStarted).after(s.drawn(campaign, c.now))
	default:
		return at(atEligibility, NotEligible)
	}
}

// drawn is how long to wait before a draw may have been made: until entry ends, and a little.
func (s *Server) drawn(campaign *route.Campaign, now time.Time) time.Duration {
	const look = 5 * time.Second
	return max(campaign.Lottery.EntryCloseAt.Sub(now), 0) + look
}

// lottery finds the campaign and SKU of the path; one that does not draw has no entries.
func (c *call) lottery() (*route.Campaign, route.SKU, *problem) {
	campaign, sku, p := c.stock()
	if p == nil && campaign.Lottery == nil {
		p = at(atCampaign, NotFound)
	}
	return campaign, sku, p
}

// entryTexts say what a state means to the person who waits for it.
var entryTexts = map[cq.EntryState][2]string{
	cq.EntryState_ENTRY_STATE_ENTERED: {"You take part in the draw. This is not a purchase.", "您已参与抽签，这并不代表已购买。"},
	cq.EntryState_ENTRY_STATE_WON:     {"You were drawn: claim your permit and buy before the sale ends.", "您已中签，请在活动结束前领取资格并下单。"},
	cq.EntryState_ENTRY_STATE_LOST:    {"Others were drawn this time.", "很遗憾，本次未中签。"},
}

func renderEntry(c *call, e *cq.Entry) []byte {
	o := newObject(make([]byte, 0, 384))
	o.str("entry_id", e.GetEntryId())
	o.str("state", strings.TrimPrefix(e.GetState().String(), "ENTRY_STATE_"))
	o.str("message", entryTexts[e.GetState()][c.lang])
	o.int("tickets", int64(e.GetTickets()))
	o.time("entered_at", time.UnixMilli(e.GetEnteredAtMs()))
	o.str("status_url", entryURL(e))
	return o.end()
}

func entryURL(e *cq.Entry) string {
	return "/v1/campaigns/" + e.GetCampaignId() + "/skus/" + e.GetSkuId() + "/entries/" + e.GetEntryId()
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func doorEnter(d proxy.Door) func(context.Context, *cq.EnterRequest, ...grpc.CallOption) (*cq.EnterResponse, error) {
	return d.Entries.Enter
}

func doorGetEntry(d proxy.Door) func(context.Context, *cq.GetEntryRequest, ...grpc.CallOption) (*cq.GetEntryResponse, error) {
	return d.Entries.GetEntry
}
