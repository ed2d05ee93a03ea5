package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

type reviews struct {
	got shard.ReviewAsk
	err error
}

func (r *reviews) end(ask shard.ReviewAsk) (shard.ReviewEnding, error) {
	r.got = ask
	return shard.ReviewEnding{
		Operation: ask.Operation, Reservation: ask.Reservation, Units: 2, For: ask.For, At: time.UnixMilli(5),
		Order: shard.Order{ID: order, State: reservation.OrderClosed, Reason: reservation.Expired, Amount: "10.00", Currency: "EUR"},
	}, r.err
}

func (r *reviews) ReleaseReservation(_ context.Context, ask shard.ReviewAsk) (shard.ReviewEnding, error) {
	return r.end(ask)
}

func (r *reviews) ReturnAdmission(_ context.Context, ask shard.ReviewAsk) (shard.ReviewEnding, error) {
	return r.end(ask)
}

// TestReviewsAreEnded: what is asked goes through, every fault of the request is named, and a refusal says in
// fields what the thing is.
func TestReviewsAreEnded(t *testing.T) {
	r := &reviews{}
	s := New(Settings{Cell: "cell-1"}, Deps{Reviews: r})
	res := strings.Replace(order, ".o", ".r", 1)
	release := func() *pb.ReleaseReservationRequest {
		return &pb.ReleaseReservationRequest{ReservationId: res, OperationId: "op-1", Actor: "sre@example", Reason: "silent", Incident: "INC-7", ValidateOnly: true}
	}
	want := shard.ReviewAsk{Reservation: ids.ReservationID(res), Operation: "op-1", Actor: "sre@example", Reason: "silent", Incident: "INC-7", CheckOnly: true}
	out, err := s.ReleaseReservation(t.Context(), release())
	if err != nil || r.got != want || out.GetUnits() != 2 || out.GetEndedAtMs() != 5 || out.GetOperationId() != "op-1" ||
		out.GetOrder().GetState() != pb.OrderState_ORDER_STATE_CLOSED || out.GetOrder().GetReason() != pb.Reason_REASON_EXPIRED {
		t.Fatalf("%+v, %v, %v", r.got, out, err)
	}
	returned, err := s.ReturnAdmission(t.Context(), &pb.ReturnAdmissionRequest{
		ReservationId: res, OperationId: "op-2", Actor: "sre@example", Reason: "damaged", Incident: "INC-7", RejectedFor: pb.Reason_REASON_SOLD_OUT,
	})
	if err != nil || r.got.For != reservation.SoldOut || r.got.CheckOnly || returned.GetState() != pb.RequestState_REQUEST_STATE_REJECTED ||
		returned.GetRejectedFor() != pb.Reason_REASON_SOLD_OUT || returned.GetUnits() != 2 {
		t.Fatalf("%+v, %v, %v", r.got, returned, err)
	}
	for field, spoil := range map[string]func(*pb.ReleaseReservationRequest){
		"reservation_id": func(in *pb.ReleaseReservationRequest) { in.ReservationId = "?" }, "operation_id": func(in *pb.ReleaseReservationRequest) { in.OperationId = "" },
		"actor": func(in *pb.ReleaseReservationRequest) { in.Actor = " " }, "reason": func(in *pb.ReleaseReservationRequest) { in.Reason = "a\x00b" },
		"incident": func(in *pb.ReleaseReservationRequest) { in.Incident = strings.Repeat("x", 513) },
	} {
		bad := release()
		spoil(bad)
		if _, err := s.ReleaseReservation(t.Context(), bad); err == nil || !strings.Contains(err.Error(), field+":") {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	elsewhere := release()
	elsewhere.ReservationId = strings.Replace(res, "cell-1", "cell-2", 1)
	if _, err := s.ReleaseReservation(t.Context(), elsewhere); !errors.Is(err, errNoReservation) {
		t.Errorf("another cell's: %v", err)
	}
	r.err = &shard.NotInReview{Reservation: ids.ReservationID(res), Is: "CONFIRMED", Operation: "op-0", Actor: "somebody"}
	_, err = s.ReleaseReservation(t.Context(), release())
	facts := rpcstatus.Metadata(err)
	if !errors.Is(err, reservation.ErrNotInReview) || facts["is"] != "CONFIRMED" || facts["operation_id"] != "op-0" || facts["actor"] != "somebody" {
		t.Errorf("%v with %v", err, facts)
	}
	r.err = shard.ErrNotFound
	if _, err := s.ReturnAdmission(t.Context(), &pb.ReturnAdmissionRequest{ReservationId: res, OperationId: "o", Actor: "a", Reason: "r", Incident: "i"}); !errors.Is(err, errNoReservation) {
		t.Errorf("%v", err)
	}
}
