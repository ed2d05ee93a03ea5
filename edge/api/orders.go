package api

import (
	"context"
	"net/http"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/edge/proxy"
	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/ids"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ownOrder identifies the caller and finds the order of the path and the cell that has it: ids
// route themselves. An id that nobody could have been given is not found.
func (s *Server) ownOrder(c *call) (ids.OrderID, *route.Cell, *problem) {
	if c.view == nil {
		return "", nil, at(atCampaign, NotReady)
	}
	if p := s.identify(c); p != nil {
		return "", nil, p
	}
	if p := s.mayAsk(c); p != nil {
		return "", nil, p
	}
	id, err := ids.ParseOrder(c.params[0])
	if err != nil {
		return "", nil, at(atOrder, NotFound)
	}
	c.about.Order = string(id)
	cell := c.view.Cell(id.Cell())
	if cell == nil {
		return "", nil, at(atOrder, NotFound)
	}
	cell, p := answering(cell)
	return id, cell, p
}

// getOrder is GET /v1/orders/{order_id}.
func (s *Server) getOrder(c *call) reply {
	id, cell, p := s.ownOrder(c)
	if p != nil {
		return p.reply()
	}
	out, err := read(s, c.ctx(), cell.ID, &cq.GetOrderRequest{OrderId: string(id), UserId: string(c.who.User)}, doorGetOrder)
	if err != nil {
		return s.failed(c, atOrder, cell.ID, err).reply()
	}
	return s.oneOrder(c, out.GetOrder())
}

// cancelOrder is POST /v1/orders/{order_id}/cancel; a repeat answers the same order.
func (s *Server) cancelOrder(c *call) reply {
	id, cell, p := s.ownOrder(c)
	if p != nil {
		return p.reply()
	}
	if p := c.empty(); p != nil {
		return p.reply()
	}
	in := &cq.CancelOrderRequest{OrderId: string(id), UserId: string(c.who.User)}
	out, err := once(s, c.lasting(), cell.ID, in, doorCancelOrder)
	if err != nil {
		return s.failed(c, atOrder, cell.ID, err).reply()
	}
	return s.oneOrder(c, out.GetOrder())
}

func (s *Server) oneOrder(c *call, v *cq.OrderView) reply {
	o := newObject(make([]byte, 0, 640))
	o.order(v, c.lang, s.clock.Now())
	return reply{layer: atOrder, code: "OK", status: http.StatusOK, body: o.end()}
}

// startPayment is POST /v1/orders/{order_id}/payments; a repeat answers the same attempt.
func (s *Server) startPayment(c *call) reply {
	id, cell, p := s.ownOrder(c)
	if p != nil {
		return p.reply()
	}
	var body struct {
		PaymentID string `json:"payment_id"`
	}
	if p := c.decode(&body); p != nil {
		return p.reply()
	}
	payment, err := ids.ParsePaymentID(body.PaymentID)
	if err != nil {
		return at(atBody, InvalidArgument).field("/payment_id", rule(err)).reply()
	}
	c.about.Payment = string(payment)
	in := &cq.StartPaymentRequest{OrderId: string(id), UserId: string(c.who.User), PaymentId: string(payment)}
	out, err := once(s, c.lasting(), cell.ID, in, doorStartPayment)
	if err != nil {
		return s.failed(c, atPayment, cell.ID, err).reply()
	}
	o := newObject(make([]byte, 0, 256))
	o.str("payment_id", out.GetPaymentId())
	o.str("amount", out.GetTotal().GetAmount())
	o.str("currency", out.GetTotal().GetCurrency())
	o.optMs("expires_at", out.GetExpiresAtMs())
	return reply{layer: atPayment, code: "STARTED", status: http.StatusCreated, body: o.end()}
}

func doorGetOrder(d proxy.Door) func(context.Context, *cq.GetOrderRequest, ...grpc.CallOption) (*cq.GetOrderResponse, error) {
	return d.Orders.GetOrder
}

func doorCancelOrder(d proxy.Door) func(context.Context, *cq.CancelOrderRequest, ...grpc.CallOption) (*cq.CancelOrderResponse, error) {
	return d.Orders.CancelOrder
}

func doorStartPayment(d proxy.Door) func(context.Context, *cq.StartPaymentRequest, ...grpc.CallOption) (*cq.StartPaymentResponse, error) {
	return d.Orders.StartPayment
}
