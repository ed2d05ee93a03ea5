package admission

import (
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// directOutcomes is the table from what the shard alone decides to what the mirror would have said. A
// test walks all of the shard's.
var directOutcomes = map[shard.DirectOutcome]Outcome{
	shard.DirectOrdered:       Accepted,
	shard.DirectReplayed:      Replayed,
	shard.DirectConflict:      Conflict,
	shard.DirectHeld:          AlreadyReserved, // or as heldOutcomes says
	shard.DirectSoldOut:       TempSoldOut,
	shard.DirectNotStarted:    NotStarted,
	shard.DirectEnded:         Ended,
	shard.DirectPermitExpired: PermitInvalid,
	shard.DirectMoved:         Moved,
	shard.DirectThrottled:     Throttled,
	shard.DirectClosed:        NotReady,
	shard.DirectUnknown:       NotReady, // rules that this process has and the shard has not: one of them is behind
	shard.DirectRefused:       NotReady,
	shard.DirectClear:         Clear,
}

var heldOutcomes = map[reservation.Reason]Outcome{
	reservation.AlreadyPurchased: AlreadyPurchased,
	reservation.OrderWasClosed:   OrderClosed,
}

// direct is an ask as the shard takes it.
func (a Ask) direct() shard.DirectAsk {
	return shard.DirectAsk{
		Campaign: a.Scope.Campaign, SKU: a.SKU, User: a.User, Request: a.Request, Quantity: a.Quantity, Domain: a.Domain,
		PermitExpiresAt: time.UnixMilli(a.PermitExpiresAtMS), DeviceID: a.DeviceID, RiskTier: a.RiskTier, Traceparent: a.Traceparent,
		Baseline: a.Baseline,
	}
}

func fromDirect(r shard.DirectResult) Result {
	out := fromRow(r.Row)
	out.Outcome, out.StockLeft, out.OpensInMS = directOutcomes[r.Outcome], r.Left, r.Opens.Milliseconds()
	if r.Outcome == shard.DirectRefused {
		out.Reason = protoReason(r.Reason)
	}
	if o, ok := heldOutcomes[r.Reason]; ok && r.Outcome == shard.DirectHeld {
		out.Outcome = o
	}
	if r.Outcome == shard.DirectRefused && r.Reason == reservation.TooManyUnpaid {
		out.Outcome = TooManyUnpaid
	}
	return out
}

// fromRow is a request as the shard has it.
func fromRow(r shard.RequestRow) Result {
	out := Result{
		Build: r.Build, SKU: r.SKU, Request: r.Request, Reservation: r.Reservation, Order: r.Order, Quantity: r.Quantity,
		State: stateOf(r), Reason: protoReason(r.Reason),
	}
	if r.Order != "" {
		out.Reason = protoReason(r.OrderReason)
	}
	if !r.ExpiresAt.IsZero() {
		out.ExpiresAtMS = r.ExpiresAt.Add(time.Millisecond - time.Nanosecond).UnixMilli() // never before the real end
	}
	if !r.AdmittedAt.IsZero() {
		out.AdmittedAtMS = r.AdmittedAt.UnixMilli()
	}
	return out
}

// stateOf translates the shard's words into a request's state; none for a row that is not there. A place
// that a handover carried here counts as payable.
func stateOf(r shard.RequestRow) cellquotav1.RequestState {
	switch {
	case r.Order != "" && r.ReservationState == reservation.ManualReview, r.Outcome == shard.Parked:
		return cellquotav1.RequestState_REQUEST_STATE_MANUAL_REVIEW
	case r.Order != "":
		return cellquotav1.RequestState(cellquotav1.RequestState_value["REQUEST_STATE_"+string(r.OrderState)])
	case r.Outcome == shard.Rejected:
		return cellquotav1.RequestState_REQUEST_STATE_REJECTED
	case r.Outcome == shard.ReleasedBack:
		return cellquotav1.RequestState_REQUEST_STATE_RELEASED
	case r.Reservation != "":
		return cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT
	default:
		return cellquotav1.RequestState_REQUEST_STATE_UNSPECIFIED
	}
}

func protoReason(r reservation.Reason) cellquotav1.Reason {
	return cellquotav1.Reason(cellquotav1.Reason_value["REASON_"+string(r)])
}
