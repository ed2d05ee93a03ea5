package api

import (
	"context"

	"github.com/cellquota/cellquota/cell/payment"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// maxReason bounds what an operator writes, in bytes.
const maxReason = 512

// RefundOrder implements OrderService. Only the control plane may call it; the role table refuses edges.
func (s *Server) RefundOrder(ctx context.Context, in *pb.RefundOrderRequest) (*pb.RefundOrderResponse, error) {
	want, err := readRefund(in)
	if err != nil {
		return nil, err
	}
	if want.Order.Cell() != s.set.Cell {
		return nil, errNoOrder
	}
	out, err := s.Payments.Refund(ctx, want)
	if err != nil {
		return nil, translate(err)
	}
	view := renderOrder(out.Order)
	view.PaymentState = paymentState(out.State)
	return &pb.RefundOrderResponse{Order: view, RefundId: out.ID, PaymentId: string(out.Payment), PaymentState: paymentState(out.State), OperationId: want.ID}, nil
}

func readRefund(in *pb.RefundOrderRequest) (payment.RefundRequest, error) {
	var bad violations
	want := payment.RefundRequest{
		Order: parse(&bad, ids.ParseOrder, in.GetOrderId()), ID: in.GetRefundId(), Actor: in.GetActor(), Reason: in.GetReason(), CheckOnly: in.GetValidateOnly(),
	}
	if _, err := ids.ParsePaymentID(want.ID); err != nil {
		bad.add("refund_id", "must be [A-Za-z0-9._:-]{1,128}")
	}
	for _, f := range []struct{ name, text string }{{"actor", want.Actor}, {"reason", want.Reason}} {
		if !isReason(f.text) {
			bad.add(f.name, "must be 1 to 512 bytes of text")
		}
	}
	return want, bad.err()
}
