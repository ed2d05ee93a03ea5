// Package quantity holds the one type in which units of a SKU are counted.
//
// Job: a number of units that cannot be negative, cannot overflow and cannot be
// confused with any other integer. Promise: every operation either gives the
// exact result or an error; nothing wraps, saturates or rounds in silence.
// Neighbours: allocator does its arithmetic in it; controlplane/core stores it
// in books; at the borders (proto int32, SQL integer) it is made by New and
// read by Int32 or Int64.
package quantity

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
)

// Max is the largest quantity: 1,000,000,000 units (contract section 4). It is
// below 2^31, so a Quantity always fits the int32 of the wire.
const Max = 1_000_000_000

// The rules that a result can break. Errors of this package wrap exactly one.
var (
	// ErrNegative: the number, or the result of a subtraction, is below 0.
	ErrNegative = errors.New("a quantity must not be negative")
	// ErrTooLarge: the number, or the result, is above Max.
	ErrTooLarge = errors.New("a quantity must not be above 1000000000")
	// ErrZeroDivisor: a ratio has 0 below the line.
	ErrZeroDivisor = errors.New("a ratio must not divide by zero")
	// ErrSyntax: a text is not a plain decimal number.
	ErrSyntax = errors.New("a quantity must be written in decimal digits only")
)

// Quantity is a number of units, 0 to Max. The zero value is 0 units.
//
// Each property is there because of a mistake it makes impossible:
//
//   - The integer is unexported: a literal such as -5 cannot become stock
//     (an order for -5 units once raised a shop's stock: K60).
//   - It is a struct, not a named integer: a price, a version or a length does
//     not convert to it, and + and - do not compile, so nobody forgets a check.
//   - Add and Sub return an error: no total wraps round to a small number, and
//     no allocation goes below zero (I1, I2).
//   - It is bounded by Max: the product with any 64-bit weight fits 128 bits,
//     which MulRatio holds exactly; no float drifts (K37, K38).
//   - It is comparable with ==, and usable as a map key.
type Quantity struct {
	units int64
}

// New makes a quantity of n units. ErrNegative below 0, ErrTooLarge above Max.
func New(n int64) (Quantity, error) {
	switch {
	case n < 0:
		return Quantity{}, fmt.Errorf("%d units: %w", n, ErrNegative)
	case n > Max:
		return Quantity{}, fmt.Errorf("%d units: %w", n, ErrTooLarge)
	}
	return Quantity{units: n}, nil
}

// Must is New for constants written in the source; it panics where New fails.
// Never give it a number that came from outside.
func Must(n int64) Quantity {
	q, err := New(n)
	if err != nil {
		panic(err)
	}
	return q
}

// Parse reads a quantity written in decimal digits, with no sign, space, point
// or exponent. ErrSyntax for anything else, ErrTooLarge above Max.
func Parse(text string) (Quantity, error) {
	if text == "" {
		return Quantity{}, fmt.Errorf("empty text: %w", ErrSyntax)
	}
	var n int64
	for i := range len(text) {
		c := text[i]
		if c < '0' || c > '9' {
			return Quantity{}, fmt.Errorf("%.40q: %w", text, ErrSyntax)
		}
		if n = n*10 + int64(c-'0'); n > Max {
			return Quantity{}, fmt.Errorf("%.40q: %w", text, ErrTooLarge)
		}
	}
	return Quantity{units: n}, nil
}

// Add gives q + other. ErrTooLarge above Max.
func (q Quantity) Add(other Quantity) (Quantity, error) {
	sum := q.units + other.units
	if sum > Max {
		return Quantity{}, fmt.Errorf("%d + %d units: %w", q.units, other.units, ErrTooLarge)
	}
	return Quantity{units: sum}, nil
}

// Sub gives q - other. ErrNegative where other is the larger.
func (q Quantity) Sub(other Quantity) (Quantity, error) {
	if other.units > q.units {
		return Quantity{}, fmt.Errorf("%d - %d units: %w", q.units, other.units, ErrNegative)
	}
	return Quantity{units: q.units - other.units}, nil
}

// MulRatio gives q × num/den rounded down, and what the rounding left over:
// q × num = whole × den + rest, with rest < den, exactly. It is the one place
// where a share is computed, because a share rounded by a float loses units
// that nobody can find again (K37: 81 handed out as 78).
// ErrZeroDivisor for den 0, ErrTooLarge where whole would be above Max.
func (q Quantity) MulRatio(num, den uint64) (whole Quantity, rest uint64, err error) {
	if den == 0 {
		return Quantity{}, 0, fmt.Errorf("%d units × %d/0: %w", q.units, num, ErrZeroDivisor)
	}
	hi, lo := bits.Mul64(uint64(q.units), num)
	if hi >= den { // the quotient alone would need more than 64 bits
		return Quantity{}, 0, fmt.Errorf("%d units × %d/%d: %w", q.units, num, den, ErrTooLarge)
	}
	quotient, rest := bits.Div64(hi, lo, den)
	if quotient > Max {
		return Quantity{}, 0, fmt.Errorf("%d units × %d/%d: %w", q.units, num, den, ErrTooLarge)
	}
	return Quantity{units: int64(quotient)}, rest, nil
}

// Sum adds up all of them. ErrTooLarge as soon as a partial sum is above Max.
func Sum(quantities ...Quantity) (Quantity, error) {
	var total Quantity
	for _, q := range quantities {
		var err error
		if total, err = total.Add(q); err != nil {
			return Quantity{}, err
		}
	}
	return total, nil
}

// Min gives the smaller of two.
func Min(a, b Quantity) Quantity {
	if b.units < a.units {
		return b
	}
	return a
}

// Int32 gives the units for the wire; it always fits.
func (q Quantity) Int32() int32 { return int32(q.units) }

// Int64 gives the units for SQL and for messages.
func (q Quantity) Int64() int64 { return q.units }

// IsZero tells whether there are no units.
func (q Quantity) IsZero() bool { return q.units == 0 }

// Cmp gives -1 where q is smaller than other, 0 where equal, +1 where larger.
func (q Quantity) Cmp(other Quantity) int {
	switch {
	case q.units < other.units:
		return -1
	case q.units > other.units:
		return 1
	}
	return 0
}

// Equal is ==, as a method that comparers of tests look for.
func (q Quantity) Equal(other Quantity) bool { return q == other }

// String gives the units in decimal digits; Parse reads them back.
func (q Quantity) String() string { return strconv.FormatInt(q.units, 10) }
