package reservation

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Money is an exact amount in ten-thousandths of a currency unit, as the shard stores it
// (numeric(18, 4)). A float has no way in.
type Money struct {
	Tenthousandths int64
	Currency       string
}

// ErrMoney is wrapped by every refusal of this file.
var ErrMoney = errors.New("not an amount of money")

const moneyDigits = 4

// maxMoney is the largest numeric(18, 4).
const maxMoney = 999_999_999_999_999_999

// ParseMoney reads a decimal such as "4999.00": digits, at most four after the point, no sign, at
// most 18 digits in all, and a currency of three capital letters.
func ParseMoney(amount, currency string) (Money, error) {
	if len(currency) != 3 || strings.Trim(currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return Money{}, fmt.Errorf("%w: currency must be three capital letters", ErrMoney)
	}
	whole, fraction, point := strings.Cut(amount, ".")
	if whole == "" || point && fraction == "" || len(fraction) > moneyDigits || len(whole) > 18-moneyDigits ||
		strings.Trim(whole+fraction, "0123456789") != "" {
		return Money{}, fmt.Errorf("%w: amount must be digits with at most four after the point", ErrMoney)
	}
	n, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", moneyDigits-len(fraction)), 10, 64)
	if err != nil {
		return Money{}, fmt.Errorf("%w: %w", ErrMoney, err)
	}
	return Money{Tenthousandths: n, Currency: currency}, nil
}

// Times is the price of n units; ErrMoney when it no longer fits.
func (m Money) Times(n int32) (Money, error) {
	if n < 0 || n > 0 && m.Tenthousandths > min(maxMoney, math.MaxInt64)/int64(n) {
		return Money{}, fmt.Errorf("%w: %s times %d does not fit", ErrMoney, m.Amount(), n)
	}
	return Money{Tenthousandths: m.Tenthousandths * int64(n), Currency: m.Currency}, nil
}

// Amount writes at least two digits after the point and no further zeros: "4999.00", "0.125".
func (m Money) Amount() string {
	text := fmt.Sprintf("%d.%04d", m.Tenthousandths/10_000, m.Tenthousandths%10_000)
	return text[:len(text)-2] + strings.TrimRight(text[len(text)-2:], "0")
}
