package api

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Refunds is the part of OrderService that operators may call: it hands a refund
// to the cell that the order's id names. Who asked is the caller's own name,
// whatever the request says; the shard keeps it with the refund.
type Refunds struct {
	pb.UnimplementedOrderServiceServer
	View *view.View
	// Dial reaches a process of a cell.
	Dial func(addr string) (*grpc.ClientConn, error)
}

// RefundOrder asks a process of the order's cell, and another one where it does
// not answer: the refund_id makes a repeat the same refund.
func (h *Refunds) RefundOrder(ctx context.Context, req *pb.RefundOrderRequest) (*pb.RefundOrderResponse, error) {
	var f fields
	id, err := ids.ParseOrder(req.GetOrderId())
	f.refused(err)
	if _, err := ids.ParsePaymentID(req.GetRefundId()); err != nil {
		f.add("refund_id", "must be [A-Za-z0-9._:-]{1,128}")
	}
	reason := f.reason(req.GetReason(), true)
	if err := f.err(); err != nil {
		return nil, err
	}
	who, known := transport.PrincipalFrom(ctx)
	if !known {
		return nil, rpcstatus.ErrUnauthenticated
	}
	s := h.View.Snapshot()
	if _, known := s.Cell(id.Cell()); !known {
		return nil, unknownCell(id.Cell())
	}
	in := &pb.RefundOrderRequest{OrderId: string(id), RefundId: req.GetRefundId(), Actor: who.Name, Reason: reason, ValidateOnly: req.GetValidateOnly()}
	err = errNoProcess
	for _, process := range s.Instances(id.Cell()) {
		var out *pb.RefundOrderResponse
		if out, err = h.ask(ctx, process.Address, in); err == nil {
			return out, nil
		}
		if !elsewhere(err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: cell %s: %w", rpcstatus.ErrUnavailable, id.Cell(), err)
}

// elsewhere: the process did not say that nothing was done, or that it could not now; another one of
// the cell may answer.
func elsewhere(err error) bool {
	return errors.Is(err, rpcstatus.ErrUnavailable) || rpcstatus.MayHaveHappened(err)
}

func (h *Refunds) ask(ctx context.Context, addr string, in *pb.RefundOrderRequest) (*pb.RefundOrderResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := h.Dial(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rpcstatus.ErrUnavailable, err)
	}
	defer func() { _ = conn.Close() }() // nothing is under way any more
	return pb.NewOrderServiceClient(conn).RefundOrder(ctx, in)
}
