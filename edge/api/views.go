package api

import (
	"math/rand/v2"
	"strings"
	"time"

	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// When to look again at a request that is on its way to an order: after 500 ms, 1 s, 2 s and so
// on, doubled up to the last, spread by a quarter.
const (
	firstPoll = 500 * time.Millisecond
	lastPoll  = 30 * time.Second
)

// reviewAfter is when to look again at one that waits for a person.
const reviewAfter = 30 * time.Second

// requestWord is a request's state as contract §3 writes it.
func requestWord(s cq.RequestState) string { return strings.TrimPrefix(s.String(), "REQUEST_STATE_") }

func reasonWord(r cq.Reason) string {
	if r == cq.Reason_REASON_UNSPECIFIED {
		return ""
	}
	return strings.TrimPrefix(r.String(), "REASON_")
}

func ackWord(a cq.Ack) string {
	if a == cq.Ack_ACK_UNSPECIFIED {
		return ""
	}
	return strings.TrimPrefix(a.String(), "ACK_")
}

// statusURL is where a request's status is.
func statusURL(campaign, sku, request string) string {
	return "/v1/campaigns/" + campaign + "/skus/" + sku + "/requests/" + request
}

// orderURL is where an order is.
func orderURL(order string) string { return "/v1/orders/" + order }

// onItsWay reports whether a request may still become an order by itself.
func onItsWay(s cq.RequestState) bool {
	return s == cq.RequestState_REQUEST_STATE_ADMITTED || s == cq.RequestState_REQUEST_STATE_QUEUED
}

// request writes a request as its cell sees it now.
func (o *object) request(v *cq.RequestView, lang Lang, now time.Time) {
	o.str("request_id", v.GetRequestId())
	o.str("state", requestWord(v.GetState()))
	o.opt("reason", reasonWord(v.GetReason()))
	o.str("message", message(v.GetState(), v.GetReason(), lang))
	o.opt("reservation_id", v.GetReservationId())
	o.opt("order_id", v.GetOrderId())
	if v.GetState() == cq.RequestState_REQUEST_STATE_PENDING_PAYMENT {
		o.expiry(v.GetExpiresAtMs(), now)
	}
	o.opt("ack", ackWord(v.GetAck()))
	o.opt("receipt", v.GetReceipt())
	o.str("status_url", statusURL(v.GetCampaignId(), v.GetSkuId(), v.GetRequestId()))
	if ms := poll(v.GetState(), v.GetAdmittedAtMs(), now); ms > 0 {
		o.int("poll_after_ms", ms)
	}
}

// expiry writes until when there is something to pay.
func (o *object) expiry(ms int64, now time.Time) {
	if ms == 0 {
		return
	}
	o.optMs("expires_at", ms)
	o.int("expires_in_ms", max(ms-now.UnixMilli(), 0))
}

// poll is after how many milliseconds looking again makes sense, jittered; 0: no sense. Who looks as he is
// told comes when the request is as old as the waits so far, so its age says how long the next one is.
func poll(s cq.RequestState, admittedMs int64, now time.Time) int64 {
	switch {
	case onItsWay(s):
		wait := firstPoll
		for age := now.Sub(time.UnixMilli(admittedMs)); admittedMs != 0 && age >= wait && wait < lastPoll; wait *= 2 {
			age -= wait
		}
		wait = min(wait, lastPoll)
		return (wait + rand.N(wait/4)).Milliseconds()
	case s == cq.RequestState_REQUEST_STATE_MANUAL_REVIEW:
		return reviewAfter.Milliseconds()
	default:
		return 0
	}
}

// order writes an order as its shard has it.
func (o *object) order(v *cq.OrderView, lang Lang, now time.Time) {
	o.str("order_id", v.GetOrderId())
	o.str("reservation_id", v.GetReservationId())
	o.str("request_id", v.GetRequestId())
	o.str("campaign_id", v.GetCampaignId())
	o.str("sku_id", v.GetSkuId())
	o.int("quantity", int64(v.GetQuantity()))
	o.str("amount", v.GetTotal().GetAmount())
	o.str("currency", v.GetTotal().GetCurrency())
	o.str("state", orderWord(v.GetState()))
	o.opt("reason", reasonWord(v.GetReason()))
	o.opt("payment_state", paymentWord(v.GetPaymentState()))
	o.str("message", message(asRequest(v.GetState()), v.GetReason(), lang))
	o.optMs("created_at", v.GetCreatedAtMs())
	if v.GetState() == cq.OrderState_ORDER_STATE_PENDING_PAYMENT {
		o.expiry(v.GetExpiresAtMs(), now)
	}
	o.optMs("paid_at", v.GetPaidAtMs())
	o.optMs("closed_at", v.GetClosedAtMs())
	o.str("status_url", orderURL(v.GetOrderId()))
}

func orderWord(s cq.OrderState) string { return strings.TrimPrefix(s.String(), "ORDER_STATE_") }

func paymentWord(s cq.PaymentState) string {
	if s == cq.PaymentState_PAYMENT_STATE_UNSPECIFIED {
		return ""
	}
	return strings.TrimPrefix(s.String(), "PAYMENT_STATE_")
}

// asRequest is the state of the request that an order came from.
func asRequest(s cq.OrderState) cq.RequestState {
	switch s {
	case cq.OrderState_ORDER_STATE_PAID:
		return cq.RequestState_REQUEST_STATE_PAID
	case cq.OrderState_ORDER_STATE_CLOSED:
		return cq.RequestState_REQUEST_STATE_CLOSED
	default:
		return cq.RequestState_REQUEST_STATE_PENDING_PAYMENT
	}
}
