package ids

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// parsers lists every ASCII grammar with the regular expression that contract §3
// gives for it: the dumb twin of the table in grammar.go.
var parsers = []struct {
	field   string
	twin    *regexp.Regexp
	refused func(s string) bool // beyond the expression
	parse   func(s string) (string, error)
}{
	{"campaign_id", regexp.MustCompile(`\A[a-z0-9-]{1,63}\z`), never, plain(ParseCampaignID)},
	{"cell_id", regexp.MustCompile(`\A[a-z0-9-]{1,63}\z`), never, plain(ParseCellID)},
	{"sku_id", regexp.MustCompile(`\A[A-Za-z0-9._-]{1,64}\z`), dots, plain(ParseSKUID)},
	{"request_id", regexp.MustCompile(`\A[A-Za-z0-9_-]{1,64}\z`), never, plain(ParseRequestID)},
	{"payment_id", regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,128}\z`), never, plain(ParsePaymentID)},
	{"adjustment_id", regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,128}\z`), never, func(s string) (string, error) {
		return ParseOperationID("adjustment_id", s)
	}},
}

func never(string) bool  { return false }
func dots(s string) bool { return s == "." || s == ".." }

func plain[T ~string](parse func(string) (T, error)) func(string) (string, error) {
	return func(s string) (string, error) {
		v, err := parse(s)
		return string(v), err
	}
}

// hostile are the spellings that ids must never let through (K60, K82).
var hostile = []string{
	"", " ", ".", "..", "a b", "a/b", "a\x00", "a\n{\"level\":\"error\"}", "a\r", "\x1b[31m", "a\u0085", "a\u2028",
	"ä", "A", "a_", "a.", "a:", "{a}", "a\xff", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 65),
	strings.Repeat("a", 128), strings.Repeat("a", 129), strings.Repeat("a", 8192),
}

func TestParsersAgreeWithTheContract(t *testing.T) {
	t.Parallel()
	for _, p := range parsers {
		t.Run(p.field, func(t *testing.T) {
			t.Parallel()
			for _, s := range hostile {
				checkParser(t, p.field, p.twin.MatchString(s) && !p.refused(s), p.parse, s)
			}
			rapid.Check(t, func(t *rapid.T) {
				s := rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z0-9._:-]{0,130}`), rapid.StringMatching(`[a-z0-9-]{1,63}`)).Draw(t, "s")
				checkParser(t, p.field, p.twin.MatchString(s) && !p.refused(s), p.parse, s)
			})
		})
	}
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkParser demands that parse accepts s as it is exactly when want says so,
// and that a refusal names the field and echoes nothing.
func checkParser(t failer, field string, want bool, parse func(string) (string, error), s string) {
	t.Helper()
	got, err := parse(s)
	if want {
		if err != nil || got != s {
			t.Fatalf("parse %s %q = %q, %v; want it accepted as it is", field, s, got, err)
		}
		return
	}
	var refusal *Error
	if !errors.As(err, &refusal) || !errors.Is(err, ErrInvalid) || refusal.Field != field || refusal.Rule == "" || got != "" {
		t.Fatalf("parse %s %q = %q, %v; want an *Error on that field and no value", field, s, got, err)
	}
	if len(s) > 8 && strings.Contains(err.Error(), s) {
		t.Fatalf("parse %s: the error echoes the refused value: %v", field, err)
	}
}

func TestErrorNamesFieldAndRule(t *testing.T) {
	t.Parallel()
	_, err := ParseCampaignID("Double Eleven")
	if err == nil || err.Error() != "campaign_id: must be 1 to 63 of a-z, 0-9 and -" {
		t.Fatalf("error = %v", err)
	}
}

func TestNewOperationIDIsAcceptedAndSorted(t *testing.T) {
	t.Parallel()
	last := ""
	for range 1000 {
		id := NewOperationID()
		if _, err := ParseOperationID("operation_id", id); err != nil {
			t.Fatal(err)
		}
		if id <= last || id[14] != '7' {
			t.Fatalf("id %q after %q: want version 7 and a later one", id, last)
		}
		last = id
	}
}
