package shard

import (
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// The aggregate of everything that concerns one request: its effects leave in order.
func requestAggregate(res ids.ReservationID) string { return "req/" + string(res) }

// inboxVersion is the aggregate's version of the inbox outcome; an order's changes come after it,
// at its own version plus one.
const inboxVersion = 1

// effects are what the decisions leave: one effect for the mirror each, and an event for each order.
func (r *batchRun) effects() ([]outRow, error) {
	out := make([]outRow, 0, 2*len(r.out.Decisions))
	for i := range r.out.Decisions {
		d, m := &r.out.Decisions[i], &r.in.Messages[i]
		if d.Duplicate {
			continue
		}
		row := outRow{
			target: targetMirror, aggregate: requestAggregate(m.Reservation), eventType: "settle",
			campaign: m.Campaign, sku: m.SKU, traceparent: m.Traceparent, payload: r.settleEffect(m, d),
		}
		if r.direct {
			row.eventType, row.payload = "direct", r.directEffect(m, d)
		}
		if !r.direct || r.mirrored(m) {
			out = append(out, row)
		}
		if d.Outcome != Ordered {
			continue
		}
		total, err := m.Price.Times(m.Quantity)
		if err != nil {
			return nil, err
		}
		row.target, row.eventType = targetEvents, "order-created"
		row.payload = &eventsv1.OrderEvent{
			OrderId: string(m.Reservation.Order()), Version: 1, State: cellquotav1.OrderState_ORDER_STATE_PENDING_PAYMENT,
			CampaignId: string(m.Campaign), SkuId: string(m.SKU), UserId: string(m.User), Quantity: m.Quantity,
			Total: &cellquotav1.Money{Amount: total.Amount(), Currency: total.Currency}, AtMs: r.now.UnixMilli(),
		}
		out = append(out, row)
	}
	return out, nil
}

// settleEffect takes the admission out of the outstanding set. A rejection gives back exactly what
// the admission took, to a mirror of its own build only, and drops the user's mark, or points it to
// the reservation that has the place.
func (r *batchRun) settleEffect(m *Message, d *Decision) *eventsv1.MirrorEffect {
	e := &eventsv1.MirrorEffect{
		EffectId: "settle-" + string(m.Reservation), CampaignId: string(m.Campaign), SkuId: string(m.SKU), Settle: true,
		UserId: string(m.User), RequestId: string(m.Request), ReservationId: string(m.Reservation), AggregateVersion: inboxVersion,
	}
	if rules := r.facts.rules[skuKey{m.Campaign, m.SKU}]; rules != nil && rules.Holds.Bounded() {
		e.UnpaidHold, e.DeviceId = true, m.DeviceID
	}
	switch d.Outcome {
	case Ordered:
		e.State = cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT
		e.OrderId = string(m.Reservation.Order())
		e.ExpiresAtMs = ceilMilli(d.ExpiresAt)
	case Parked:
		e.State = cellquotav1.RequestState_REQUEST_STATE_MANUAL_REVIEW
	default:
		e.State = cellquotav1.RequestState_REQUEST_STATE_REJECTED
		e.Reason = protoReason(d.Reason)
		e.StockDelta = m.Quantity
		e.AdmissionBuild = &cellquotav1.Build{FenceVersion: m.Build.Fence, Count: m.Build.Count}
		e.Mark = eventsv1.MarkAction_MARK_ACTION_DROP_IF_MINE
		if d.winner.reservation != "" {
			e.Mark = eventsv1.MarkAction_MARK_ACTION_SET_WINNER
			e.WinnerReservationId, e.WinnerRequestId = string(d.winner.reservation), string(d.winner.request)
		}
	}
	return e
}

// ceilMilli rounds up, so that a shown end never lies before the real one.
func ceilMilli(t time.Time) int64 { return t.Add(time.Millisecond - time.Nanosecond).UnixMilli() }

func protoReason(r reservation.Reason) cellquotav1.Reason {
	return cellquotav1.Reason(cellquotav1.Reason_value["REASON_"+string(r)])
}
