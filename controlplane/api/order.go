package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// errUnknownOrder: the shard that the id names has no such order.
var errUnknownOrder = errors.New("no such order")

// GetOrder answers one order from the shard that its id names, also when the
// cell's processes are dead.
func (h *Reports) GetOrder(ctx context.Context, req *pb.ReportServiceGetOrderRequest) (*pb.ReportServiceGetOrderResponse, error) {
	var f fields
	id, err := ids.ParseOrder(req.GetOrderId())
	f.refused(err)
	if err := f.err(); err != nil {
		return nil, err
	}
	cell, known := h.cells.View.Snapshot().Cell(id.Cell())
	if !known {
		return nil, unknownCell(id.Cell())
	}
	shard, err := h.reader.Snapshot(ctx, cell.Spec.Shard.ReaderDSNFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rpcstatus.ErrUnavailable, err)
	}
	defer shard.Close(ctx)
	o, found, err := shard.Order(ctx, string(id))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", rpcstatus.ErrUnavailable, err)
	case !found:
		return nil, fmt.Errorf("%w: %s", errUnknownOrder, id)
	}
	return renderOrder(&o), nil
}

func renderOrder(o *shards.OrderFacts) *pb.ReportServiceGetOrderResponse {
	out := &pb.ReportServiceGetOrderResponse{
		Order: &pb.OrderView{
			OrderId: o.ID, ReservationId: o.Reservation, RequestId: o.Request, CampaignId: o.Campaign, SkuId: o.SKU, UserId: o.User, Quantity: int32(o.Quantity),
			Total: money(o.Amount, o.Currency), State: word[pb.OrderState](pb.OrderState_value, "ORDER_STATE_", o.State), Version: o.Version,
			CreatedAtMs: o.CreatedAt.UnixMilli(), ExpiresAtMs: o.ExpiresAt.UnixMilli(), PaidAtMs: milli(o.PaidAt), ClosedAtMs: milli(o.ClosedAt),
			Reason: word[pb.Reason](pb.Reason_value, "REASON_", o.Reason),
		},
		ReservationState: word[pb.ReservationState](pb.ReservationState_value, "RESERVATION_STATE_", o.ReservationState),
	}
	for _, p := range o.Payments {
		state := word[pb.PaymentState](pb.PaymentState_value, "PAYMENT_STATE_", p.State)
		out.Order.PaymentState = state
		out.Payments = append(out.Payments, &pb.PaymentFacts{
			PaymentId: p.ID, Amount: money(p.Amount, p.Currency), State: state, RefundId: p.Refund,
			CreatedAtMs: p.CreatedAt.UnixMilli(), UpdatedAtMs: p.UpdatedAt.UnixMilli(),
		})
	}
	for _, r := range o.Refunds {
		out.Refunds = append(out.Refunds, &pb.RefundFacts{
			RefundId: r.ID, PaymentId: r.Payment, Amount: money(r.Amount, r.Currency), Part: r.Part, Cause: r.Cause, Actor: r.Actor, Reason: r.Reason,
			State: r.State, Restocked: r.Restocked, Asks: r.Asks, Answer: r.Answer, RequestedAtMs: r.RequestedAt.UnixMilli(), RefundedAtMs: milli(r.RefundedAt),
		})
	}
	return out
}

// word is a word of a shard's column as the wire has it; an unknown one is unspecified.
func word[E ~int32](values map[string]int32, prefix, s string) E { return E(values[prefix+s]) }

// money writes a numeric with two digits after the point and no further zeros.
func money(amount, currency string) *pb.Money {
	if whole, fraction, ok := strings.Cut(amount, "."); ok && len(fraction) > 2 {
		amount = whole + "." + fraction[:2] + strings.TrimRight(fraction[2:], "0")
	}
	return &pb.Money{Amount: amount, Currency: currency}
}

func milli(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMilli()
}
