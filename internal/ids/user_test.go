package ids

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

func TestParseUserID(t *testing.T) {
	t.Parallel()
	const size, utf, chars, nfc = "must be 1 to 128 bytes", "must be valid UTF-8",
		"must not contain control, format or white-space characters", "must be in Unicode normal form NFC"
	cases := []struct {
		name, in, rule string
	}{
		{"plain", "alice", ""},
		{"mail", "alice+x@example.com", ""},
		{"uuid urn", "urn:uuid:018f7a", ""},
		{"chinese", "用户一", ""},
		{"emoji", "user🙂", ""},
		{"one byte", "a", ""},
		{"128 bytes", strings.Repeat("a", 128), ""},
		{"replacement character is a character", "a\uFFFD", ""},
		{"composed", "caf\u00e9", ""},
		{"empty", "", size},
		{"129 bytes", strings.Repeat("a", 129), size},
		{"129 bytes in 43 characters", strings.Repeat("用", 43), size},
		{"broken utf-8", "a\xff", utf},
		{"surrogate half", "a\xed\xa0\x80", utf},
		{"overlong", "a\xc0\x80", utf},
		{"nul", "a\x00", chars},
		{"newline", "a\n", chars},
		{"tab", "a\tb", chars},
		{"space", "a b", chars},
		{"escape", "\x1b[31m", chars},
		{"next line", "a\u0085", chars},
		{"no-break space", "a\u00a0b", chars},
		{"ideographic space", "a\u3000b", chars},
		{"line separator", "a\u2028", chars},
		{"paragraph separator", "a\u2029", chars},
		{"zero width space", "a\u200bb", chars},
		{"zero width joiner", "a\u200db", chars},
		{"byte order mark", "\ufeffalice", chars},
		{"right-to-left override", "a\u202eb", chars},
		{"soft hyphen", "a\u00adb", chars},
		{"tag character", "a\U000e0041", chars},
		{"decomposed", "cafe\u0301", nfc},
		{"kelvin sign", "\u212a", nfc},
		{"hangul jamo", "\u1100\u1161", nfc},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseUserID(c.in)
			if c.rule == "" {
				if err != nil || string(got) != c.in {
					t.Fatalf("ParseUserID(%q) = %q, %v; want it as it is", c.in, got, err)
				}
				return
			}
			var refusal *Error
			if !errors.As(err, &refusal) || refusal.Field != "user_id" || refusal.Rule != c.rule || got != "" {
				t.Fatalf("ParseUserID(%q) = %q, %v; want rule %q", c.in, got, err, c.rule)
			}
		})
	}
}

// TestUserIDsOfOnePersonAreOne: of all spellings that normalise to the same text
// at most one is accepted, which one order per user rests on.
func TestUserIDsOfOnePersonAreOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.RuneFrom(nil, unicode.Latin, unicode.Mn, unicode.Hangul), 1, 12, 100).Draw(t, "s")
		composed, errC := ParseUserID(norm.NFC.String(s))
		decomposed, errD := ParseUserID(norm.NFD.String(s))
		if errC == nil && errD == nil && composed != decomposed {
			t.Fatalf("both %+q and %+q accepted", composed, decomposed)
		}
	})
}

func FuzzParseUserID(f *testing.F) {
	for _, s := range []string{"alice", "用户", "cafe\u0301", "a\x00", "\xff", "a\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseUserID(s)
		if err != nil {
			if id != "" {
				t.Fatalf("value %q beside error %v", id, err)
			}
			return
		}
		if string(id) != s || len(s) > 128 || !utf8.ValidString(s) || norm.NFC.String(s) != s || strings.TrimSpace(s) != s {
			t.Fatalf("accepted %+q", s)
		}
		for _, r := range s {
			if unicode.IsControl(r) || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) {
				t.Fatalf("accepted %U in %+q", r, s)
			}
		}
	})
}
