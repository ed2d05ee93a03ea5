package ctl

import (
	"context"
	"errors"

	"github.com/cellquota/cellquota/controlplane/ctl/demo"
	"github.com/cellquota/cellquota/controlplane/ctl/render"
	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Exit codes (contract, section 5).
const (
	ExitDone        = 0
	ExitUnexpected  = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitRefused     = 4
	ExitDenied      = 5
	ExitUnavailable = 6
	ExitBroken      = 7
	ExitInterrupted = 130
)

// What commands end with beside the control plane's own errors.
var (
	// errUsage: the command line or a file that it names makes no sense.
	errUsage = errors.New("wrong usage")
	// errPending: it is still under way.
	errPending = errors.New("still pending")
	// errNotYet: what was asked about is not so yet; nobody is at work on it for this
	// command.
	errNotYet = errors.New("not yet")
	// errNever: what was waited for cannot come any more.
	errNever = errors.New("that cannot come any more")
	// errUnchecked: something could not be checked.
	errUnchecked = errors.New("something could not be checked")
	// errBroken: an invariant is broken.
	errBroken = errors.New("an invariant is broken")
	// errFaulty: what was looked at is not as it must be.
	errFaulty = errors.New("not as it must be")
	// errEnded: an operation ended without its effect.
	errEnded = errors.New("the operation ended without its effect")
	// errRefused: a person said no.
	errRefused = errors.New("not confirmed")
)

// exits is the one table of exit codes; the first row that fits counts.
var exits = []struct {
	err  error
	code int
}{
	{errBroken, ExitBroken},
	{demo.ErrBroken, ExitBroken},
	{errUnchecked, ExitUnavailable},
	{demo.ErrUnchecked, ExitUnavailable},
	{errPending, ExitUnavailable},
	{errNotYet, ExitUnavailable},
	{errNever, ExitRefused},
	{errEnded, ExitRefused},
	{errFaulty, ExitRefused},
	{errRefused, ExitRefused},

	{errUsage, ExitUsage},
	{demo.ErrUsage, ExitUsage},
	{render.ErrFormat, ExitUsage},
	{target.ErrNone, ExitUsage},
	{target.ErrConfig, ExitUsage},
	{target.ErrNotLocal, ExitUsage},

	{platform.ErrNotRunning, ExitUnavailable},
	{platform.ErrUnknownProcess, ExitNotFound},
	{platform.ErrNotAlive, ExitRefused},
	{platform.ErrInvalid, ExitUsage},
	{platform.ErrStopping, ExitUnavailable},

	{rpcstatus.ErrInvalidArgument, ExitUsage},
	{rpcstatus.ErrNotFound, ExitNotFound},
	{rpcstatus.ErrConflict, ExitRefused},
	{rpcstatus.ErrAlreadyExists, ExitRefused},
	{rpcstatus.ErrFailedPrecondition, ExitRefused},
	{rpcstatus.ErrUnauthenticated, ExitDenied},
	{rpcstatus.ErrPermissionDenied, ExitDenied},
	{rpcstatus.ErrUnavailable, ExitUnavailable},
	{rpcstatus.ErrDeadline, ExitUnavailable},
	{context.DeadlineExceeded, ExitUnavailable},
	{rpcstatus.ErrExhausted, ExitUnavailable},
}

// exitCode of a command that ran under ctx, which ends when the program is interrupted.
func exitCode(ctx context.Context, err error) int {
	if err == nil {
		return ExitDone
	}
	if ctx.Err() != nil {
		return ExitInterrupted
	}
	for _, row := range exits {
		if errors.Is(err, row.err) {
			return row.code
		}
	}
	return ExitUnexpected
}
