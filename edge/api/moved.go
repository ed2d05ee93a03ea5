package api

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/ids"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Requests, orders and payments stay with the cell that has them when their user's bucket is handed over:
// an id leads to its cell, and what no id names is looked for at home first, then where the bucket was.

// trail is where a customer's request may be.
type trail struct {
	first ids.CellID   // of a valid receipt, else his home
	home  ids.CellID   // "" when only the receipt leads anywhere
	more  []ids.CellID // where his bucket was, or is going; asked when home knows nothing
}

// trailOf is where to look for a request. The receipt's cell comes first: it knows what it accepted.
func (s *Server) trailOf(c *call, campaign *route.Campaign, sku route.SKU, request ids.RequestID, receipt string) (trail, *problem) {
	t := trail{first: s.receiptCell(c, campaign.ID, sku.ID, request, receipt)}
	if p := c.enter(campaign); p != nil {
		if t.first == "" {
			return t, p
		}
		return t, nil
	}
	t.home, _ = campaign.Home(c.domain, c.who.User)
	t.more = campaign.Elsewhere(c.domain, c.who.User)
	if t.first == "" {
		t.first = t.home
	}
	return t, nil
}

// look finds what became of a request. Only the "no" of every cell that may have it is NOT_FOUND: one that
// cannot be asked is 503. The attempt at home stands before those elsewhere, unless they have more than a
// rejection.
func (s *Server) look(ctx context.Context, c *call, t *trail, in *cq.GetRequestRequest) (*cq.RequestView, *problem) {
	view, p := s.lookAt(ctx, c, t.first, in)
	if p == nil && (t.first == t.home || t.home == "" || !rejected(view)) {
		return s.present(ctx, c, t.first, view), nil
	}
	if t.first != t.home {
		if t.home == "" {
			return nil, p
		}
		return s.lookHome(ctx, c, t, in, view, p)
	}
	return s.lookElsewhere(ctx, c, t, in, p)
}

// lookHome asks the home whether it has a later attempt than the one that the receipt's cell rejected or
// cannot tell of.
func (s *Server) lookHome(ctx context.Context, c *call, t *trail, in *cq.GetRequestRequest, view *cq.RequestView, p *problem) (*cq.RequestView, *problem) {
	bare := proto.Clone(in).(*cq.GetRequestRequest) //nolint:forcetypeassert // a clone has its type
	bare.Receipt = ""                               // it is another cell's
	if later, hp := s.lookAt(ctx, c, t.home, bare); hp == nil {
		return s.present(ctx, c, t.home, later), nil
	}
	return view, p
}

// lookElsewhere asks, one after the other, the cells that had the customer's bucket. A rejection because
// of the handover itself counts only once home knows nothing.
func (s *Server) lookElsewhere(ctx context.Context, c *call, t *trail, in *cq.GetRequestRequest, home *problem) (*cq.RequestView, *problem) {
	var moved *cq.RequestView
	silent := home
	if home.code == NotFound {
		silent = nil
	}
	for _, cell := range t.more {
		if c.view.Cell(cell).Lost() {
			continue
		}
		view, p := s.lookAt(ctx, c, cell, in)
		switch {
		case p == nil && hasMoved(view):
			moved = view
		case p == nil:
			return s.present(ctx, c, cell, view), nil
		case p.code != NotFound && silent == nil:
			silent = p
		}
	}
	switch {
	case silent != nil:
		return nil, silent
	case moved != nil:
		return moved, nil
	default:
		return nil, home
	}
}

// lookAt asks one cell, and once more another of its processes if the first is gone.
func (s *Server) lookAt(ctx context.Context, c *call, cell ids.CellID, in *cq.GetRequestRequest) (*cq.RequestView, *problem) {
	if _, p := answering(c.view.Cell(cell)); p != nil {
		return nil, p
	}
	out, err := read(s, ctx, cell, in, doorGetRequest)
	if err != nil {
		return nil, s.failed(c, atStatus, cell, err) //nolint:contextcheck // the call carries its own
	}
	return out.GetRequest(), nil
}

// present is a request as the cell that its id names has it now. A cell that took over a bucket knows what
// came with it, which may be old; where the other one cannot be asked that is what is told.
func (s *Server) present(ctx context.Context, c *call, told ids.CellID, view *cq.RequestView) *cq.RequestView {
	cell := ids.ReservationID(view.GetReservationId()).Cell()
	if cell == "" || cell == told || settledView(view) {
		return view
	}
	now, p := s.lookAt(ctx, c, cell, &cq.GetRequestRequest{
		CampaignId: view.GetCampaignId(), SkuId: view.GetSkuId(), UserId: string(c.who.User), RequestId: view.GetRequestId(),
	})
	if p != nil {
		return view
	}
	return now
}

// carried completes the answer of a home cell by what the cell has whose reservation came with the
// customer's bucket (architecture §5). Where that one cannot be asked the home's word stands:
// ALREADY_RESERVED.
func (s *Server) carried(c *call, home ids.CellID, a *cq.Answer) *cq.Answer {
	held := ids.ReservationID(a.GetRequest().GetReservationId())
	cell := held.Cell()
	if cell == "" || cell == home {
		return a
	}
	switch a.GetOutcome() {
	case cq.AdmitOutcome_ADMIT_OUTCOME_REPLAYED:
		a.Request = s.present(c.lasting(), c, home, a.GetRequest())
	case cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED:
		if _, p := answering(c.view.Cell(cell)); p != nil {
			return a
		}
		in := &cq.GetOrderRequest{OrderId: string(held.Order()), UserId: string(c.who.User)}
		out, err := read(s, c.lasting(), cell, in, doorGetOrder)
		if err != nil {
			return a
		}
		order := out.GetOrder()
		a.Outcome = holds[order.GetState()]
		a.Request = &cq.RequestView{RequestId: order.GetRequestId(), CampaignId: order.GetCampaignId(), SkuId: order.GetSkuId(), OrderId: order.GetOrderId()}
	default: // the others have no case of their own: what follows the switch holds
	}
	return a
}

// holds is what a customer is told who has such an order already.
var holds = map[cq.OrderState]cq.AdmitOutcome{
	cq.OrderState_ORDER_STATE_UNSPECIFIED:     cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED,
	cq.OrderState_ORDER_STATE_PENDING_PAYMENT: cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED,
	cq.OrderState_ORDER_STATE_PAID:            cq.AdmitOutcome_ADMIT_OUTCOME_ALREADY_PURCHASED,
	cq.OrderState_ORDER_STATE_CLOSED:          cq.AdmitOutcome_ADMIT_OUTCOME_ORDER_CLOSED,
}

func rejected(v *cq.RequestView) bool {
	return v.GetState() == cq.RequestState_REQUEST_STATE_REJECTED
}

// hasMoved: the attempt came too late for a cell that gave its bucket away. It is not final.
func hasMoved(v *cq.RequestView) bool {
	return rejected(v) && v.GetReason() == cq.Reason_REASON_MOVED
}

// settledView: nothing about the request changes any more.
func settledView(v *cq.RequestView) bool {
	switch v.GetState() {
	case cq.RequestState_REQUEST_STATE_REJECTED, cq.RequestState_REQUEST_STATE_RELEASED,
		cq.RequestState_REQUEST_STATE_PAID, cq.RequestState_REQUEST_STATE_CLOSED:
		return true
	default:
		return false
	}
}
