package rpcstatus

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"sync"

	"google.golang.org/grpc/codes"
)

// Kind is one row: a sentinel, the code it travels under and the reason by
// which it is found again. Reasons are upper snake case and part of the outside
// contract: scripts compare them.
type Kind struct {
	Err    error
	Code   codes.Code
	Reason string
}

// Table maps sentinels to statuses and back. It is safe for concurrent use.
// Programs use the package's functions, which share one; a test that wants its
// own sentinels makes one with NewTable.
type Table struct {
	mu       sync.RWMutex
	bySent   map[error]Kind
	byReason map[string]Kind
}

// standard is the process's table.
var standard = newTable()

func newTable() *Table {
	t := &Table{bySent: map[error]Kind{}, byReason: map[string]Kind{}}
	for _, k := range builtins() { // a later row of the same reason is the one found by it
		t.bySent[k.Err], t.byReason[k.Reason] = k, k
	}
	return t
}

// NewTable returns a table of the built-in rows and kinds.
func NewTable(kinds ...Kind) (*Table, error) {
	t := newTable()
	return t, t.Register(kinds...)
}

// Register adds rows to the process's table; see Table.Register.
func Register(kinds ...Kind) error { return standard.Register(kinds...) }

var reasonGrammar = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,62}$`)

// Register adds rows, all or none. A sentinel or a reason that is already there
// with other values is an error, since one side would then read what the other
// did not say; the very same row again is not, since two components may be
// wired in one process.
func (t *Table) Register(kinds ...Kind) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var problems []error
	fresh := map[error]Kind{}
	reasons := map[string]bool{}
	for _, k := range kinds {
		known, err := t.check(k)
		if err == nil && !known {
			if _, twice := fresh[k.Err]; twice || reasons[k.Reason] {
				err = fmt.Errorf("rpcstatus: %s: sentinel or reason given twice", k.Reason)
			}
			fresh[k.Err], reasons[k.Reason] = k, true
		}
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	for sentinel, k := range fresh {
		t.bySent[sentinel], t.byReason[k.Reason] = k, k
	}
	return nil
}

// check validates one row and reports whether it is in the table already.
func (t *Table) check(k Kind) (known bool, err error) {
	switch {
	case k.Err == nil || !reflect.TypeOf(k.Err).Comparable():
		return false, fmt.Errorf("rpcstatus: reason %q: the sentinel must be a comparable error", k.Reason)
	case k.Code == codes.OK || k.Code > codes.Unauthenticated:
		return false, fmt.Errorf("rpcstatus: reason %q: code %v is not an error", k.Reason, k.Code)
	case !reasonGrammar.MatchString(k.Reason):
		return false, fmt.Errorf("rpcstatus: reason %q: must match %v", k.Reason, reasonGrammar)
	}
	bySent, sameSent := t.bySent[k.Err]
	byReason, sameReason := t.byReason[k.Reason]
	switch {
	case !sameSent && !sameReason:
		return false, nil
	case bySent == k && byReason == k:
		return true, nil
	case sameSent:
		return false, fmt.Errorf("rpcstatus: sentinel %w: already registered as %v %s, now as %v %s",
			k.Err, bySent.Code, bySent.Reason, k.Code, k.Reason)
	default:
		return false, fmt.Errorf("rpcstatus: reason %s: already registered for %w, now for %w", k.Reason, byReason.Err, k.Err)
	}
}

// find returns the row of the outermost sentinel in err's tree: in
// fmt.Errorf("%w: %w", a, b) a counts, and a wrapper counts before what it wraps.
func (t *Table) find(err error) (Kind, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.walk(err)
}

func (t *Table) walk(err error) (Kind, bool) {
	if err == nil {
		return Kind{}, false
	}
	if reflect.TypeOf(err).Comparable() {
		if k, ok := t.bySent[err]; ok {
			return k, true
		}
	}
	if r, ok := err.(*Remote); ok && r.reason != "" { //nolint:errorlint // one level of the tree is meant
		return t.remoteKind(r), true
	}
	for _, inner := range children(err) {
		if k, ok := t.walk(inner); ok {
			return k, true
		}
	}
	return Kind{}, false
}

// remoteKind is the row of an error read from the wire. A reason this process
// does not know, of a newer server, passes on unchanged.
func (t *Table) remoteKind(r *Remote) Kind {
	if k, ok := t.byReason[r.reason]; ok {
		return k
	}
	return Kind{r, r.Code(), r.reason}
}

// children returns what err wraps, if anything.
func children(err error) []error {
	switch w := err.(type) { //nolint:errorlint // one level of the tree is meant
	case interface{ Unwrap() error }:
		return []error{w.Unwrap()}
	case interface{ Unwrap() []error }:
		return w.Unwrap()
	default:
		return nil
	}
}

// lookup returns the row of a reason read from the wire.
func (t *Table) lookup(reason string) (Kind, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	k, ok := t.byReason[reason]
	return k, ok
}
