package allocator

import (
	"fmt"
	"strings"

	"github.com/cellquota/cellquota/allocator/quantity"
)

const wholePercent = 1_000_000 // millionths in 100 %

// Percent is a part of a whole, 0 % to 100 %, exact to a millionth of it. It is
// a type so that a "5" meant as units cannot be read as a percentage or the
// other way round. The zero value is 0 %.
type Percent struct {
	millionths uint32
}

// ParsePercent reads "5%" or "2.25%": digits, at most four decimals, a percent
// sign, nothing else. field names the value in the error, which wraps ErrPercent.
func ParsePercent(field, text string) (Percent, error) {
	refuse := func() (Percent, error) { return Percent{}, invalid(field, ErrPercent, "%.40q", text) }
	number, hasSign := strings.CutSuffix(text, "%")
	whole, decimals, hasPoint := strings.Cut(number, ".")
	if !hasSign || whole == "" || len(decimals) > 4 || hasPoint && decimals == "" {
		return refuse()
	}
	var millionths uint64
	for _, c := range []byte(whole + decimals + "0000"[len(decimals):]) {
		if c < '0' || c > '9' {
			return refuse()
		}
		if millionths = millionths*10 + uint64(c-'0'); millionths > wholePercent {
			return refuse()
		}
	}
	return Percent{millionths: uint32(millionths)}, nil
}

// Permille gives n tenths of a percent; field names the value in the error, which
// wraps ErrPercent where n is not from 0 to 1000.
func Permille(field string, n int32) (Percent, error) {
	if n < 0 || n > 1000 {
		return Percent{}, invalid(field, ErrPercent, "%d tenths of a percent", n)
	}
	return Percent{millionths: uint32(n) * (wholePercent / 1000)}, nil
}

// Of gives the part of q, rounded down: the exact floor, computed in integers.
func (p Percent) Of(q quantity.Quantity) quantity.Quantity {
	part, _, err := q.MulRatio(uint64(p.millionths), wholePercent)
	if err != nil {
		panic(err) // cannot be: a Percent is at most 100 %, so the part is at most q
	}
	return part
}

// ofUp gives the part of q, rounded up.
func (p Percent) ofUp(q quantity.Quantity) quantity.Quantity {
	part, rest, err := q.MulRatio(uint64(p.millionths), wholePercent)
	if err == nil && rest > 0 {
		part, err = part.Add(quantity.Must(1))
	}
	if err != nil {
		panic(err) // cannot be: a Percent is at most 100 %, so the part is at most q
	}
	return part
}

// IsZero tells whether it is 0 %.
func (p Percent) IsZero() bool { return p.millionths == 0 }

// String gives the percentage with no needless zeros: "4%", "2.25%".
func (p Percent) String() string {
	text := fmt.Sprintf("%d.%04d", p.millionths/10_000, p.millionths%10_000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + "%"
}

// ParseReserve reads a reserve as campaign.yaml writes it: units ("400"), or a
// percentage of the limit ("4%"), rounded down. Integer arithmetic throughout.
// ErrReserveSyntax, ErrPercent or ErrReserveAboveLimit, on field "reserve".
func ParseReserve(text string, limit quantity.Quantity) (quantity.Quantity, error) {
	if strings.HasSuffix(text, "%") {
		part, err := ParsePercent("reserve", text)
		if err != nil {
			return quantity.Quantity{}, err
		}
		return part.Of(limit), nil
	}
	units, err := quantity.Parse(text)
	if err != nil {
		return quantity.Quantity{}, invalid("reserve", ErrReserveSyntax, "%.40q (%v)", text, err)
	}
	if units.Cmp(limit) > 0 {
		return quantity.Quantity{}, invalid("reserve", ErrReserveAboveLimit, "reserve %s, sale_limit %s", units, limit)
	}
	return units, nil
}
