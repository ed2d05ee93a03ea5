package store

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/controlplane/core"
)

// errRetry marks an error after which nothing was done and a new try makes sense.
var errRetry = errors.New("retry")

// readError translates a failed read: nothing was done.
func readError(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, rpctypes.ErrNoSpace) { // to grant a lease is a write
		return fmt.Errorf("%w: %s: %w: %v", errRetry, what, core.ErrStoreFull, err) //nolint:errorlint // driver errors end here
	}
	if errors.Is(err, core.ErrBroken) || errors.Is(err, core.ErrRestored) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%w: %s: %w: %v", errRetry, what, core.ErrStoreUnavailable, err) //nolint:errorlint // driver errors end here
}

// commitError translates a failed commit; unknown tells whether it may
// nevertheless have happened.
func commitError(err error) (translated error, unknown bool) {
	if errors.Is(err, core.ErrRestored) {
		return err, false
	}
	switch code(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.OutOfRange,
		codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		if errors.Is(err, rpctypes.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrTooManyOps) {
			return fmt.Errorf("%w: %v", core.ErrTooLarge, err), false //nolint:errorlint // driver errors end here
		}
		return fmt.Errorf("etcd refused the transaction: %v", err), false //nolint:errorlint // driver errors end here
	case codes.ResourceExhausted:
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return fmt.Errorf("%w: %v", core.ErrStoreFull, err), false //nolint:errorlint // driver errors end here
		}
		// Too many requests: refused before it was proposed.
		return fmt.Errorf("%w: %v", core.ErrStoreUnavailable, err), false //nolint:errorlint // driver errors end here
	default:
		return fmt.Errorf("%w: %v", core.ErrUnknownOutcome, err), true //nolint:errorlint // driver errors end here
	}
}

func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	if errors.Is(err, context.Canceled) {
		return codes.Canceled
	}
	return status.Code(err)
}
