package demo

import "errors"

// What a demo ends with, beside the errors of its parts.
var (
	// ErrBroken: an invariant is broken, or a table does not sum.
	ErrBroken = errors.New("the demo found an invariant broken")
	// ErrUnchecked: something could not be checked at the end.
	ErrUnchecked = errors.New("the demo could not check everything")
	// ErrUsage: a setting makes no sense.
	ErrUsage = errors.New("invalid demo setting")
)
