package celltest

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Refusals of the order service, under the reasons that the real cell sends.
var (
	ErrOrderPaid         = errors.New("order is paid")
	ErrOrderClosed       = errors.New("order is closed")
	ErrOrderUnknown      = errors.New("order is unknown")
	ErrPaymentInProgress = errors.New("a payment is in progress")
	ErrPaymentMismatch   = errors.New("the payment does not match")
	ErrFenced            = errors.New("fenced")
)

// Kinds are those refusals as rows of the status table; a test registers them once.
func Kinds() []rpcstatus.Kind {
	return []rpcstatus.Kind{
		{Err: ErrOrderPaid, Code: codes.FailedPrecondition, Reason: "ORDER_PAID"},
		{Err: ErrOrderClosed, Code: codes.FailedPrecondition, Reason: "ORDER_CLOSED"},
		{Err: ErrOrderUnknown, Code: codes.NotFound, Reason: "ORDER_UNKNOWN"},
		{Err: ErrPaymentInProgress, Code: codes.FailedPrecondition, Reason: "PAYMENT_IN_PROGRESS"},
		{Err: ErrPaymentMismatch, Code: codes.FailedPrecondition, Reason: "PAYMENT_MISMATCH"},
		{Err: ErrFenced, Code: codes.FailedPrecondition, Reason: "FENCED"},
	}
}

type order struct {
	view    *cq.OrderView
	request string
}

// MakeOrder turns an accepted request into an order that waits for payment, as the consumer would.
func (c *Cell) MakeOrder(campaign, sku, user, request string) (orderID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key(campaign, sku, user, request)
	v := c.requests[k]
	id := string(ids.ReservationID(v.GetReservationId()).Order())
	expires := clock.System().Now().Add(15 * time.Minute).UnixMilli()
	v.State, v.OrderId, v.ExpiresAtMs = cq.RequestState_REQUEST_STATE_PENDING_PAYMENT, id, expires
	c.orders[id] = &order{request: k, view: &cq.OrderView{
		OrderId: id, ReservationId: v.GetReservationId(), RequestId: request, CampaignId: campaign, SkuId: sku, UserId: user,
		Quantity: v.GetQuantity(), Total: &cq.Money{Amount: "4999.00", Currency: "CNY"},
		State: cq.OrderState_ORDER_STATE_PENDING_PAYMENT, Version: 1, CreatedAtMs: clock.System().Now().UnixMilli(), ExpiresAtMs: expires,
	}}
	return id
}

// own is a user's order, or not found.
func (c *Cell) own(id, user string) (*order, error) {
	if c.callErr != nil {
		return nil, c.callErr
	}
	o, ok := c.orders[id]
	if !ok || o.view.GetUserId() != user {
		return nil, rpcstatus.ErrNotFound
	}
	return o, nil
}

func (o *order) clone() *cq.OrderView {
	return proto.Clone(o.view).(*cq.OrderView) //nolint:forcetypeassert // a clone has its type
}

// GetOrder implements the service.
func (c *Cell) GetOrder(_ context.Context, in *cq.GetOrderRequest) (*cq.GetOrderResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, err := c.own(in.GetOrderId(), in.GetUserId())
	if err != nil {
		return nil, err
	}
	return &cq.GetOrderResponse{Order: o.clone()}, nil
}

// ListOrders implements the service.
func (c *Cell) ListOrders(_ context.Context, in *cq.ListOrdersRequest) (*cq.ListOrdersResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.callErr != nil {
		return nil, c.callErr
	}
	var out cq.ListOrdersResponse
	for _, o := range c.orders {
		if o.view.GetUserId() == in.GetUserId() {
			out.Orders = append(out.Orders, o.clone())
		}
	}
	return &out, nil
}

// CancelOrder implements the service.
func (c *Cell) CancelOrder(_ context.Context, in *cq.CancelOrderRequest) (*cq.CancelOrderResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, err := c.own(in.GetOrderId(), in.GetUserId())
	switch {
	case err != nil:
		return nil, err
	case o.view.GetState() == cq.OrderState_ORDER_STATE_PAID:
		return nil, ErrOrderPaid
	case o.view.GetPaymentState() == cq.PaymentState_PAYMENT_STATE_INITIATED:
		return nil, ErrPaymentInProgress
	}
	if o.view.GetState() != cq.OrderState_ORDER_STATE_CLOSED {
		o.view.State, o.view.Reason, o.view.ClosedAtMs = cq.OrderState_ORDER_STATE_CLOSED, cq.Reason_REASON_CANCELLED, clock.System().Now().UnixMilli()
		c.requests[o.request].State = cq.RequestState_REQUEST_STATE_CLOSED
		c.requests[o.request].Reason = cq.Reason_REASON_CANCELLED
	}
	return &cq.CancelOrderResponse{Order: o.clone()}, nil
}

// StartPayment implements the service.
func (c *Cell) StartPayment(_ context.Context, in *cq.StartPaymentRequest) (*cq.StartPaymentResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, err := c.own(in.GetOrderId(), in.GetUserId())
	switch {
	case err != nil:
		return nil, err
	case o.view.GetState() == cq.OrderState_ORDER_STATE_PAID:
		return nil, ErrOrderPaid
	case o.view.GetState() == cq.OrderState_ORDER_STATE_CLOSED:
		return nil, ErrOrderClosed
	}
	o.view.PaymentState = cq.PaymentState_PAYMENT_STATE_INITIATED
	return &cq.StartPaymentResponse{
		PaymentId: in.GetPaymentId(), Total: o.view.GetTotal(), ExpiresAtMs: o.view.GetExpiresAtMs(),
		PaymentState: o.view.GetPaymentState(),
	}, nil
}

// ApplyPaymentCallback implements the service.
func (c *Cell) ApplyPaymentCallback(_ context.Context, in *cq.ApplyPaymentCallbackRequest) (*cq.ApplyPaymentCallbackResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.callErr != nil {
		return nil, c.callErr
	}
	o, ok := c.orders[in.GetOrderId()]
	switch {
	case !ok:
		return nil, ErrOrderUnknown
	case in.GetAmount().GetAmount() != o.view.GetTotal().GetAmount() || in.GetAmount().GetCurrency() != o.view.GetTotal().GetCurrency():
		return nil, ErrPaymentMismatch
	}
	switch in.GetStatus() {
	case cq.CallbackStatus_CALLBACK_STATUS_SUCCEEDED:
		o.view.State, o.view.PaymentState = cq.OrderState_ORDER_STATE_PAID, cq.PaymentState_PAYMENT_STATE_SUCCEEDED
		c.requests[o.request].State = cq.RequestState_REQUEST_STATE_PAID
	case cq.CallbackStatus_CALLBACK_STATUS_FAILED:
		o.view.PaymentState = cq.PaymentState_PAYMENT_STATE_FAILED
	case cq.CallbackStatus_CALLBACK_STATUS_PENDING:
		o.view.PaymentState = cq.PaymentState_PAYMENT_STATE_UNKNOWN
	case cq.CallbackStatus_CALLBACK_STATUS_REFUNDED:
		o.view.PaymentState = cq.PaymentState_PAYMENT_STATE_REFUNDED
	default: // the others have no case of their own: what follows the switch holds
	}
	return &cq.ApplyPaymentCallbackResponse{OrderId: in.GetOrderId(), OrderState: o.view.GetState(), PaymentState: o.view.GetPaymentState()}, nil
}
