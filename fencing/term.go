package fencing

import (
	"cmp"
	"errors"
	"fmt"
)

// Term says which control-plane leader speaks. Count grows with every election;
// ID is random, minted with it. The zero value is the term before the first
// leader.
//
// Count alone would not do: when etcd is restored from a backup, counts are
// given out a second time (architecture 3). The id makes the second leader of a
// count visible.
type Term struct {
	Count int64
	ID    string
}

var (
	// ErrTermLower: the speaker was leader once and is not any more. It must
	// stop; the message is dropped.
	ErrTermLower = errors.New("the term is lower than one already seen")
	// ErrTermConflict: two leaders hold one count. etcd lost its past (RESTORED):
	// nothing may be granted until an operator has looked.
	ErrTermConflict = errors.New("the term is known with another id")
	// ErrTerm: not a term that a leader can hold.
	ErrTerm = errors.New("a term needs a count of at least 1 and an id")
)

// Check tells whether a leader can hold t: ErrTerm for the zero value and for a
// count without an id.
func (t Term) Check() error {
	if t.Count < 1 || t.ID == "" {
		return fmt.Errorf("%s: %w", t, ErrTerm)
	}
	return nil
}

// IsZero tells whether t is the term before the first leader.
func (t Term) IsZero() bool { return t == Term{} }

// Compare orders terms by count: -1 where t is older than other, +1 where newer.
// 0 does not mean that they are the same: two ids of one count are a conflict.
func (t Term) Compare(other Term) int { return cmp.Compare(t.Count, other.Count) }

// Raise gives the highest term seen after offered was heard: offered, if it is
// newer than t or the same. ErrTermLower, ErrTermConflict or ErrTerm otherwise,
// with t unchanged. A holder must keep what Raise gave before it acts on the
// message.
func (t Term) Raise(offered Term) (Term, error) {
	if err := offered.Check(); err != nil {
		return t, err
	}
	switch {
	case offered.Count < t.Count:
		return t, fmt.Errorf("%s after %s: %w", offered, t, ErrTermLower)
	case offered.Count == t.Count && offered.ID != t.ID:
		return t, fmt.Errorf("%s beside %s: %w", offered, t, ErrTermConflict)
	}
	return offered, nil
}

// String gives "count/id".
func (t Term) String() string { return fmt.Sprintf("%d/%.64s", t.Count, t.ID) }
