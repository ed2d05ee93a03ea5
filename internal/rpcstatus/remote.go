package rpcstatus

import (
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Remote is an error another process answered with. errors.Is finds the
// registered sentinel of its reason and the shared one of its code.
type Remote struct {
	st     *status.Status
	reason string  // "" where the other side named none of our domain
	causes []error // sentinel of the reason, shared sentinels, details
}

// Error is the other side's text. It names no transport: the caller wraps it
// with what it was doing.
func (r *Remote) Error() string { return r.st.Message() }

// Unwrap returns the sentinels that r stands for.
func (r *Remote) Unwrap() []error { return r.causes }

// Code is the status code r came with.
func (r *Remote) Code() codes.Code { return r.st.Code() }

// GRPCStatus lets the grpc packages see the status again.
func (r *Remote) GRPCStatus() *status.Status { return r.st }

// FromStatus is the package's FromStatus on this table.
func (t *Table) FromStatus(err error) error {
	if err == nil {
		return nil
	}
	var known *Remote
	if errors.As(err, &known) {
		return err
	}
	st, ok := status.FromError(err)
	if !ok || st.Code() == codes.OK {
		return err
	}
	return t.remote(st)
}

// remote reads a status: sentinel by reason first, so that it is the outermost.
func (t *Table) remote(st *status.Status) *Remote {
	r := &Remote{st: st}
	var d Detail
	for _, detail := range st.Details() {
		switch m := detail.(type) {
		case *errdetails.ErrorInfo:
			if m.GetDomain() == Domain {
				r.reason, d.metadata = m.GetReason(), m.GetMetadata()
			}
		case *errdetails.BadRequest:
			for _, v := range m.GetFieldViolations() {
				d.violations = append(d.violations, Violation{v.GetField(), v.GetDescription()})
			}
		case *errdetails.RetryInfo:
			d.retryAfter = retryDelay(m.GetRetryDelay())
		}
	}
	if k, ok := t.lookup(r.reason); ok {
		r.causes = append(r.causes, k.Err)
	}
	r.causes = append(r.causes, shared(st.Code())...)
	r.causes = append(r.causes, &Detail{err: errFacts, metadata: d.metadata, violations: d.violations, retryAfter: d.retryAfter})
	return r
}

// errFacts carries a Remote's details in its tree; it is no sentinel of anyone.
var errFacts = errors.New("details of a remote error")

// MayHaveHappened reports whether a call that failed with err may nevertheless
// have had its effect: true unless somebody said that nothing was done. Retry
// policy asks this, never a text or a code.
//
// A status without a reason of ours is the transport's: the connection may have
// broken, or the answer been too large, after the work was done. Of those only
// UNIMPLEMENTED is certain.
func MayHaveHappened(err error) bool {
	if err == nil {
		return true
	}
	var r *Remote
	if !errors.As(err, &r) {
		return !refusedHere(err)
	}
	if r.reason == "" {
		return r.Code() != codes.Unimplemented
	}
	return uncertain(r.Code())
}

// uncertain reports whether a handler that answers with code may have written.
func uncertain(code codes.Code) bool {
	switch code {
	case codes.Unknown, codes.Internal, codes.DataLoss, codes.DeadlineExceeded, codes.Canceled:
		return true
	default:
		return false
	}
}

// refusedHere reports whether a local error says that nothing was done.
func refusedHere(err error) bool {
	k, ok := standard.find(err)
	return ok && !uncertain(k.Code)
}

func toValid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
