package rpcstatus

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
)

// The sentinels that every component shares. A more precise sentinel of a core
// is registered with its own reason; the other side then finds both: the
// precise one and the shared one of the same code.
var (
	// ErrInvalidArgument: the request breaks a rule, whatever the state.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrNotFound: the named thing does not exist, or not for this caller.
	ErrNotFound = errors.New("not found")
	// ErrAlreadyExists: the id is taken, with other contents.
	ErrAlreadyExists = errors.New("already exists")
	// ErrConflict (ABORTED): the expected version is old, or a race was lost;
	// read again and decide again.
	ErrConflict = errors.New("conflict")
	// ErrFailedPrecondition: not in this state; repeating does not help.
	ErrFailedPrecondition = errors.New("failed precondition")
	// ErrUnauthenticated: no credentials, or not valid ones.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrPermissionDenied: known caller, not allowed.
	ErrPermissionDenied = errors.New("permission denied")
	// ErrUnavailable: not now, and nothing was done; repeat later.
	ErrUnavailable = errors.New("unavailable")
	// ErrDeadline: the time ran out; a write may have happened.
	ErrDeadline = errors.New("deadline exceeded")
	// ErrExhausted: a limit or a queue is full; nothing was done.
	ErrExhausted = errors.New("resource exhausted")
	// ErrUnknownOutcome (UNKNOWN): the write may or may not have happened;
	// repeat with the same id.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrUnimplemented: this server does not have the method or the option.
	ErrUnimplemented = errors.New("unimplemented")
	// ErrInternal: a bug or an unexpected failure on the other side; a write
	// may have happened.
	ErrInternal = errors.New("internal error")
	// ErrCanceled: the caller gave up; a write may have happened.
	ErrCanceled = errors.New("canceled")
)

// builtins is the table every Table begins with. The first two rows let Go's own
// context errors cross under the reasons of ErrDeadline and ErrCanceled; on the
// way back both are found (see shared).
func builtins() []Kind {
	return []Kind{
		{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
		{context.Canceled, codes.Canceled, "CANCELED"},
		{ErrInvalidArgument, codes.InvalidArgument, "INVALID_ARGUMENT"},
		{ErrNotFound, codes.NotFound, "NOT_FOUND"},
		{ErrAlreadyExists, codes.AlreadyExists, "ALREADY_EXISTS"},
		{ErrConflict, codes.Aborted, "CONFLICT"},
		{ErrFailedPrecondition, codes.FailedPrecondition, "FAILED_PRECONDITION"},
		{ErrUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED"},
		{ErrPermissionDenied, codes.PermissionDenied, "PERMISSION_DENIED"},
		{ErrUnavailable, codes.Unavailable, "UNAVAILABLE"},
		{ErrDeadline, codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
		{ErrExhausted, codes.ResourceExhausted, "RESOURCE_EXHAUSTED"},
		{ErrUnknownOutcome, codes.Unknown, "UNKNOWN_OUTCOME"},
		{ErrUnimplemented, codes.Unimplemented, "UNIMPLEMENTED"},
		{ErrInternal, codes.Internal, "INTERNAL"},
		{ErrCanceled, codes.Canceled, "CANCELED"},
	}
}

// shared returns the sentinels found on the far side by code alone.
func shared(code codes.Code) []error {
	switch code {
	case codes.InvalidArgument, codes.OutOfRange:
		return []error{ErrInvalidArgument}
	case codes.NotFound:
		return []error{ErrNotFound}
	case codes.AlreadyExists:
		return []error{ErrAlreadyExists}
	case codes.Aborted:
		return []error{ErrConflict}
	case codes.FailedPrecondition:
		return []error{ErrFailedPrecondition}
	case codes.Unauthenticated:
		return []error{ErrUnauthenticated}
	case codes.PermissionDenied:
		return []error{ErrPermissionDenied}
	case codes.Unavailable:
		return []error{ErrUnavailable}
	case codes.DeadlineExceeded:
		return []error{ErrDeadline, context.DeadlineExceeded}
	case codes.ResourceExhausted:
		return []error{ErrExhausted}
	case codes.Unimplemented:
		return []error{ErrUnimplemented}
	case codes.Internal, codes.DataLoss:
		return []error{ErrInternal}
	case codes.Canceled:
		return []error{ErrCanceled, context.Canceled}
	default:
		return []error{ErrUnknownOutcome}
	}
}
