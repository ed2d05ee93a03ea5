package rpcstatus

import (
	"time"
)

// Violation says which field of a request breaks which rule. Field is the path
// in proto names ("skus[2].sale_limit"), Rule a sentence that a person can act on.
type Violation struct {
	Field string
	Rule  string
}

// Detail is an error with the facts that travel in fields. Make one with With.
type Detail struct {
	err        error
	metadata   map[string]string
	violations []Violation
	retryAfter time.Duration
}

// With wraps err with its numbers (metadata, by name), its field violations and
// the time after which repeating makes sense (0: not said). It returns nil for
// a nil err. Wraps may be nested: the outer names win, violations add up.
func With(err error, metadata map[string]string, violations []Violation, retryAfter time.Duration) error {
	if err == nil {
		return nil
	}
	return &Detail{err: err, metadata: metadata, violations: violations, retryAfter: retryAfter}
}

// Invalid returns ErrInvalidArgument with violations; nil if there are none.
func Invalid(violations ...Violation) error {
	if len(violations) == 0 {
		return nil
	}
	return With(ErrInvalidArgument, nil, violations, 0)
}

// Error is the wrapped error's text, followed by the first violation.
func (d *Detail) Error() string {
	if len(d.violations) == 0 {
		return d.err.Error()
	}
	v := d.violations[0]
	text := d.err.Error() + ": " + v.Field + ": " + v.Rule
	if len(d.violations) > 1 {
		text += " (and more)"
	}
	return text
}

// Unwrap returns the wrapped error.
func (d *Detail) Unwrap() error { return d.err }

// Metadata returns the numbers err carries, by name; never nil.
func Metadata(err error) map[string]string { return gather(err).metadata }

// Violations returns err's field violations, outermost first.
func Violations(err error) []Violation { return gather(err).violations }

// RetryAfter returns after what time repeating makes sense; 0 if not said.
func RetryAfter(err error) time.Duration { return gather(err).retryAfter }

// Reason returns the reason err travels under: the one read from the wire, else
// the table's; "" for an error the table does not know, and for nil.
func Reason(err error) string { return standard.Reason(err) }

// Reason is the package's Reason on this table.
func (t *Table) Reason(err error) string {
	k, _ := t.find(err)
	return k.Reason
}

// gather folds all details in err's tree into one.
func gather(err error) Detail {
	all := Detail{metadata: map[string]string{}}
	fold(err, &all)
	return all
}

func fold(err error, into *Detail) {
	if err == nil {
		return
	}
	if d, ok := err.(*Detail); ok { //nolint:errorlint // each level of the tree is visited
		for name, value := range d.metadata {
			if _, outer := into.metadata[name]; !outer {
				into.metadata[name] = value
			}
		}
		into.violations = append(into.violations, d.violations...)
		if into.retryAfter == 0 {
			into.retryAfter = d.retryAfter
		}
	}
	for _, inner := range children(err) {
		fold(inner, into)
	}
}
