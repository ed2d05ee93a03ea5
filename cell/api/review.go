package api

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/status"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Reviews end a MANUAL_REVIEW; *shard.Store is one.
type Reviews interface {
	ReleaseReservation(ctx context.Context, ask shard.ReviewAsk) (shard.ReviewEnding, error)
	ReturnAdmission(ctx context.Context, ask shard.ReviewAsk) (shard.ReviewEnding, error)
}

// errNoReservation: no such reservation here, and no message that was to become it.
var errNoReservation = errors.New("no such reservation in this cell")

// ReleaseReservation implements OrderService, for the control plane alone.
func (s *Server) ReleaseReservation(ctx context.Context, in *pb.ReleaseReservationRequest) (*pb.ReleaseReservationResponse, error) {
	ask, err := s.readReview(ctx, in)
	if err != nil {
		return nil, err
	}
	out, err := s.Reviews.ReleaseReservation(ctx, ask)
	if err != nil {
		return nil, reviewRefused(err)
	}
	return &pb.ReleaseReservationResponse{Order: renderOrder(out.Order), Units: out.Units, EndedAtMs: millis(out.At), OperationId: out.Operation}, nil
}

// ReturnAdmission implements OrderService, for the control plane alone.
func (s *Server) ReturnAdmission(ctx context.Context, in *pb.ReturnAdmissionRequest) (*pb.ReturnAdmissionResponse, error) {
	ask, err := s.readReview(ctx, in)
	if err != nil {
		return nil, err
	}
	if in.GetRejectedFor() != pb.Reason_REASON_UNSPECIFIED {
		ask.For = reservation.Reason(strings.TrimPrefix(in.GetRejectedFor().String(), "REASON_"))
	}
	out, err := s.Reviews.ReturnAdmission(ctx, ask)
	if err != nil {
		return nil, reviewRefused(err)
	}
	return &pb.ReturnAdmissionResponse{
		ReservationId: string(out.Reservation), State: pb.RequestState_REQUEST_STATE_REJECTED, RejectedFor: status.ReasonOf(out.For), Units: out.Units,
		EndedAtMs: millis(out.At), OperationId: out.Operation,
	}, nil
}

// reviewRequest is what both requests have.
type reviewRequest interface {
	GetReservationId() string
	GetOperationId() string
	GetReason() string
	GetActor() string
	GetIncident() string
	GetValidateOnly() bool
}

func (s *Server) readReview(ctx context.Context, in reviewRequest) (shard.ReviewAsk, error) {
	var bad violations
	ask := shard.ReviewAsk{
		Reservation: parse(&bad, ids.ParseReservation, in.GetReservationId()), Operation: parse(&bad, operationID, in.GetOperationId()),
		Actor: in.GetActor(), Reason: in.GetReason(), Incident: in.GetIncident(), CheckOnly: in.GetValidateOnly(), Traceparent: telemetry.Traceparent(ctx),
	}
	for _, f := range []struct{ name, text string }{{"actor", ask.Actor}, {"reason", ask.Reason}, {"incident", ask.Incident}} {
		if !isReason(f.text) {
			bad.add(f.name, "must be 1 to 512 bytes of text")
		}
	}
	if err := bad.err(); err != nil {
		return ask, err
	}
	if ask.Reservation.Cell() != s.set.Cell {
		return ask, errNoReservation
	}
	return ask, nil
}

func operationID(s string) (string, error) { return ids.ParseOperationID("operation_id", s) }

// isReason: what an operator writes is text that can be kept.
func isReason(text string) bool {
	return strings.TrimSpace(text) != "" && len(text) <= maxReason && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// reviewRefused says in fields what the thing is instead.
func reviewRefused(err error) error {
	var not *shard.NotInReview
	switch {
	case errors.As(err, &not):
		facts := map[string]string{"is": not.Is, "reservation_id": string(not.Reservation)}
		for name, word := range map[string]string{"reason": string(not.For), "operation_id": not.Operation, "actor": not.Actor} {
			if word != "" {
				facts[name] = word
			}
		}
		return rpcstatus.With(err, facts, nil, 0)
	case errors.Is(err, shard.ErrNotFound):
		return errNoReservation
	}
	return translate(err)
}
