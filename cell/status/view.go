package status

import (
	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ReasonOf gives the contract's reason in proto.
func ReasonOf(r reservation.Reason) pb.Reason {
	if r == reservation.NoReason {
		return pb.Reason_REASON_UNSPECIFIED
	}
	return pb.Reason(pb.Reason_value["REASON_"+string(r)])
}

// FromRow is a request with an outcome in the shard.
func FromRow(r shard.RequestRow) *pb.RequestView {
	v := &pb.RequestView{
		RequestId: string(r.Request), CampaignId: string(r.Campaign), SkuId: string(r.SKU), ReservationId: string(r.Reservation),
		OrderId: string(r.Order), Quantity: r.Quantity, Ack: pb.Ack_ACK_DATABASE,
	}
	if !r.AdmittedAt.IsZero() {
		v.AdmittedAtMs = r.AdmittedAt.UnixMilli()
	}
	v.State, v.Reason = stateOf(r)
	if r.Order != "" && !r.ExpiresAt.IsZero() { // of a carried one its own cell knows
		v.ExpiresAtMs = r.ExpiresAt.UnixMilli()
	}
	return v
}

// stateOf translates the shard's words into what users are shown (seams, Cell).
func stateOf(r shard.RequestRow) (pb.RequestState, pb.Reason) {
	if r.Order == "" {
		switch r.Outcome {
		case shard.Rejected:
			return pb.RequestState_REQUEST_STATE_REJECTED, ReasonOf(r.Reason)
		case shard.ReleasedBack:
			return pb.RequestState_REQUEST_STATE_RELEASED, ReasonOf(r.Reason)
		case shard.Parked:
			return pb.RequestState_REQUEST_STATE_MANUAL_REVIEW, pb.Reason_REASON_UNSPECIFIED
		default: // the others have no case of their own: what follows the switch holds
		}
		return pb.RequestState_REQUEST_STATE_QUEUED, pb.Reason_REASON_UNSPECIFIED
	}
	if r.ReservationState == reservation.ManualReview {
		return pb.RequestState_REQUEST_STATE_MANUAL_REVIEW, ReasonOf(r.OrderReason)
	}
	return pb.RequestState(pb.RequestState_value["REQUEST_STATE_"+string(r.OrderState)]), ReasonOf(r.OrderReason)
}

// FromMirror is a request as the mirror has it.
func FromMirror(campaign ids.CampaignID, r admission.Result) *pb.RequestView {
	return &pb.RequestView{
		RequestId: string(r.Request), CampaignId: string(campaign), SkuId: string(r.SKU), State: r.State, Reason: r.Reason,
		ReservationId: string(r.Reservation), OrderId: string(r.Order), ExpiresAtMs: r.ExpiresAtMS, AdmittedAtMs: r.AdmittedAtMS,
		Quantity: r.Quantity, Ack: AckOf(r.State),
	}
}

// AckOf is what a state proves to be recorded where.
func AckOf(s pb.RequestState) pb.Ack {
	switch s {
	case pb.RequestState_REQUEST_STATE_ADMITTED:
		return pb.Ack_ACK_REDIS
	case pb.RequestState_REQUEST_STATE_QUEUED:
		return pb.Ack_ACK_KAFKA
	case pb.RequestState_REQUEST_STATE_UNSPECIFIED:
		return pb.Ack_ACK_UNSPECIFIED
	default: // the others have no case of their own: what follows the switch holds
	}
	return pb.Ack_ACK_DATABASE
}

// open tells that a state still waits for the shard's word.
func open(s pb.RequestState) bool {
	return s == pb.RequestState_REQUEST_STATE_ADMITTED || s == pb.RequestState_REQUEST_STATE_QUEUED
}
