package api

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/status"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

var (
	// errNoOrder: no such order here, or not of this user.
	errNoOrder = errors.New("no such order of this user in this cell")
	// errNoFinding: this shard has no such finding.
	errNoFinding = errors.New("no such finding in this cell")
	// errFenced: this process may not write; nothing was done.
	errFenced = errors.New("this cell may not write now: it is fenced or has not registered")
)

// Kinds are the rows of the status table that this package's callers meet. cell.Run registers them.
func Kinds() []rpcstatus.Kind {
	return []rpcstatus.Kind{
		{Err: reservation.ErrOrderPaid, Code: codes.FailedPrecondition, Reason: "ORDER_PAID"},
		{Err: reservation.ErrOrderClosed, Code: codes.FailedPrecondition, Reason: "ORDER_CLOSED"},
		{Err: reservation.ErrPaymentInProgress, Code: codes.FailedPrecondition, Reason: "PAYMENT_IN_PROGRESS"},
		{Err: shard.ErrNeverPaid, Code: codes.FailedPrecondition, Reason: "ORDER_NOT_PAID"},
		{Err: shard.ErrRefundUnderWay, Code: codes.FailedPrecondition, Reason: "REFUND_UNDER_WAY"},
		{Err: shard.ErrRefunded, Code: codes.FailedPrecondition, Reason: "ORDER_REFUNDED"},
		{Err: shard.ErrRefundIDUsed, Code: codes.AlreadyExists, Reason: "REFUND_ID_USED"},
		{Err: reservation.ErrNotInReview, Code: codes.FailedPrecondition, Reason: "NOT_IN_REVIEW"},
		{Err: shard.ErrOperationUsed, Code: codes.AlreadyExists, Reason: "OPERATION_ID_USED"},
		{Err: errNoReservation, Code: codes.NotFound, Reason: "RESERVATION_NOT_FOUND"},
		{Err: shard.ErrUnsupported, Code: codes.FailedPrecondition, Reason: "SCHEMA_TOO_OLD"},
		{Err: shard.ErrPaymentMismatch, Code: codes.FailedPrecondition, Reason: "PAYMENT_MISMATCH"},
		{Err: shard.ErrOrderUnknown, Code: codes.NotFound, Reason: "ORDER_UNKNOWN"},
		{Err: errNoOrder, Code: codes.NotFound, Reason: "ORDER_NOT_FOUND"},
		{Err: errNoFinding, Code: codes.NotFound, Reason: "UNKNOWN_FINDING"},
		{Err: shard.ErrRepair, Code: codes.FailedPrecondition, Reason: "ACTION_REFUSED"},
		{Err: errFenced, Code: codes.FailedPrecondition, Reason: "FENCED"},
		{Err: shard.ErrUnavailable, Code: codes.Unavailable, Reason: "SHARD_UNAVAILABLE"},
		{Err: shard.ErrUnknownCommit, Code: codes.Unknown, Reason: "COMMIT_UNKNOWN"},
		{Err: shard.ErrConflict, Code: codes.AlreadyExists, Reason: "PAYMENT_CONFLICT"},
		{Err: shard.ErrInvalid, Code: codes.InvalidArgument, Reason: "REFUSED_BY_SHARD"},
		{Err: status.ErrNotFound, Code: codes.NotFound, Reason: "REQUEST_NOT_FOUND"},
		{Err: status.ErrUnavailable, Code: codes.Unavailable, Reason: "STATUS_UNAVAILABLE"},
		{Err: status.ErrReceipt, Code: codes.InvalidArgument, Reason: "RECEIPT_INVALID"},
	}
}

// translate gives the shard's refusals the names that callers know.
func translate(err error) error {
	switch {
	case errors.Is(err, shard.ErrOrderUnknown):
		return err
	case errors.Is(err, shard.ErrNotFound):
		return errNoOrder
	case errors.Is(err, shard.ErrFenced), errors.Is(err, shard.ErrNoWriter), errors.Is(err, shard.ErrState), errors.Is(err, shard.ErrNoFence):
		return fmt.Errorf("%w: %w", errFenced, err)
	default:
		return err
	}
}
