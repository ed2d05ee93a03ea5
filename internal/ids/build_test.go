package ids

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func drawBuild(t *rapid.T, label string) Build {
	part := rapid.OneOf(rapid.Int64Range(0, 12), rapid.Int64Range(0, MaxBuildPart))
	return Build{Fence: part.Draw(t, label+" fence"), Count: part.Draw(t, label+" count")}
}

func TestBuildReadsBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBuild(t, "build")
		if got, err := ParseBuild(b.String()); err != nil || got != b {
			t.Fatalf("ParseBuild(%s) = %v, %v", b, got, err)
		}
	})
}

// TestBuildOrder: Compare is the order of pairs, antisymmetric, and numeric (not
// the order of the texts, where 10 comes before 9).
func TestBuildOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawBuild(t, "a"), drawBuild(t, "b")
		older := a.Fence < b.Fence || a.Fence == b.Fence && a.Count < b.Count
		if (a.Compare(b) < 0) != older || a.Compare(b) != -b.Compare(a) || (a.Compare(b) == 0) != (a == b) {
			t.Fatalf("Compare(%s, %s) = %d", a, b, a.Compare(b))
		}
		if !a.IsZero() && (Build{}).Compare(a) >= 0 {
			t.Fatalf("the zero build is not older than %s", a)
		}
	})
	if (Build{9, 9}).Compare(Build{10, 1}) >= 0 {
		t.Fatal("9.9 is not older than 10.1")
	}
}

func TestParseBuildRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", ".", "1", "1.", ".1", "1.2.3", "01.2", "1.02", "+1.2", "1.+2", "-1.2", "1.-2", " 1.2", "1.2 ", "1,2", "1e3.1", "0x1.1",
		"9007199254740992.1", "1.9007199254740992", "9223372036854775808.1", "99999999999999999999999.1", "1_0.1", "١.١", "1.2\n",
	} {
		b, err := ParseBuild(s)
		var refusal *Error
		if !errors.As(err, &refusal) || refusal.Field != "build_id" || !b.IsZero() {
			t.Errorf("ParseBuild(%q) = %v, %v", s, b, err)
		}
	}
	if b, err := ParseBuild("9007199254740991.0"); err != nil || b.Fence != MaxBuildPart {
		t.Errorf("the largest build was refused: %v", err)
	}
}

func FuzzParseBuild(f *testing.F) {
	for _, s := range []string{"1.2", "0.0", "01.2", "9007199254740991.9007199254740991", "1.2.3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if b, err := ParseBuild(s); err == nil && (b.String() != s || b.Fence < 0 || b.Count < 0) {
			t.Fatalf("ParseBuild(%q) = %v", s, b)
		}
	})
}
