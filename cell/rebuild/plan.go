package rebuild

import (
	"iter"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Plan is one mirror that this cell must have, as the rules say now.
type Plan struct {
	Scope     admission.Scope
	SKUs      []ids.SKUID // at least one; exactly the scope's when it has one
	Version   int64       // of the campaign's rules; a higher one replaces Window; Buckets follow what they are
	Window    admission.Window
	Buckets   []admission.DomainBuckets
	StreamMax int64
	Bound     int64 // outstanding admissions per SKU until the gate has measured; at least 1
}

// image turns a snapshot of the shard into a mirror.
func (p Plan) image(build ids.Build, server, identity string, stocks []shard.MirrorStock,
	marks iter.Seq2[shard.Mark, error], requests iter.Seq2[shard.RequestRow, error],
) admission.Image {
	im := admission.Image{
		Scope: p.Scope, Build: build, Server: server, Shard: identity, Window: p.Window, StreamMax: p.StreamMax, Buckets: p.Buckets,
		Marks: each(marks, markOf), Records: each(requests, recordOf),
	}
	have := map[ids.SKUID]shard.MirrorStock{}
	for _, s := range stocks {
		have[s.SKU] = s
	}
	for _, sku := range p.SKUs {
		s := have[sku] // a SKU that was granted nothing yet has no row: 0 units at version 0
		im.Stocks = append(im.Stocks, admission.StockBase{
			SKU: sku, Available: int64(s.Available), Version: s.Version, LastNumber: s.LastNumber,
			Gate: admission.Gate{SKU: sku, State: cellquotav1.GateState_GATE_STATE_OPEN, Bound: max(p.Bound, 1)},
		})
	}
	return im
}

func each[A, B any](seq iter.Seq2[A, error], f func(A) B) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		for a, err := range seq {
			var b B
			if err == nil {
				b = f(a)
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// bucketSets are the buckets by domain.
func (p Plan) bucketSets() map[string]admission.BucketSet {
	out := make(map[string]admission.BucketSet, len(p.Buckets))
	for _, b := range p.Buckets {
		out[b.Domain] = b.Set
	}
	return out
}

func markOf(m shard.Mark) admission.Mark {
	out := admission.Mark{
		User: m.User, SKU: m.SKU, Request: m.Request, Reservation: m.Reservation, Quantity: m.Quantity,
		State: orderState(m.OrderState),
	}
	if m.State == reservation.ManualReview {
		out.State = cellquotav1.RequestState_REQUEST_STATE_MANUAL_REVIEW
	}
	return out
}

// orderState shows an order; without one (a carried buyer) the place is taken and
// counts as payable.
func orderState(s reservation.OrderState) cellquotav1.RequestState {
	switch s {
	case reservation.OrderPaid:
		return cellquotav1.RequestState_REQUEST_STATE_PAID
	case reservation.OrderClosed:
		return cellquotav1.RequestState_REQUEST_STATE_CLOSED
	default:
		return cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT
	}
}

func recordOf(r shard.RequestRow) admission.Record {
	out := admission.Record{
		SKU: r.SKU, User: r.User, Request: r.Request, Reservation: r.Reservation, Order: r.Order, Fingerprint: r.Fingerprint,
		Quantity: r.Quantity, Version: aggregateVersion(r.OrderVersion), AdmittedAtMS: r.AdmittedAt.UnixMilli(),
	}
	if !r.ExpiresAt.IsZero() {
		out.ExpiresAtMS = r.ExpiresAt.UnixMilli()
	}
	switch r.Outcome {
	case shard.Ordered:
		out.State, out.Reason = orderState(r.OrderState), reasonOf(r.OrderReason)
		if r.ReservationState == reservation.ManualReview {
			out.State = cellquotav1.RequestState_REQUEST_STATE_MANUAL_REVIEW
		}
	case shard.Rejected:
		out.State, out.Reason = cellquotav1.RequestState_REQUEST_STATE_REJECTED, reasonOf(r.Reason)
	case shard.ReleasedBack:
		out.State, out.Reason = cellquotav1.RequestState_REQUEST_STATE_RELEASED, reasonOf(r.Reason)
	default: // PARKED
		out.State = cellquotav1.RequestState_REQUEST_STATE_MANUAL_REVIEW
	}
	return out
}

// aggregateVersion is the version under which an order's last change went through
// the outbox: 1 for the inbox outcome, the order's version plus one afterwards.
func aggregateVersion(order int64) int64 {
	if order <= 1 {
		return 1
	}
	return order + 1
}

func reasonOf(r reservation.Reason) cellquotav1.Reason {
	return cellquotav1.Reason(cellquotav1.Reason_value["REASON_"+string(r)])
}
