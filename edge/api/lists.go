package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/edge/proxy"
	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/ids"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Bounds of the lists.
const (
	pageSize = 200 // entries asked of one cell, and answered
	fanOut   = 8   // cells asked at once for one customer
)

// listRequests is GET /v1/campaigns/{c}/requests: what the customer's home cell knows of him, and what the
// cells know that had his bucket. complete is false when one of those could not be asked.
func (s *Server) listRequests(c *call) reply {
	campaign, p := c.campaign()
	if p != nil {
		return p.reply()
	}
	if p := s.identify(c); p != nil {
		return p.reply()
	}
	if p := s.mayAsk(c); p != nil {
		return p.reply()
	}
	if p := c.enter(campaign); p != nil {
		return p.reply()
	}
	home, p := answering(c.home(campaign))
	if p != nil {
		return p.reply()
	}
	in := &cq.ListRequestsRequest{CampaignId: string(campaign.ID), UserId: string(c.who.User), PageSize: pageSize}
	out, err := read(s, c.ctx(), home.ID, in, doorListRequests)
	if err != nil {
		return s.failed(c, atStatus, home.ID, err).reply()
	}
	found, complete := gather(s, c, campaign.Elsewhere(c.domain, c.who.User), in, doorListRequests)
	lists := [][]*cq.RequestView{out.GetRequests()}
	for _, one := range found {
		lists = append(lists, one.GetRequests())
	}
	views := newestRequests(lists)
	o := newObject(make([]byte, 0, 1024))
	o.list("requests", len(views), func(i int, v *object) {
		v.str("campaign_id", views[i].GetCampaignId())
		v.str("sku_id", views[i].GetSkuId())
		v.request(views[i], c.lang, c.now)
	})
	o.bool("complete", complete)
	return reply{layer: atStatus, code: "OK", status: http.StatusOK, body: o.end()}
}

// newestRequests merges lists, that of the home first: a request that several have tells what the first of
// them says, but a rejection gives way to anything else. Newest first, at most pageSize.
func newestRequests(lists [][]*cq.RequestView) []*cq.RequestView {
	type key struct{ sku, request string }
	at := map[key]int{}
	var out []*cq.RequestView
	for _, v := range slices.Concat(lists...) {
		k := key{v.GetSkuId(), v.GetRequestId()}
		i, known := at[k]
		switch {
		case !known:
			at[k] = len(out)
			out = append(out, v)
		case rejected(out[i]) && !rejected(v):
			out[i] = v
		}
	}
	slices.SortStableFunc(out, func(a, b *cq.RequestView) int { return cmp.Compare(b.GetAdmittedAtMs(), a.GetAdmittedAtMs()) })
	return out[:min(len(out), pageSize)]
}

// listOrders is GET /v1/orders: the orders of every cell that is the customer's home in some
// campaign. complete is false when one of them could not be asked, so that a missing order is never
// mistaken for none.
func (s *Server) listOrders(c *call) reply {
	if c.view == nil {
		return at(atCampaign, NotReady).reply()
	}
	if p := s.identify(c); p != nil {
		return p.reply()
	}
	if p := s.mayAsk(c); p != nil {
		return p.reply()
	}
	views, complete := s.ordersOf(c)
	o := newObject(make([]byte, 0, 1024))
	o.list("orders", len(views), func(i int, v *object) { v.order(views[i], c.lang, c.now) })
	o.bool("complete", complete)
	return reply{layer: atOrder, code: "OK", status: http.StatusOK, body: o.end()}
}

// ordersOf asks the customer's cells and merges: newest first, at most pageSize.
func (s *Server) ordersOf(c *call) (views []*cq.OrderView, complete bool) {
	in := &cq.ListOrdersRequest{UserId: string(c.who.User), PageSize: pageSize}
	found, complete := gather(s, c, whereabouts(c), in, doorListOrders)
	for _, one := range found {
		views = append(views, one.GetOrders()...)
	}
	slices.SortStableFunc(views, func(a, b *cq.OrderView) int { return cmp.Compare(b.GetCreatedAtMs(), a.GetCreatedAtMs()) })
	return views[:min(len(views), pageSize)], complete
}

// gather asks cells the same, some at once; complete is false when one could not be asked.
func gather[In, Out any](s *Server, c *call, cells []ids.CellID, in In, d door[In, Out]) (found []Out, complete bool) {
	found = make([]Out, len(cells))
	var missed atomic.Bool
	var group errgroup.Group
	group.SetLimit(fanOut)
	for i, id := range cells {
		if !c.view.Cell(id).Answers() {
			missed.Store(true)
			continue
		}
		group.Go(func() error {
			out, err := read(s, c.ctx(), id, in, d)
			if err != nil {
				s.failed(c, atStatus, id, err)
				missed.Store(true)
				return nil
			}
			found[i] = out
			return nil
		})
	}
	_ = group.Wait() // its functions return nil
	return found, !missed.Load()
}

// whereabouts are the cells that may have orders of the customer, in order of their ids.
func whereabouts(c *call) []ids.CellID {
	var out []ids.CellID
	c.view.Campaigns(func(campaign *route.Campaign) bool {
		domain := ""
		if campaign.HomeRegion {
			domain = c.who.HomeRegion
		}
		if id, ok := campaign.Home(domain, c.who.User); ok && campaign.Stage != route.Hidden {
			out = append(append(out, id), campaign.Elsewhere(domain, c.who.User)...)
		}
		return true
	})
	slices.Sort(out)
	return slices.Compact(out)
}

func doorListRequests(d proxy.Door) func(context.Context, *cq.ListRequestsRequest, ...grpc.CallOption) (*cq.ListRequestsResponse, error) {
	return d.Admissions.ListRequests
}

func doorListOrders(d proxy.Door) func(context.Context, *cq.ListOrdersRequest, ...grpc.CallOption) (*cq.ListOrdersResponse, error) {
	return d.Orders.ListOrders
}
