package fencing

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestVersionsGrowAndEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2, 3), rapid.Int64Range(math.MaxInt64-2, math.MaxInt64)).Draw(t, "n")
		v, err := VersionOf(n)
		if (err == nil) != (n >= 1) || err != nil && !errors.Is(err, ErrVersion) {
			t.Fatalf("VersionOf(%d): %s, %v", n, v, err)
		}
		if err != nil {
			return
		}
		if v.Int64() != n || v.Compare(v) != 0 {
			t.Fatalf("%d reads back as %d", n, v.Int64())
		}
		next, err := v.Next()
		if (err == nil) != (n < math.MaxInt64) {
			t.Fatalf("%s.Next() = %s, %v", v, next, err)
		}
		if err == nil && (next.Compare(v) != 1 || v.Compare(next) != -1 || next.Int64() != n+1) {
			t.Fatalf("%s.Next() = %s", v, next)
		}
	})
}

// As the shard's raise_term: a lower count is refused, another id of the same
// count is a conflict, and the highest seen never falls.
func TestRaiseATerm(t *testing.T) {
	seen := Term{Count: 5, ID: "b"}
	cases := []struct {
		name          string
		have, offered Term
		want          Term
		err           error
	}{
		{"the first", Term{}, Term{1, "a"}, Term{1, "a"}, nil},
		{"the same", seen, seen, seen, nil},
		{"higher", seen, Term{6, "a"}, Term{6, "a"}, nil},
		{"lower", seen, Term{4, "b"}, seen, ErrTermLower},
		{"another id", seen, Term{5, "c"}, seen, ErrTermConflict},
		{"no id", seen, Term{6, ""}, seen, ErrTerm},
		{"no term", seen, Term{}, seen, ErrTerm},
	}
	for _, c := range cases {
		if got, err := c.have.Raise(c.offered); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %s, %v, want %s, %v", c.name, got, err, c.want, c.err)
		}
	}
	if (Term{4, "z"}).Compare(seen) != -1 || seen.Compare(Term{4, "z"}) != 1 || seen.Compare(Term{5, "c"}) != 0 || !(Term{}).IsZero() || seen.IsZero() {
		t.Error("terms are not ordered by count")
	}
}

func TestEvidenceWordsAndAttestations(t *testing.T) {
	for _, e := range []Evidence{StoreFence, AttestedLoss} {
		if back, err := ParseEvidence(e.String()); err != nil || back != e {
			t.Errorf("%s reads back as %s, %v", e, back, err)
		}
	}
	for _, text := range []string{"", "NONE", "store_fence"} {
		if _, err := ParseEvidence(text); !errors.Is(err, ErrEvidence) {
			t.Errorf("%q: %v, want ErrEvidence", text, err)
		}
	}
	cases := map[Attestation]error{
		{"burnt", "ann", "bob"}:  nil,
		{" ", "ann", "bob"}:      ErrAttestation,
		{"burnt", "", "bob"}:     ErrAttestation,
		{"burnt", "ann", " "}:    ErrAttestation,
		{"burnt", "ann", "ann"}:  ErrAttestation,
		{"burnt", "ann", "ann "}: ErrAttestation,
	}
	for a, want := range cases {
		if err := a.Check(); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %v", a, err, want)
		}
	}
}

func TestTrustWindow(t *testing.T) {
	start := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	window := func(p LeasePolicy) TrustWindow {
		return TrustWindow{Deadline: at(5 * time.Second), Margin: Margin(time.Second), Policy: p}
	}
	cases := []struct {
		name string
		w    TrustWindow
		now  time.Time
		want bool
	}{
		{"PAUSE well before", window(Pause), at(0), true},
		{"PAUSE just before the margin", window(Pause), at(4*time.Second - 1), true},
		{"PAUSE at the margin", window(Pause), at(4 * time.Second), false},
		{"PAUSE after the end", window(Pause), at(time.Hour), false},
		{"PAUSE without lease", TrustWindow{Policy: Pause}, at(0), false},
		{"CONTINUE after the end", window(Continue), at(time.Hour), true},
		{"CONTINUE without lease", TrustWindow{Policy: Continue}, at(0), true},
		{"no policy", window(0), at(0), false},
	}
	for _, c := range cases {
		if got := c.w.MayAdmit(c.now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := window(Pause).Remaining(at(2 * time.Second)); got != 3*time.Second {
		t.Errorf("%s remain, want 3s", got)
	}
	if got := window(Pause).Remaining(at(time.Hour)); got != 0 {
		t.Errorf("%s remain after the end, want 0", got)
	}
	if got := (TrustWindow{}).Remaining(at(0)); got != 0 {
		t.Errorf("%s remain without a lease, want 0", got)
	}
}

// Every enum answers an unknown number with its type and the number.
func TestUnknownWords(t *testing.T) {
	for got, want := range map[string]string{
		CellState(0).String(): "CellState(0)", CellState(99).String(): "CellState(99)", CellEventKind(99).String(): "CellEventKind(99)",
		ReclaimState(99).String(): "ReclaimState(99)", ReclaimEventKind(0).String(): "ReclaimEventKind(0)", EffectKind(99).String(): "EffectKind(99)",
		AdjustmentKind(0).String(): "AdjustmentKind(0)", JournalState(9).String(): "JournalState(9)", Outcome(9).String(): "Outcome(9)",
		MoveKind(0).String(): "MoveKind(0)", Evidence(0).String(): "NONE", Evidence(9).String(): "Evidence(9)", LeasePolicy(9).String(): "LeasePolicy(9)",
		Continue.String(): "CONTINUE", Pause.String(): "PAUSE",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
