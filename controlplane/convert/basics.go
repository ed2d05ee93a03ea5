package convert

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/allocator/quantity"
)

// enum reads an enum of the wire; what does not fit becomes a value that no
// Check accepts.
func enum[C ~uint8, P ~int32](v P) C {
	if v < 0 || v > math.MaxUint8 {
		return C(math.MaxUint8)
	}
	return C(v)
}

// Time gives an instant for the wire; nil for the zero time.
func Time(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// FromTime reads an instant; the zero time for nil or an invalid one.
func FromTime(t *timestamppb.Timestamp) time.Time {
	if t == nil || t.CheckValid() != nil {
		return time.Time{}
	}
	return t.AsTime()
}

func duration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

func fromDuration(d *durationpb.Duration) time.Duration {
	if d == nil || d.CheckValid() != nil {
		return 0
	}
	return d.AsDuration()
}

// reader gathers the first number that does not fit, so that decoding reads as a
// list of fields.
type reader struct{ err error }

func (r *reader) units(field string, n int32) quantity.Quantity {
	q, err := quantity.New(int64(n))
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%s: %w", field, err)
	}
	return q
}

func mapped[A, B any](in []A, to func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = to(v)
	}
	return out
}

func texts[A, B ~string](in []A) []B { return mapped(in, func(a A) B { return B(a) }) }

// Texts gives ids for the wire.
func Texts[A ~string](in []A) []string { return texts[A, string](in) }
