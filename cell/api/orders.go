package api

import (
	"context"
	"errors"
	"time"

	"github.com/cellquota/cellquota/cell/payment"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/status"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// GetOrder implements OrderService.
func (s *Server) GetOrder(ctx context.Context, in *pb.GetOrderRequest) (*pb.GetOrderResponse, error) {
	order, user, err := s.whose(in.GetOrderId(), in.GetUserId())
	if err != nil {
		return nil, err
	}
	o, err := s.Orders.GetOrder(ctx, order, user)
	if err != nil {
		return nil, translate(err)
	}
	return &pb.GetOrderResponse{Order: renderOrder(o)}, nil
}

// ListOrders implements OrderService.
func (s *Server) ListOrders(ctx context.Context, in *pb.ListOrdersRequest) (*pb.ListOrdersResponse, error) {
	var bad violations
	user, limit := parse(&bad, ids.ParseUserID, in.GetUserId()), page(&bad, in.GetPageSize())
	if err := bad.err(); err != nil {
		return nil, err
	}
	orders, err := s.Orders.ListOrders(ctx, user, limit)
	if err != nil {
		return nil, translate(err)
	}
	out := &pb.ListOrdersResponse{}
	for _, o := range orders {
		out.Orders = append(out.Orders, renderOrder(o))
	}
	return out, nil
}

// CancelOrder implements OrderService.
func (s *Server) CancelOrder(ctx context.Context, in *pb.CancelOrderRequest) (*pb.CancelOrderResponse, error) {
	order, user, err := s.whose(in.GetOrderId(), in.GetUserId())
	if err != nil {
		return nil, err
	}
	o, err := s.Payments.Cancel(ctx, order, user)
	if err != nil {
		return nil, translate(err)
	}
	return &pb.CancelOrderResponse{Order: renderOrder(o)}, nil
}

// StartPayment implements OrderService.
func (s *Server) StartPayment(ctx context.Context, in *pb.StartPaymentRequest) (*pb.StartPaymentResponse, error) {
	var bad violations
	id := parse(&bad, ids.ParsePaymentID, in.GetPaymentId())
	order, user, err := s.whose(in.GetOrderId(), in.GetUserId())
	if err := errors.Join(bad.err(), err); err != nil {
		return nil, err
	}
	attempt, err := s.Payments.Start(ctx, order, user, id)
	if err != nil {
		return nil, translate(err)
	}
	return &pb.StartPaymentResponse{
		PaymentId: string(attempt.Payment), Total: &pb.Money{Amount: attempt.Total.Amount(), Currency: attempt.Total.Currency},
		ExpiresAtMs: attempt.ExpiresAt.UnixMilli(), PaymentState: paymentState(attempt.State),
	}, nil
}

// callbackWords are the channel's words as package payment has them.
var callbackWords = map[pb.CallbackStatus]payment.Status{
	pb.CallbackStatus_CALLBACK_STATUS_SUCCEEDED: payment.Succeeded,
	pb.CallbackStatus_CALLBACK_STATUS_FAILED:    payment.Failed,
	pb.CallbackStatus_CALLBACK_STATUS_PENDING:   payment.Pending,
	pb.CallbackStatus_CALLBACK_STATUS_REFUNDED:  payment.Refunded,
}

// ApplyPaymentCallback implements OrderService. The edge has verified the signature.
func (s *Server) ApplyPaymentCallback(ctx context.Context, in *pb.ApplyPaymentCallbackRequest) (*pb.ApplyPaymentCallbackResponse, error) {
	c, err := readCallback(in)
	if err != nil {
		return nil, err
	}
	if c.Order.Cell() != s.set.Cell {
		return nil, shard.ErrOrderUnknown
	}
	out, err := s.Payments.Callback(ctx, c)
	if err != nil {
		return nil, translate(err)
	}
	return &pb.ApplyPaymentCallbackResponse{
		OrderId: in.GetOrderId(), OrderState: orderState(out.Order), PaymentState: paymentState(out.Payment),
	}, nil
}

func readCallback(in *pb.ApplyPaymentCallbackRequest) (payment.Callback, error) {
	var bad violations
	c := payment.Callback{
		Order: parse(&bad, ids.ParseOrder, in.GetOrderId()), Payment: parse(&bad, ids.ParsePaymentID, in.GetPaymentId()),
		Status: callbackWords[in.GetStatus()], RefundID: in.GetRefundId(),
	}
	if c.Status == "" {
		bad.add("status", "must be SUCCEEDED, FAILED, PENDING or REFUNDED")
	}
	if c.RefundID != "" {
		if _, err := ids.ParsePaymentID(c.RefundID); err != nil {
			bad.add("refund_id", "must be [A-Za-z0-9._:-]{1,128}")
		}
	}
	var err error
	if c.Amount, err = reservation.ParseMoney(in.GetAmount().GetAmount(), in.GetAmount().GetCurrency()); err != nil {
		bad.add("amount", err.Error())
	}
	return c, bad.err()
}

// whose reads an order id and its user. An order of another cell is nobody's here.
func (s *Server) whose(orderID, userID string) (ids.OrderID, ids.UserID, error) {
	var bad violations
	user := parse(&bad, ids.ParseUserID, userID)
	if err := bad.err(); err != nil {
		return "", "", err
	}
	order, err := ids.ParseOrder(orderID)
	if err != nil || order.Cell() != s.set.Cell {
		return "", "", errNoOrder
	}
	return order, user, nil
}

// renderOrder is an order as its customer's edge sees it.
func renderOrder(o shard.Order) *pb.OrderView {
	return &pb.OrderView{
		OrderId: string(o.ID), ReservationId: string(o.Reservation), RequestId: string(o.Request), CampaignId: string(o.Campaign),
		SkuId: string(o.SKU), UserId: string(o.User), Quantity: o.Quantity, Total: money(o.Amount, o.Currency),
		State: orderState(o.State), Version: o.Version, CreatedAtMs: millis(o.CreatedAt), ExpiresAtMs: millis(o.ExpiresAt),
		PaidAtMs: millis(o.PaidAt), ClosedAtMs: millis(o.ClosedAt), Reason: status.ReasonOf(o.Reason), PaymentState: paymentState(o.PaymentState),
	}
}

// money is the database's numeric as customers are shown it.
func money(amount, currency string) *pb.Money {
	m, err := reservation.ParseMoney(amount, currency)
	if err != nil {
		return &pb.Money{Amount: amount, Currency: currency}
	}
	return &pb.Money{Amount: m.Amount(), Currency: m.Currency}
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func orderState(s reservation.OrderState) pb.OrderState {
	return pb.OrderState(pb.OrderState_value["ORDER_STATE_"+string(s)])
}

func paymentState(s shard.PaymentState) pb.PaymentState {
	return pb.PaymentState(pb.PaymentState_value["PAYMENT_STATE_"+string(s)])
}
