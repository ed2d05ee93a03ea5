package api

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/cell/payment"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

type refunds struct {
	Payments
	got payment.RefundRequest
	err error
}

func (r *refunds) Refund(_ context.Context, in payment.RefundRequest) (payment.RefundStanding, error) {
	r.got = in
	return payment.RefundStanding{
		Order: shard.Order{ID: in.Order, State: reservation.OrderPaid, Amount: "10.00", Currency: "EUR"}, ID: in.ID, Payment: "p", State: shard.PaymentRefundPending,
	}, r.err
}

const order = "cell-1.oaaaaaaaaaaaaaaaaaaaaaaaaaa"

// TestRefundOrder: what is asked goes through; every fault of the request is named; an order
// of another cell is nobody's here.
func TestRefundOrder(t *testing.T) {
	r := &refunds{}
	s := New(Settings{Cell: "cell-1"}, Deps{Payments: r})
	good := func() *pb.RefundOrderRequest {
		return &pb.RefundOrderRequest{OrderId: order, RefundId: "rf-1", Actor: "sre@example", Reason: "complaint", ValidateOnly: true}
	}
	out, err := s.RefundOrder(t.Context(), good())
	want := payment.RefundRequest{Order: order, ID: "rf-1", Actor: "sre@example", Reason: "complaint", CheckOnly: true}
	if err != nil || r.got != want || out.GetPaymentState() != pb.PaymentState_PAYMENT_STATE_REFUND_PENDING || out.GetRefundId() != "rf-1" ||
		out.GetPaymentId() != "p" || out.GetOrder().GetState() != pb.OrderState_ORDER_STATE_PAID || out.GetOrder().GetPaymentState() != out.GetPaymentState() {
		t.Fatalf("%+v, %v, %v", r.got, out, err)
	}
	for field, spoil := range map[string]func(*pb.RefundOrderRequest){
		"order_id": func(in *pb.RefundOrderRequest) { in.OrderId = "?" }, "refund_id": func(in *pb.RefundOrderRequest) { in.RefundId = "a b" },
		"actor": func(in *pb.RefundOrderRequest) { in.Actor = " " }, "reason": func(in *pb.RefundOrderRequest) { in.Reason = strings.Repeat("x", 513) },
	} {
		bad := good()
		spoil(bad)
		if _, err := s.RefundOrder(t.Context(), bad); err == nil || !strings.Contains(err.Error(), field+":") {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	elsewhere := good()
	elsewhere.OrderId = strings.Replace(order, "cell-1", "cell-2", 1)
	if _, err := s.RefundOrder(t.Context(), elsewhere); !errors.Is(err, errNoOrder) {
		t.Errorf("another cell's order: %v", err)
	}
	r.err = shard.ErrRefundUnderWay
	if _, err := s.RefundOrder(t.Context(), good()); !errors.Is(err, shard.ErrRefundUnderWay) {
		t.Errorf("%v", err)
	}
	if _, err := rpcstatus.NewTable(Kinds()...); err != nil {
		t.Error(err)
	}
}
