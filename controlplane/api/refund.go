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

// Refunds is the part of OrderService that operators may call: it hands what is
// asked to the cell that the id names. Who asked is the caller's own name,
// whatever the request says; the shard keeps it.
type Refunds struct {
	pb.UnimplementedOrderServiceServer
	View *view.View
	// Dial reaches a process of a cell.
	Dial func(addr string) (*grpc.ClientConn, error)
}

// RefundOrder asks a process of the order's cell; the refund_id makes a repeat
// the same refund.
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
	return askCell(ctx, h, id.Cell(), func(ctx context.Context, c pb.OrderServiceClient, actor string) (*pb.RefundOrderResponse, error) {
		return c.RefundOrder(ctx, &pb.RefundOrderRequest{
			OrderId: string(id), RefundId: req.GetRefundId(), Actor: actor, Reason: reason, ValidateOnly: req.GetValidateOnly(),
		})
	})
}

// ReleaseReservation asks a process of the reservation's cell; the operation_id
// makes a repeat the same ending.
func (h *Refunds) ReleaseReservation(ctx context.Context, req *pb.ReleaseReservationRequest) (*pb.ReleaseReservationResponse, error) {
	id, reason, err := readReview(req)
	if err != nil {
		return nil, err
	}
	return askCell(ctx, h, id.Cell(), func(ctx context.Context, c pb.OrderServiceClient, actor string) (*pb.ReleaseReservationResponse, error) {
		return c.ReleaseReservation(ctx, &pb.ReleaseReservationRequest{
			ReservationId: string(id), OperationId: req.GetOperationId(), Reason: reason, Actor: actor, Incident: req.GetIncident(), ValidateOnly: req.GetValidateOnly(),
		})
	})
}

// ReturnAdmission asks a process of the reservation's cell, likewise.
func (h *Refunds) ReturnAdmission(ctx context.Context, req *pb.ReturnAdmissionRequest) (*pb.ReturnAdmissionResponse, error) {
	id, reason, err := readReview(req)
	if err != nil {
		return nil, err
	}
	return askCell(ctx, h, id.Cell(), func(ctx context.Context, c pb.OrderServiceClient, actor string) (*pb.ReturnAdmissionResponse, error) {
		return c.ReturnAdmission(ctx, &pb.ReturnAdmissionRequest{
			ReservationId: string(id), OperationId: req.GetOperationId(), Reason: reason, Actor: actor, Incident: req.GetIncident(), ValidateOnly: req.GetValidateOnly(),
			RejectedFor: req.GetRejectedFor(),
		})
	})
}

// reviewRequest is what both ends of a review ask with.
type reviewRequest interface {
	GetReservationId() string
	GetOperationId() string
	GetReason() string
	GetIncident() string
}

func readReview(req reviewRequest) (ids.ReservationID, string, error) {
	var f fields
	id, err := ids.ParseReservation(req.GetReservationId())
	f.refused(err)
	_, err = ids.ParseOperationID("operation_id", req.GetOperationId())
	f.refused(err)
	if req.GetIncident() == "" {
		f.add("incident", "must name the incident that this belongs to")
	}
	reason := f.reason(req.GetReason(), true)
	return id, reason, f.err()
}

// askCell asks one process of a cell after the other until one of them answers:
// what is asked has an id of its own, so a repeat is the same.
func askCell[T any](ctx context.Context, h *Refunds, cell ids.CellID, ask func(context.Context, pb.OrderServiceClient, string) (T, error)) (T, error) {
	var none T
	who, known := transport.PrincipalFrom(ctx)
	if !known {
		return none, rpcstatus.ErrUnauthenticated
	}
	s := h.View.Snapshot()
	if _, known := s.Cell(cell); !known {
		return none, unknownCell(cell)
	}
	err := errNoProcess
	for _, process := range s.Instances(cell) {
		var out T
		if out, err = askProcess(ctx, h, process.Address, who.Name, ask); err == nil {
			return out, nil
		}
		if !elsewhere(err) {
			return none, err
		}
	}
	return none, fmt.Errorf("%w: cell %s: %w", rpcstatus.ErrUnavailable, cell, err)
}

// elsewhere: the process did not say that nothing was done, or that it could not now; another one of
// the cell may answer.
func elsewhere(err error) bool {
	return errors.Is(err, rpcstatus.ErrUnavailable) || rpcstatus.MayHaveHappened(err)
}

func askProcess[T any](ctx context.Context, h *Refunds, addr, actor string, ask func(context.Context, pb.OrderServiceClient, string) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := h.Dial(addr)
	if err != nil {
		var none T
		return none, fmt.Errorf("%w: %w", rpcstatus.ErrUnavailable, err)
	}
	defer func() { _ = conn.Close() }() // nothing is under way any more
	return ask(ctx, pb.NewOrderServiceClient(conn), actor)
}
