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

// listRequests is GET /v1/campaigns/{c}/requests: what the customer's home cell knows of him.
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
	cell, p := answering(c.home(campaign))
	if p != nil {
		return p.reply()
	}
	in := &cq.ListRequestsRequest{CampaignId: string(campaign.ID), UserId: string(c.who.User), PageSize: pageSize}
	out, err := read(s, c.ctx(), cell.ID, in, doorListRequests)
	if err != nil {
		return s.failed(c, atStatus, cell.ID, err).reply()
	}
	o := newObject(make([]byte, 0, 1024))
	views := out.GetRequests()
	o.list("requests", len(views), func(i int, v *object) {
		v.str("campaign_id", views[i].GetCampaignId())
		v.str("sku_id", views[i].GetSkuId())
		v.request(views[i], c.lang, c.now)
	})
	return reply{layer: atStatus, code: "OK", status: http.StatusOK, body: o.end()}
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

// ordersOf asks the customer's cells, some at once, and merges: newest first, at most pageSize.
func (s *Server) ordersOf(c *call) (views []*cq.OrderView, complete bool) {
	cells := homes(c)
	found := make([][]*cq.OrderView, len(cells))
	var missed atomic.Bool
	var group errgroup.Group
	group.SetLimit(fanOut)
	for i, cell := range cells {
		if !c.view.Cell(cell).Answers() {
			missed.Store(true)
			continue
		}
		group.Go(func() error {
			in := &cq.ListOrdersRequest{UserId: string(c.who.User), PageSize: pageSize}
			out, err := read(s, c.ctx(), cell, in, doorListOrders)
			if err != nil {
				s.failed(c, atOrder, cell, err)
				missed.Store(true)
			}
			found[i] = out.GetOrders()
			return nil
		})
	}
	_ = group.Wait() // its functions return nil
	views = slices.Concat(found...)
	slices.SortStableFunc(views, func(a, b *cq.OrderView) int { return cmp.Compare(b.GetCreatedAtMs(), a.GetCreatedAtMs()) })
	return views[:min(len(views), pageSize)], !missed.Load()
}

// homes are the cells that may have orders of the customer, in order of their ids.
func homes(c *call) []ids.CellID {
	var out []ids.CellID
	c.view.Campaigns(func(campaign *route.Campaign) bool {
		domain := ""
		if campaign.HomeRegion {
			domain = c.who.HomeRegion
		}
		if id, ok := campaign.Home(domain, c.who.User); ok && campaign.Stage != route.Hidden && !slices.Contains(out, id) {
			out = append(out, id)
		}
		return true
	})
	slices.Sort(out)
	return out
}

func doorListRequests(d proxy.Door) func(context.Context, *cq.ListRequestsRequest, ...grpc.CallOption) (*cq.ListRequestsResponse, error) {
	return d.Admissions.ListRequests
}

func doorListOrders(d proxy.Door) func(context.Context, *cq.ListOrdersRequest, ...grpc.CallOption) (*cq.ListOrdersResponse, error) {
	return d.Orders.ListOrders
}
