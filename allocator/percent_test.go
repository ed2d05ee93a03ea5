package allocator_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
)

func TestParseReserve(t *testing.T) {
	cases := []struct {
		text  string
		limit int64
		want  int64
		rule  error
	}{
		{"400", 10_000, 400, nil},
		{"0", 10_000, 0, nil},
		{"10000", 10_000, 10_000, nil},
		{"4%", 10_000, 400, nil},
		{"4%", 99, 3, nil}, // 3.96 rounded down
		{"0%", 5, 0, nil},
		{"100%", quantity.Max, quantity.Max, nil},
		{"33.3333%", 1_000_000, 333_333, nil},
		{"0.0001%", 1_000_000, 1, nil},
		{"10001", 10_000, 0, allocator.ErrReserveAboveLimit},
		{"100.0001%", 10, 0, allocator.ErrPercent},
		{"101%", 10, 0, allocator.ErrPercent},
		{"1.00001%", 10, 0, allocator.ErrPercent},
		{"-1%", 10, 0, allocator.ErrPercent},
		{"1.%", 10, 0, allocator.ErrPercent},
		{".5%", 10, 0, allocator.ErrPercent},
		{"%", 10, 0, allocator.ErrPercent},
		{"4 %", 10, 0, allocator.ErrPercent},
		{"1e1%", 10, 0, allocator.ErrPercent},
		{"4%%", 10, 0, allocator.ErrPercent},
		{strings.Repeat("9", 99) + "%", 10, 0, allocator.ErrPercent},
		{"", 10, 0, allocator.ErrReserveSyntax},
		{"-1", 10, 0, allocator.ErrReserveSyntax},
		{"4.0", 10, 0, allocator.ErrReserveSyntax},
		{"1e308", 10, 0, allocator.ErrReserveSyntax},
		{"NaN", 10, 0, allocator.ErrReserveSyntax},
		{"9223372036854775808", 10, 0, allocator.ErrReserveSyntax},
	}
	for _, c := range cases {
		got, err := allocator.ParseReserve(c.text, quantity.Must(c.limit))
		if !errors.Is(err, c.rule) || got.Int64() != c.want {
			t.Errorf("ParseReserve(%.30q, %d) = %s, %v, want %d, %v", c.text, c.limit, got, err, c.want, c.rule)
		}
		var named *allocator.Error
		if c.rule != nil && (!errors.As(err, &named) || named.Field != "reserve") {
			t.Errorf("ParseReserve(%.30q): %v does not name the field reserve", c.text, err)
		}
	}
}

func TestPercentAgreesWithBigRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([0-9]|[1-9][0-9])(\.[0-9]{1,4})?%|100%`).Draw(t, "text")
		p, err := allocator.ParsePercent("tranche", text)
		if err != nil {
			t.Fatal(err)
		}
		units := drawnUnits(t, "units", quantity.Max)
		exact, _ := new(big.Rat).SetString(strings.TrimSuffix(text, "%"))
		exact.Mul(exact, new(big.Rat).SetFrac64(units.Int64(), 100))
		want := new(big.Int).Quo(exact.Num(), exact.Denom())
		if got := p.Of(units).Int64(); got != want.Int64() {
			t.Fatalf("%s of %s is %d, want %s", text, units, got, want)
		}
		if back, err := allocator.ParsePercent("", p.String()); err != nil || back != p {
			t.Fatalf("%q reads back as %v, %v", p.String(), back, err)
		}
		if p.IsZero() != (p == allocator.Percent{}) {
			t.Fatalf("IsZero of %s is %v", p, p.IsZero())
		}
	})
}

func FuzzParseReserve(f *testing.F) {
	for _, seed := range []string{"400", "4%", "4.25%", "100%", "-1", "1e3", "", "%"} {
		f.Add(seed, int64(10_000))
	}
	f.Fuzz(func(t *testing.T, text string, limit int64) {
		l, err := quantity.New(limit)
		if err != nil {
			return
		}
		got, err := allocator.ParseReserve(text, l)
		if err != nil {
			if !errors.Is(err, allocator.ErrInvalid) || len(err.Error()) > 600 {
				t.Fatalf("error %v", err)
			}
			return
		}
		number, percent := strings.CutSuffix(text, "%")
		exact, ok := new(big.Rat).SetString(number)
		if !ok {
			t.Fatalf("%q was taken and is no number", text)
		}
		if percent {
			exact.Mul(exact, new(big.Rat).SetFrac64(limit, 100))
		}
		if want := new(big.Int).Quo(exact.Num(), exact.Denom()); got.Int64() != want.Int64() || got.Cmp(l) > 0 {
			t.Fatalf("%q of %d is %s, want %s", text, limit, got, want)
		}
	})
}
