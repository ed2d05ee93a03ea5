package ctl

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cellquota/cellquota/controlplane/ctl/target"
	"github.com/cellquota/cellquota/deploy/local/platform"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// usage makes an error of the command line.
func usage(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...), nil}
}

// faulty is an error of a file or flag with every rule that it breaks.
func faulty(what string, violations []rpcstatus.Violation) error {
	return &usageError{what, violations}
}

// faults counts them in words.
func faults(n int) string {
	if n == 1 {
		return "1 fault"
	}
	return fmt.Sprintf("%d faults", n)
}

// usageError says its own text and is errUsage.
type usageError struct {
	text       string
	violations []rpcstatus.Violation
}

func (e *usageError) Error() string { return e.text }
func (e *usageError) Unwrap() error { return errUsage }

// advice is what to do about an error; the first row that fits counts.
var advice = []struct {
	err error
	say string
}{
	{errPending, "it goes on without you: cellctl op wait ID"},
	{errNotYet, "it takes nothing to ask again; --timeout gives it longer where the command waits"},
	{errUnchecked, "bring back what did not answer, then check again"},
	{errBroken, "stop selling and keep the data: the breaches above name what to look at"},
	{target.ErrNone, "give --endpoints-file FILE or --context NAME, or set " + target.EndpointsVariable},
	{target.ErrNotLocal, "start one with: cellquota-dev up --data-dir .dev --cells 4"},
	{platform.ErrNotRunning, "start it with: cellquota-dev up --data-dir DIR; the file is there when everything is ready"},
	{errUsage, "see --help"},
	{rpcstatus.ErrConflict, "read the present state and decide again; the same --operation-id answers only the same parameters"},
	{rpcstatus.ErrUnauthenticated, "check the token of this context"},
	{rpcstatus.ErrPermissionDenied, "use a role that may do this (--role), or ask who holds it"},
	{rpcstatus.ErrUnavailable, "nothing was done; try again"},
	{rpcstatus.ErrDeadline, "it may have been done: repeat with the same --operation-id, or give it longer with --timeout"},
	{rpcstatus.ErrUnknownOutcome, "it may have been done: repeat with the same --operation-id"},
	{rpcstatus.ErrInternal, "it may have been done: repeat with the same --operation-id; the control plane's log says more"},
}

// tell writes an error for a person: what, why, what to do.
func tell(w io.Writer, err error) {
	fmt.Fprintf(w, "cellctl: %s\n", strings.TrimSpace(err.Error()))
	violations := rpcstatus.Violations(err)
	var u *usageError
	if errors.As(err, &u) {
		violations = append(violations, u.violations...)
	}
	for _, v := range violations {
		if v.Field == "" {
			fmt.Fprintf(w, "  %s\n", v.Rule)
			continue
		}
		fmt.Fprintf(w, "  %s: %s\n", v.Field, v.Rule)
	}
	if after := rpcstatus.RetryAfter(err); after > 0 {
		fmt.Fprintf(w, "  again after %s\n", after.Round(time.Millisecond))
	}
	for _, row := range advice {
		if errors.Is(err, row.err) {
			fmt.Fprintf(w, "  → %s\n", row.say)
			return
		}
	}
}
