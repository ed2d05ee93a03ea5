package shard

import (
	"strconv"

	"github.com/cellquota/cellquota/cell/reservation"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// effects are what the changes leave. The stock version of a give-back is that of its ledger entry,
// counted from the locked row in the order of the entries.
func (r *stepRun) effects(m moves, versions map[skuKey]int64) []outRow {
	var out []outRow
	at := make(map[string]int64, len(m)) // business number → stock version
	for _, e := range m {
		k := skuKey{e.campaign, e.sku}
		versions[k]++
		at[e.businessNo] = versions[k]
	}
	for _, c := range r.out.changes {
		if c.State == c.was.State && c.ReservationState == c.was.ReservationState {
			continue // postponed or recalled: nothing that a user or the mirror would see
		}
		out = append(out, r.traced(c.held, c.mirrorRow(at[string(c.Reservation)])))
		if c.State != c.was.State {
			out = append(out, r.traced(c.held, c.eventRow()))
		}
	}
	for _, x := range r.out.restocks {
		out = append(out, r.traced(x.held, outRow{
			target: targetMirror, aggregate: "stock/" + string(x.Campaign) + "/" + string(x.SKU), eventType: "restock", campaign: x.Campaign, sku: x.SKU,
			payload: &eventsv1.MirrorEffect{
				EffectId: "restock-" + x.refund, CampaignId: string(x.Campaign), SkuId: string(x.SKU),
				StockDelta: x.Quantity, StockVersion: at[x.refund], AggregateVersion: at[x.refund],
			},
		}))
	}
	return out
}

// traced gives a row the context of the call that brought the step, or, where none did (the closer), of the
// request that the order comes from: one trace goes from an admission to its closing.
func (r *stepRun) traced(o *held, row outRow) outRow {
	if row.traceparent = r.trace[o.ID]; row.traceparent == "" {
		row.traceparent = o.traceparent
	}
	return row
}

// mirrorRow shows the change to whoever asks the mirror, and gives a closed order's units back to it.
func (c *orderChange) mirrorRow(stockVersion int64) outRow {
	e := &eventsv1.MirrorEffect{
		CampaignId: string(c.Campaign), SkuId: string(c.SKU), UserId: string(c.User), RequestId: string(c.Request),
		ReservationId: string(c.Reservation), OrderId: string(c.ID), Reason: protoReason(c.reason), AggregateVersion: c.Version + 1,
	}
	if c.rules.holds.Bounded() {
		e.UnpaidHold, e.DeviceId = true, c.device
	}
	var kind string
	switch {
	case c.State == reservation.OrderPaid:
		kind, e.EffectId, e.State = "paid", "paid-"+string(c.Reservation), cellquotav1.RequestState_REQUEST_STATE_PAID
	case c.State == reservation.OrderClosed:
		kind, e.EffectId, e.State = "release", "release-"+string(c.Reservation), cellquotav1.RequestState_REQUEST_STATE_CLOSED
		e.StockDelta, e.StockVersion = c.Quantity, stockVersion
	case c.ReservationState == reservation.ManualReview:
		kind, e.EffectId, e.State = "review", reviewID("review-", c), cellquotav1.RequestState_REQUEST_STATE_MANUAL_REVIEW
	default:
		kind, e.EffectId, e.State = "reopen", reviewID("reopen-", c), cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT
	}
	return outRow{target: targetMirror, aggregate: requestAggregate(c.Reservation), eventType: kind, campaign: c.Campaign, sku: c.SKU, payload: e}
}

// reviewID: an order may go to review and come back more than once.
func reviewID(prefix string, c *orderChange) string {
	return prefix + string(c.Reservation) + "-" + strconv.FormatInt(c.Version, 10)
}

func (c *orderChange) eventRow() outRow {
	e := &eventsv1.OrderEvent{
		OrderId: string(c.ID), Version: c.Version, CampaignId: string(c.Campaign), SkuId: string(c.SKU), UserId: string(c.User),
		Quantity: c.Quantity, Total: &cellquotav1.Money{Amount: c.total.Amount(), Currency: c.total.Currency},
		Reason: protoReason(c.reason), AtMs: c.now.UnixMilli(),
	}
	kind := "order-paid"
	e.State = cellquotav1.OrderState_ORDER_STATE_PAID
	if c.State == reservation.OrderClosed {
		kind, e.State = "order-closed", cellquotav1.OrderState_ORDER_STATE_CLOSED
	}
	return outRow{target: targetEvents, aggregate: requestAggregate(c.Reservation), eventType: kind, campaign: c.Campaign, sku: c.SKU, payload: e}
}
