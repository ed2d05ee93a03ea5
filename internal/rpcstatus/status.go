package rpcstatus

import (
	"errors"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the ErrorInfo domain of every status of ours.
const Domain = "cellquota"

// Bounds of what travels in a trailer. More violations or names are dropped, a
// longer text is cut.
const (
	maxText       = 1024
	maxViolations = 64
	maxMetadata   = 32
	maxValue      = 256
)

// hidden is all a caller is told about an error the table does not know.
const hidden = "internal error"

// ToStatus returns err as a gRPC status error, by the process's table; nil for nil.
func ToStatus(err error) error { return standard.ToStatus(err) }

// FromStatus returns a status error as a Remote, by the process's table; nil for
// nil, and err itself where it is no status.
func FromStatus(err error) error { return standard.FromStatus(err) }

// ToStatus is the package's ToStatus on this table. A status that is already
// there (UNIMPLEMENTED by grpc itself, a broken stream) passes as it is, except
// that a text under INTERNAL or UNKNOWN is hidden.
func (t *Table) ToStatus(err error) error {
	st, _ := t.convert(err)
	return st
}

// convert also reports whether err's text was hidden, and so has to be logged.
func (t *Table) convert(err error) (st error, unknown bool) {
	if err == nil {
		return nil, false
	}
	if k, ok := t.find(err); ok && k.Code != codes.Internal {
		return t.render(k, err), false
	}
	if code, ok := passable(err); ok {
		return status.Error(code, cut(status.Convert(err).Message(), maxText)), false
	}
	return t.render(Kind{ErrInternal, codes.Internal, "INTERNAL"}, errHidden), true
}

var errHidden = errors.New(hidden)

// passable returns the code of a status built by grpc, whose text is harmless.
func passable(err error) (codes.Code, bool) {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) {
		return codes.OK, false
	}
	switch code := s.GRPCStatus().Code(); code {
	case codes.OK, codes.Unknown, codes.Internal, codes.DataLoss:
		return codes.OK, false
	default:
		return code, true
	}
}

// render builds the status of one row, with err's text and details.
func (t *Table) render(k Kind, err error) error {
	d := gather(err)
	details := []protoadapt.MessageV1{info(k.Reason, d.metadata)}
	if len(d.violations) > 0 {
		details = append(details, badRequest(d.violations))
	}
	if d.retryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(d.retryAfter)})
	}
	plain := status.New(k.Code, cut(err.Error(), maxText))
	rich, detailErr := plain.WithDetails(details...)
	if detailErr != nil { // cannot happen: the code is never OK and the messages are known
		return plain.Err()
	}
	return rich.Err()
}

func info(reason string, metadata map[string]string) *errdetails.ErrorInfo {
	out := &errdetails.ErrorInfo{Reason: reason, Domain: Domain}
	names := slices.Sorted(maps.Keys(metadata))
	if len(names) > maxMetadata {
		names = names[:maxMetadata]
	}
	if len(names) > 0 {
		out.Metadata = make(map[string]string, len(names))
	}
	for _, name := range names {
		out.Metadata[cut(name, maxValue)] = cut(metadata[name], maxValue)
	}
	return out
}

func badRequest(violations []Violation) *errdetails.BadRequest {
	if len(violations) > maxViolations {
		violations = violations[:maxViolations]
	}
	out := &errdetails.BadRequest{}
	for _, v := range violations {
		out.FieldViolations = append(out.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: cut(v.Field, maxValue), Description: cut(v.Rule, maxValue),
		})
	}
	return out
}

// cut makes s valid UTF-8 of at most limit bytes, as protobuf needs.
func cut(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if r, size := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && size == 1 {
			s = s[:len(s)-1]
		}
	}
	return toValid(s)
}

func retryDelay(d *durationpb.Duration) time.Duration {
	if d == nil || !d.IsValid() || d.AsDuration() < 0 {
		return 0
	}
	return d.AsDuration()
}
