package allocator

import (
	"errors"
	"fmt"
)

// MaxCells is the most cells that may hold units of one SKU.
const MaxCells = 1_000

// ErrInvalid is wrapped by every *Error: the request cannot be decided as it
// stands and nothing was decided. A caller maps it to INVALID_ARGUMENT.
var ErrInvalid = errors.New("invalid allocation request")

// The rules a request can break; each *Error wraps exactly one of them.
var (
	ErrNoCells           = errors.New("at least one cell is needed")
	ErrTooManyCells      = errors.New("at most 1000 cells may hold a SKU")
	ErrCellUnnamed       = errors.New("a cell needs an id")
	ErrDuplicateCell     = errors.New("a cell may be named only once")
	ErrNoWeight          = errors.New("at least one cell needs a weight above 0")
	ErrWeightSum         = errors.New("the sum must be below 2^64")
	ErrReserveAboveLimit = errors.New("the reserve must not be above sale_limit")
	ErrReserveSyntax     = errors.New(`must be units ("400") or a percentage of sale_limit ("4%")`)
	ErrPercent           = errors.New(`must be a percentage from "0%" to "100%" with at most 4 decimals`)
	ErrExplicitSum       = errors.New("the units of all cells must add up to sale_limit minus reserve")
	ErrPolicy            = errors.New("must be EQUAL, WEIGHTED, EXPLICIT or DEMAND")
	ErrBucketCount       = errors.New("must be from 1 to 4096")
	ErrRanges            = errors.New("ranges must cover every bucket exactly once")
	ErrOutOfRange        = errors.New("must lie inside the bucket space, with from not above to")
	ErrNothingToMove     = errors.New("the giving cell owns none of these buckets")
	ErrSameCell          = errors.New("giver and taker must be different cells")
	ErrStanding          = errors.New("must be Selling, Leaving or Frozen")
	ErrAvailable         = errors.New("must not be above granted")
	ErrEntryUnnamed      = errors.New("an entry needs an id")
	ErrEntryOrder        = errors.New("entries must come in ascending order of their ids, each once")
	ErrTickets           = errors.New("must be from 1 to 100")
	ErrUnitsToDraw       = errors.New("must be from 1 to 1000000")
	ErrBeacon            = errors.New("must be at most 256 bytes")
)

// ErrBroken says that a plan does not keep its own promise: a defect of this
// package or of whoever edited the plan, never of the request.
var ErrBroken = errors.New("the plan is broken")

// Error is one broken rule of a request.
type Error struct {
	// Field is the path of the offending value, in the words of campaign.yaml:
	// "reserve", "split.weights", "cells[2]".
	Field string
	// Rule is the rule that the value breaks; errors.Is finds it.
	Rule error
	// Got is what was given, for people; empty where the rule says it all.
	Got string
}

// Error gives field, rule and value, in this order.
func (e *Error) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("%s: %v", e.Field, e.Rule)
	}
	return fmt.Sprintf("%s: %v, got %s", e.Field, e.Rule, e.Got)
}

// Unwrap makes errors.Is find both the rule and ErrInvalid.
func (e *Error) Unwrap() []error { return []error{e.Rule, ErrInvalid} }

func invalid(field string, rule error, format string, args ...any) *Error {
	return &Error{Field: field, Rule: rule, Got: fmt.Sprintf(format, args...)}
}

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, args...))
}

// checkNames refuses an empty list, too many cells, a cell without id and a
// cell named twice. The n-th id is id(n).
func checkNames(n int, id func(int) string) error {
	switch {
	case n == 0:
		return &Error{Field: "cells", Rule: ErrNoCells}
	case n > MaxCells:
		return invalid("cells", ErrTooManyCells, "%d", n)
	}
	seen := make(map[string]int, n)
	for i := range n {
		name := id(i)
		if name == "" {
			return &Error{Field: fmt.Sprintf("cells[%d]", i), Rule: ErrCellUnnamed}
		}
		if first, twice := seen[name]; twice {
			return invalid(fmt.Sprintf("cells[%d]", i), ErrDuplicateCell, "%.64q again (first at cells[%d])", name, first)
		}
		seen[name] = i
	}
	return nil
}
