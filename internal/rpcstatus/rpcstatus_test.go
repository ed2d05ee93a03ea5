package rpcstatus_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

var errFenced = errors.New("the fence version is old")

// wire is a table with one sentinel of a core in it.
func wire(t *testing.T) *rpcstatus.Table {
	t.Helper()
	table, err := rpcstatus.NewTable(rpcstatus.Kind{Err: errFenced, Code: codes.FailedPrecondition, Reason: "FENCED"})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// cross sends err over the wire and back.
func cross(table *rpcstatus.Table, err error) error {
	return table.FromStatus(status.FromProto(status.Convert(table.ToStatus(err)).Proto()).Err())
}

func TestEverySharedSentinelCrosses(t *testing.T) {
	cases := map[error]codes.Code{
		rpcstatus.ErrInvalidArgument:    codes.InvalidArgument,
		rpcstatus.ErrNotFound:           codes.NotFound,
		rpcstatus.ErrAlreadyExists:      codes.AlreadyExists,
		rpcstatus.ErrConflict:           codes.Aborted,
		rpcstatus.ErrFailedPrecondition: codes.FailedPrecondition,
		rpcstatus.ErrUnauthenticated:    codes.Unauthenticated,
		rpcstatus.ErrPermissionDenied:   codes.PermissionDenied,
		rpcstatus.ErrUnavailable:        codes.Unavailable,
		rpcstatus.ErrDeadline:           codes.DeadlineExceeded,
		rpcstatus.ErrExhausted:          codes.ResourceExhausted,
		rpcstatus.ErrUnknownOutcome:     codes.Unknown,
		rpcstatus.ErrUnimplemented:      codes.Unimplemented,
		rpcstatus.ErrInternal:           codes.Internal,
		rpcstatus.ErrCanceled:           codes.Canceled,
		context.DeadlineExceeded:        codes.DeadlineExceeded,
		context.Canceled:                codes.Canceled,
		errFenced:                       codes.FailedPrecondition,
	}
	table := wire(t)
	for sentinel, code := range cases {
		sent := table.ToStatus(fmt.Errorf("while reserving: %w", sentinel))
		if got := status.Code(sent); got != code {
			t.Errorf("%v: code %v, want %v", sentinel, got, code)
		}
		back := cross(table, fmt.Errorf("while reserving: %w", sentinel))
		if !errors.Is(back, sentinel) {
			t.Errorf("%v: came back as %v", sentinel, back)
		}
		for other := range cases {
			if errors.Is(back, other) && code != cases[other] {
				t.Errorf("%v: came back as %v too", sentinel, other)
			}
		}
	}
}

func TestAPreciseSentinelIsItsSharedOneToo(t *testing.T) {
	back := cross(wire(t), errFenced)
	if !errors.Is(back, errFenced) || !errors.Is(back, rpcstatus.ErrFailedPrecondition) {
		t.Fatalf("got %v", back)
	}
	if wire(t).Reason(back) != "FENCED" {
		t.Fatalf("reason %q", wire(t).Reason(back))
	}
}

func TestTheOutermostSentinelCounts(t *testing.T) {
	table := wire(t)
	for _, err := range []error{
		fmt.Errorf("%w: %w", errFenced, rpcstatus.ErrNotFound),
		errors.Join(errFenced, context.Canceled),
		rpcstatus.With(errFenced, map[string]string{"a": "1"}, nil, 0),
	} {
		if got := table.Reason(err); got != "FENCED" {
			t.Errorf("%v: reason %q", err, got)
		}
	}
}

func TestFactsCross(t *testing.T) {
	inner := rpcstatus.With(errFenced, map[string]string{"fence_version": "7", "asked": "3"},
		[]rpcstatus.Violation{{Field: "skus[2].sale_limit", Rule: "must be at most 1000000000"}}, time.Second)
	outer := rpcstatus.With(fmt.Errorf("cell-1: %w", inner), map[string]string{"asked": "4"},
		[]rpcstatus.Violation{{Field: "reason", Rule: "is required"}}, 250*time.Millisecond)
	for name, err := range map[string]error{"here": outer, "there": cross(wire(t), outer)} {
		if got, want := rpcstatus.Metadata(err), map[string]string{"fence_version": "7", "asked": "4"}; !maps.Equal(got, want) {
			t.Errorf("%s: metadata %v, want %v", name, got, want)
		}
		want := []rpcstatus.Violation{
			{Field: "reason", Rule: "is required"},
			{Field: "skus[2].sale_limit", Rule: "must be at most 1000000000"},
		}
		if got := rpcstatus.Violations(err); !slices.Equal(got, want) {
			t.Errorf("%s: violations %v", name, got)
		}
		if got := rpcstatus.RetryAfter(err); got != 250*time.Millisecond {
			t.Errorf("%s: retry after %v", name, got)
		}
	}
	if back := cross(wire(t), outer); !strings.Contains(back.Error(), "cell-1: the fence version is old: skus[2].sale_limit") {
		t.Errorf("text %q", back)
	}
}

func TestFactsOfNothing(t *testing.T) {
	if rpcstatus.With(nil, nil, nil, 0) != nil || rpcstatus.Invalid() != nil ||
		rpcstatus.ToStatus(nil) != nil || rpcstatus.FromStatus(nil) != nil {
		t.Error("nil stays nil")
	}
	if rpcstatus.Metadata(nil) == nil || len(rpcstatus.Metadata(nil)) != 0 || rpcstatus.Reason(nil) != "" ||
		rpcstatus.Violations(nil) != nil || rpcstatus.RetryAfter(nil) != 0 {
		t.Error("nil has no facts")
	}
}

func TestUnknownTextsAreHidden(t *testing.T) {
	secret := "password=hunter2"
	for _, err := range []error{
		errors.New(secret),
		fmt.Errorf("x: %w", status.Error(codes.Unknown, secret)),
		status.Error(codes.Internal, secret),
		fmt.Errorf("%w: %s", rpcstatus.ErrInternal, secret),
	} {
		st := status.Convert(rpcstatus.ToStatus(err))
		if st.Code() != codes.Internal || strings.Contains(st.String(), secret) {
			t.Errorf("%v: sent as %v", err, st)
		}
	}
}

func TestStatusesOfGrpcPass(t *testing.T) {
	err := status.Error(codes.Unimplemented, "method Nope not implemented")
	if st := status.Convert(rpcstatus.ToStatus(err)); st.Code() != codes.Unimplemented || st.Message() != "method Nope not implemented" {
		t.Fatalf("got %v", st)
	}
}

func TestARelayKeepsWhatItReceived(t *testing.T) {
	far := wire(t)
	first := far.ToStatus(rpcstatus.With(errFenced, map[string]string{"n": "1"}, nil, time.Second))
	near, err := rpcstatus.NewTable() // an older process: it does not know FENCED
	if err != nil {
		t.Fatal(err)
	}
	relayed := near.ToStatus(fmt.Errorf("asking cell-1: %w", near.FromStatus(first)))
	back := far.FromStatus(relayed)
	if !errors.Is(back, errFenced) || rpcstatus.Metadata(back)["n"] != "1" || rpcstatus.RetryAfter(back) != time.Second {
		t.Fatalf("got %v, %v", back, rpcstatus.Metadata(back))
	}
	if near.Reason(near.FromStatus(first)) != "FENCED" {
		t.Error("an unknown reason can be read")
	}
}

func TestFromStatusLeavesOtherErrors(t *testing.T) {
	plain := errors.New("no status")
	if got := rpcstatus.FromStatus(plain); !errors.Is(got, plain) {
		t.Errorf("got %v", got)
	}
	once := rpcstatus.FromStatus(status.Error(codes.NotFound, "x"))
	if got := rpcstatus.FromStatus(once); !errors.Is(got, once) {
		t.Error("a Remote is not wrapped twice")
	}
	if status.Code(once) != codes.NotFound {
		t.Error("a Remote still shows its status")
	}
}

func TestForeignDomainsGiveNoReason(t *testing.T) {
	st, err := status.New(codes.NotFound, "x").WithDetails(&errdetails.ErrorInfo{Reason: "FENCED", Domain: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	back := wire(t).FromStatus(st.Err())
	if errors.Is(back, errFenced) || !errors.Is(back, rpcstatus.ErrNotFound) {
		t.Fatalf("got %v", back)
	}
}

func TestBounds(t *testing.T) {
	metadata := map[string]string{}
	var violations []rpcstatus.Violation
	for i := range 200 {
		metadata[fmt.Sprintf("name-%03d", i)] = strings.Repeat("é", 500)
		violations = append(violations, rpcstatus.Violation{Field: fmt.Sprintf("f[%d]", i), Rule: strings.Repeat("ü", 500)})
	}
	text := strings.Repeat("ж", 2000) + "\xff"
	back := cross(wire(t), rpcstatus.With(fmt.Errorf("%w: %s", errFenced, text), metadata, violations, 0))
	if n := len(rpcstatus.Metadata(back)); n != 32 {
		t.Errorf("%d names", n)
	}
	if n := len(rpcstatus.Violations(back)); n != 64 {
		t.Errorf("%d violations", n)
	}
	if n := len(back.Error()); n > 1024 || !utf8.ValidString(back.Error()) {
		t.Errorf("%d bytes of text, valid %v", n, utf8.ValidString(back.Error()))
	}
	for _, v := range rpcstatus.Metadata(back) {
		if len(v) > 256 || !utf8.ValidString(v) {
			t.Fatalf("value of %d bytes", len(v))
		}
	}
	if size := len(status.Convert(wire(t).ToStatus(back)).Proto().String()); size > 100_000 {
		t.Errorf("a status of %d bytes", size)
	}
}

func TestRegister(t *testing.T) {
	errA, errB := errors.New("a"), errors.New("b")
	row := rpcstatus.Kind{Err: errA, Code: codes.Aborted, Reason: "A"}
	cases := map[string]struct {
		kinds []rpcstatus.Kind
		want  string
	}{
		"the same row again":     {[]rpcstatus.Kind{row}, ""},
		"a new row":              {[]rpcstatus.Kind{{Err: errB, Code: codes.NotFound, Reason: "B"}}, ""},
		"sentinel, other reason": {[]rpcstatus.Kind{{Err: errA, Code: codes.Aborted, Reason: "A2"}}, "already registered"},
		"sentinel, other code":   {[]rpcstatus.Kind{{Err: errA, Code: codes.NotFound, Reason: "A"}}, "already registered"},
		"reason of another":      {[]rpcstatus.Kind{{Err: errB, Code: codes.Aborted, Reason: "A"}}, "already registered"},
		"reason of ours":         {[]rpcstatus.Kind{{Err: errB, Code: codes.NotFound, Reason: "NOT_FOUND"}}, "already registered"},
		"twice at once":          {[]rpcstatus.Kind{{Err: errB, Code: codes.NotFound, Reason: "B"}, {Err: errB, Code: codes.NotFound, Reason: "C"}}, "given twice"},
		"no error":               {[]rpcstatus.Kind{{Code: codes.NotFound, Reason: "B"}}, "comparable"},
		"OK":                     {[]rpcstatus.Kind{{Err: errB, Reason: "B"}}, "not an error"},
		"lower case":             {[]rpcstatus.Kind{{Err: errB, Code: codes.NotFound, Reason: "b"}}, "must match"},
		"not comparable":         {[]rpcstatus.Kind{{Err: uncomparable{"x"}, Code: codes.NotFound, Reason: "B"}}, "comparable"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			table, err := rpcstatus.NewTable(row)
			if err != nil {
				t.Fatal(err)
			}
			err = table.Register(c.kinds...)
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if c.want != "" && table.Reason(errB) != "" {
				t.Error("a refused call must add nothing")
			}
		})
	}
}

// uncomparable cannot be the key of a map.
type uncomparable []string

func (uncomparable) Error() string { return "uncomparable" }

func TestUncomparableErrorsAreNoTrouble(t *testing.T) {
	if got := wire(t).Reason(errors.Join(uncomparable{"x"}, errFenced)); got != "FENCED" {
		t.Fatalf("got %q", got)
	}
}

func TestMayHaveHappened(t *testing.T) {
	table := wire(t)
	refused := []error{
		errors.Join(rpcstatus.ErrNotFound), rpcstatus.ErrUnavailable,
		cross(table, errFenced), cross(table, rpcstatus.ErrUnavailable), cross(table, rpcstatus.ErrExhausted),
		rpcstatus.FromStatus(status.Error(codes.Unimplemented, "no such method")),
	}
	maybe := []error{
		nil, errors.New("anything"), rpcstatus.ErrUnknownOutcome, context.DeadlineExceeded,
		cross(table, rpcstatus.ErrUnknownOutcome), cross(table, rpcstatus.ErrInternal), cross(table, context.Canceled),
		rpcstatus.FromStatus(status.Error(codes.Unavailable, "connection reset")),
		rpcstatus.FromStatus(status.Error(codes.ResourceExhausted, "the answer is too large")),
	}
	for _, err := range refused {
		if rpcstatus.MayHaveHappened(err) {
			t.Errorf("%v: was refused", err)
		}
	}
	for _, err := range maybe {
		if !rpcstatus.MayHaveHappened(err) {
			t.Errorf("%v: may have happened", err)
		}
	}
}
