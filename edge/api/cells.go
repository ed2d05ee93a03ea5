package api

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/edge/proxy"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// door picks a method of a cell's services.
type door[In, Out any] func(proxy.Door) func(context.Context, In, ...grpc.CallOption) (Out, error)

func doorGetRequest(d proxy.Door) func(context.Context, *cq.GetRequestRequest, ...grpc.CallOption) (*cq.GetRequestResponse, error) {
	return d.Admissions.GetRequest
}

// once calls a cell once, for at most Timeout.
func once[In, Out any](s *Server, ctx context.Context, cell ids.CellID, in In, d door[In, Out]) (Out, error) {
	var none Out
	way, err := s.parts.Cells.Door(cell)
	if err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.set.Timeout)
	defer cancel()
	return d(way)(ctx, in)
}

// read calls a cell and, where its process is gone, another process of the same cell once more:
// reading changes nothing.
func read[In, Out any](s *Server, ctx context.Context, cell ids.CellID, in In, d door[In, Out]) (Out, error) {
	out, err := once(s, ctx, cell, in, d)
	if err != nil && errors.Is(err, rpcstatus.ErrUnavailable) && rpcstatus.MayHaveHappened(err) && ctx.Err() == nil {
		return once(s, ctx, cell, in, d)
	}
	return out, err
}

// refusals of a cell's services that a customer is told as they are, by reason.
var refusals = map[string]Code{
	"ORDER_PAID":           OrderPaid,
	"ORDER_CLOSED":         OrderClosed,
	"ORDER_UNKNOWN":        OrderUnknown,
	"PAYMENT_IN_PROGRESS":  PaymentInProgress,
	"PAYMENT_MISMATCH":     PaymentMismatch,
	"IDEMPOTENCY_CONFLICT": IdempotencyConflict,
	"FENCED":               HomeCellUnavailable,
	"MOVED":                MovedPending,
}

// failed is what a customer is told whose call a cell refused or did not answer. What is neither is
// 503, since it may have happened.
func (s *Server) failed(c *call, l layer, cell ids.CellID, err error) *problem {
	if errors.Is(err, proxy.ErrNoCell) {
		return at(atRoute, HomeCellUnavailable)
	}
	wait := rpcstatus.RetryAfter(err)
	if code, ok := refusals[rpcstatus.Reason(err)]; ok {
		return at(l, code).after(wait)
	}
	switch {
	case errors.Is(err, rpcstatus.ErrNotFound):
		return at(l, NotFound)
	case errors.Is(err, rpcstatus.ErrAlreadyExists):
		return at(l, IdempotencyConflict)
	case errors.Is(err, rpcstatus.ErrInvalidArgument):
		p := at(l, InvalidArgument)
		for _, v := range rpcstatus.Violations(err) {
			p.field("/"+v.Field, v.Rule)
		}
		return p
	case errors.Is(err, rpcstatus.ErrExhausted):
		return at(l, Throttled).after(wait)
	case errors.Is(err, rpcstatus.ErrUnavailable):
		return at(l, NotReady).after(wait)
	case c.ctx().Err() != nil:
		return at(l, NotReady) // nobody is there to read it
	default:
		s.log.WarnContext(c.ctx(), "a cell's call failed", slog.String(telemetry.Event, "cell_call_failed"),
			slog.String(telemetry.CellID, string(cell)), slog.Any(telemetry.Error, err))
		return at(l, NotReady).after(wait)
	}
}
