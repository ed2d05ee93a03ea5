package quantity_test

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/allocator/quantity"
)

func TestNewKeepsItsBounds(t *testing.T) {
	cases := []struct {
		n    int64
		want error
	}{
		{0, nil},
		{1, nil},
		{quantity.Max, nil},
		{-1, quantity.ErrNegative},
		{math.MinInt64, quantity.ErrNegative},
		{quantity.Max + 1, quantity.ErrTooLarge},
		{math.MaxInt64, quantity.ErrTooLarge},
	}
	for _, c := range cases {
		q, err := quantity.New(c.n)
		if !errors.Is(err, c.want) {
			t.Errorf("New(%d): error %v, want %v", c.n, err, c.want)
		}
		if err == nil && (q.Int64() != c.n || int64(q.Int32()) != c.n) {
			t.Errorf("New(%d) reads back as %d and %d", c.n, q.Int64(), q.Int32())
		}
		if err != nil && !q.IsZero() {
			t.Errorf("New(%d) failed and gave %s units, want none", c.n, q)
		}
	}
}

func TestMustPanicsOnABadConstant(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Must(-1) did not panic")
		}
	}()
	quantity.Must(-1)
}

func TestParseTakesDigitsOnly(t *testing.T) {
	good := map[string]int64{"0": 0, "400": 400, "007": 7, "1000000000": quantity.Max}
	for text, want := range good {
		if q, err := quantity.Parse(text); err != nil || q.Int64() != want {
			t.Errorf("Parse(%q) = %s, %v, want %d", text, q, err, want)
		}
	}
	bad := map[string]error{
		"": quantity.ErrSyntax, "-1": quantity.ErrSyntax, "+1": quantity.ErrSyntax, " 1": quantity.ErrSyntax,
		"1.0": quantity.ErrSyntax, "1e3": quantity.ErrSyntax, "0x1": quantity.ErrSyntax, "1_000": quantity.ErrSyntax,
		"٣": quantity.ErrSyntax, "NaN": quantity.ErrSyntax, "1000000001": quantity.ErrTooLarge,
		"18446744073709551617": quantity.ErrTooLarge, strings.Repeat("9", 400): quantity.ErrTooLarge,
	}
	for text, want := range bad {
		if _, err := quantity.Parse(text); !errors.Is(err, want) {
			t.Errorf("Parse(%.40q): error %v, want %v", text, err, want)
		}
	}
}

// drawn is any legal quantity, small ones and bounds often.
func drawn(t *rapid.T, name string) quantity.Quantity {
	return quantity.Must(rapid.OneOf(
		rapid.Int64Range(0, 20), rapid.Int64Range(0, quantity.Max), rapid.Int64Range(quantity.Max-3, quantity.Max),
	).Draw(t, name))
}

func TestAddAndSubAreExactOrRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawn(t, "a"), drawn(t, "b")
		sum, err := a.Add(b)
		if plain := a.Int64() + b.Int64(); plain > quantity.Max {
			if !errors.Is(err, quantity.ErrTooLarge) {
				t.Fatalf("%s + %s: error %v, want ErrTooLarge", a, b, err)
			}
		} else if err != nil || sum.Int64() != plain {
			t.Fatalf("%s + %s = %s, %v, want %d", a, b, sum, err, plain)
		}
		rest, err := a.Sub(b)
		if plain := a.Int64() - b.Int64(); plain < 0 {
			if !errors.Is(err, quantity.ErrNegative) {
				t.Fatalf("%s - %s: error %v, want ErrNegative", a, b, err)
			}
		} else if err != nil || rest.Int64() != plain {
			t.Fatalf("%s - %s = %s, %v, want %d", a, b, rest, err, plain)
		}
	})
}

func TestOrderAgreesWithIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawn(t, "a"), drawn(t, "b")
		want := big.NewInt(a.Int64()).Cmp(big.NewInt(b.Int64()))
		if got := a.Cmp(b); got != want {
			t.Fatalf("%s.Cmp(%s) = %d, want %d", a, b, got, want)
		}
		if a.Equal(b) != (want == 0) {
			t.Fatalf("%s.Equal(%s) = %v", a, b, a.Equal(b))
		}
		if got := quantity.Min(a, b).Int64(); got != min(a.Int64(), b.Int64()) {
			t.Fatalf("Min(%s, %s) = %d", a, b, got)
		}
		if back, err := quantity.Parse(a.String()); err != nil || back != a {
			t.Fatalf("Parse(%s.String()) = %s, %v", a, back, err)
		}
	})
}

// checkMulRatio compares MulRatio with schoolbook arithmetic on big integers.
func checkMulRatio(t interface {
	Helper()
	Fatalf(string, ...any)
}, q quantity.Quantity, num, den uint64,
) {
	t.Helper()
	whole, rest, err := q.MulRatio(num, den)
	if den == 0 {
		if !errors.Is(err, quantity.ErrZeroDivisor) {
			t.Fatalf("%s × %d/0: error %v, want ErrZeroDivisor", q, num, err)
		}
		return
	}
	product := new(big.Int).Mul(big.NewInt(q.Int64()), new(big.Int).SetUint64(num))
	wantWhole, wantRest := new(big.Int).QuoRem(product, new(big.Int).SetUint64(den), new(big.Int))
	if wantWhole.Cmp(big.NewInt(quantity.Max)) > 0 {
		if !errors.Is(err, quantity.ErrTooLarge) {
			t.Fatalf("%s × %d/%d: error %v, want ErrTooLarge", q, num, den, err)
		}
		return
	}
	if err != nil || whole.Int64() != wantWhole.Int64() || rest != wantRest.Uint64() {
		t.Fatalf("%s × %d/%d = %s rest %d, %v, want %s rest %s", q, num, den, whole, rest, err, wantWhole, wantRest)
	}
}

func TestMulRatioAgreesWithBigIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wide := rapid.OneOf(rapid.Uint64Range(0, 10), rapid.Uint64(), rapid.Uint64Range(math.MaxUint64-3, math.MaxUint64))
		checkMulRatio(t, drawn(t, "q"), wide.Draw(t, "num"), wide.Draw(t, "den"))
	})
}

func TestMulRatioAtTheBound(t *testing.T) {
	for num := uint64(quantity.Max - 1); num <= quantity.Max+1; num++ {
		checkMulRatio(t, quantity.Must(quantity.Max), num, quantity.Max)
	}
}

func FuzzMulRatio(f *testing.F) {
	f.Add(int64(10_000), uint64(1), uint64(3))
	f.Add(int64(quantity.Max), uint64(math.MaxUint64), uint64(math.MaxUint64))
	f.Add(int64(quantity.Max), uint64(math.MaxUint64), uint64(1))
	f.Add(int64(1), uint64(1), uint64(0))
	f.Fuzz(func(t *testing.T, n int64, num, den uint64) {
		q, err := quantity.New(n)
		if err != nil {
			return
		}
		checkMulRatio(t, q, num, den)
	})
}

func TestSumStopsAboveTheBound(t *testing.T) {
	total, err := quantity.Sum(quantity.Must(2_400), quantity.Must(2_400), quantity.Must(400))
	if err != nil || total != quantity.Must(5_200) {
		t.Errorf("Sum = %s, %v, want 5200", total, err)
	}
	if total, err = quantity.Sum(); err != nil || !total.IsZero() {
		t.Errorf("Sum of nothing = %s, %v, want 0", total, err)
	}
	if _, err = quantity.Sum(quantity.Must(quantity.Max), quantity.Must(1)); !errors.Is(err, quantity.ErrTooLarge) {
		t.Errorf("Sum above the bound: error %v, want ErrTooLarge", err)
	}
}
