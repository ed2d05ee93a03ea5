package signed

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/internal/ids"
)

var at = time.Date(2026, 11, 11, 0, 0, 0, 123_000_000, time.UTC)

var somePermit = Permit{
	Campaign: "double-eleven", SKU: "phone-x", User: "用户", NotBefore: at, Expires: at.Add(5 * time.Minute),
	Nonce: "abcdefghijklmnopqrstuvwxyz",
}

var someReceipt = Receipt{
	User: "用户", Request: "req-1", Campaign: "double-eleven", SKU: "phone-x", Cell: "cell-1",
	Build: ids.Build{Fence: 3, Count: 7}, At: at,
}

// The golden tokens: permits and receipts in customers' hands survive an upgrade.
func TestTokensNeverChange(t *testing.T) {
	t.Parallel()
	const permit = "v1.k1.DWRvdWJsZS1lbGV2ZW4HcGhvbmUteAbnlKjmiLcAAAGhx-eAewAAAaHH7BRbGmFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6.zIRdVLb7tlLjvmvut6gHiye1DFQBctq3_17XgcJkrfk"
	const receipt = "v1.k1.BueUqOaItwVyZXEtMQ1kb3VibGUtZWxldmVuB3Bob25lLXgGY2VsbC0xAAAAAAAAAAMAAAAAAAAABwAAAaHH54B7.vSs92oAiU4Tg1ddOZ1QeD6f169FoqHI1kusEfwwFbv0"
	if got, err := somePermit.Sign(keySet(t, UsePermit, keyOne), "k1"); err != nil || got != permit {
		t.Errorf("permit = %s, %v", got, err)
	}
	if got, err := someReceipt.Sign(keySet(t, UseReceipt, keyOne), "k1"); err != nil || got != receipt {
		t.Errorf("receipt = %s, %v", got, err)
	}
}

func drawPermit(t *rapid.T) Permit {
	millis := rapid.Int64Range(1, 4e12)
	p := Permit{
		Campaign: ids.CampaignID(rapid.StringMatching(`[a-z0-9-]{1,63}`).Draw(t, "campaign")),
		SKU:      ids.SKUID(rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "sku")),
		User:     ids.UserID(rapid.StringMatching(`[a-z用户@.:-]{1,40}`).Draw(t, "user")),
		Expires:  time.UnixMilli(millis.Draw(t, "expires")).UTC(),
		Nonce:    NewNonce(),
	}
	if rapid.Bool().Draw(t, "with a start") {
		p.NotBefore = time.UnixMilli(millis.Draw(t, "not before")).UTC()
	}
	return p
}

func TestPermitReadsBack(t *testing.T) {
	t.Parallel()
	keys := keySet(t, UsePermit, keyOne, keyTwo)
	rapid.Check(t, func(t *rapid.T) {
		p := drawPermit(t)
		token, err := p.Sign(keys, rapid.SampledFrom(keys.Kids()).Draw(t, "kid"))
		if err != nil || len(token) > maxTokenBytes {
			t.Fatalf("sign: %d bytes, %v", len(token), err)
		}
		if got, err := VerifyPermit(token, keys); err != nil || got != p {
			t.Fatalf("verify = %+v, %v; want %+v", got, err, p)
		}
	})
}

func TestReceiptReadsBack(t *testing.T) {
	t.Parallel()
	keys := keySet(t, UseReceipt, keyOne)
	rapid.Check(t, func(t *rapid.T) {
		p, r := drawPermit(t), someReceipt
		r.User, r.Campaign, r.SKU, r.At = p.User, p.Campaign, p.SKU, p.Expires
		r.Build = ids.Build{Fence: rapid.Int64Range(0, ids.MaxBuildPart).Draw(t, "fence"), Count: rapid.Int64Range(0, ids.MaxBuildPart).Draw(t, "count")}
		token, err := r.Sign(keys, "k1")
		if err != nil {
			t.Fatal(err)
		}
		got, err := VerifyReceipt(token, keys)
		if err != nil || got != r || got.Reservation() != r.Reservation() {
			t.Fatalf("verify = %+v, %v; want %+v", got, err, r)
		}
	})
}

func TestLongestTokensFit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 128)
	p := Permit{ids.CampaignID(long[:63]), ids.SKUID(long[:64]), ids.UserID(long), at, at, NewNonce()}
	r := Receipt{ids.UserID(long), ids.RequestID(long[:64]), ids.CampaignID(long[:63]), ids.SKUID(long[:64]), ids.CellID(long[:63]), ids.Build{Fence: ids.MaxBuildPart, Count: 1}, at}
	kid := long[:64]
	permits, errP := NewKeySet(UsePermit, map[string][]byte{kid: []byte(keyOne)})
	receipts, errR := NewKeySet(UseReceipt, map[string][]byte{kid: []byte(keyOne)})
	if err := errors.Join(errP, errR); err != nil {
		t.Fatal(err)
	}
	tokenP, errP := p.Sign(permits, kid)
	tokenR, errR := r.Sign(receipts, kid)
	if err := errors.Join(errP, errR); err != nil {
		t.Fatal(err)
	}
	_, errP = VerifyPermit(tokenP, permits)
	_, errR = VerifyReceipt(tokenR, receipts)
	if err := errors.Join(errP, errR); err != nil {
		t.Fatalf("%d and %d bytes: %v", len(tokenP), len(tokenR), err)
	}
}

// TestForgedPermitsHaveOneAnswer is K55 as far as a token can show it.
func TestForgedPermitsHaveOneAnswer(t *testing.T) {
	t.Parallel()
	keys := keySet(t, UsePermit, keyOne, keyTwo)
	good, err := somePermit.Sign(keys, "k1")
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Split(good, ".")
	other := somePermit
	other.User = "mallory"
	stranger, _ := other.Sign(keySet(t, UsePermit, "another-key-of-16+"), "k1")
	asReceipt, _ := someReceipt.Sign(keySet(t, UseReceipt, keyOne), "k1")
	forged := map[string]string{
		"empty":                  "",
		"dots":                   "...",
		"no mac":                 strings.Join(part[:3], ".") + ".",
		"three parts":            strings.Join(part[:3], "."),
		"five parts":             good + ".x",
		"mac cut":                good[:len(good)-1],
		"mac longer":             good + "A",
		"mac padded":             good + "=",
		"line break in the mac":  good[:len(good)-3] + "\n" + good[len(good)-3:],
		"line break in payload":  part[0] + "." + part[1] + "." + part[2][:4] + "\n" + part[2][4:] + "." + part[3],
		"space before":           " " + good,
		"line break after":       good + "\n",
		"other version":          "v2" + good[2:],
		"alg none":               "none" + good[2:],
		"unknown kid":            part[0] + ".k9." + part[2] + "." + part[3],
		"other kid of the set":   part[0] + ".k2." + part[2] + "." + part[3],
		"empty kid":              part[0] + ".." + part[2] + "." + part[3],
		"a stranger's key":       stranger,
		"a receipt, same bytes":  asReceipt,
		"eight kilobytes":        strings.Repeat("a", 8192),
		"last digit's free bits": looseLastDigit(good),
	}
	for name, token := range forged {
		if p, err := VerifyPermit(token, keys); !errors.Is(err, ErrInvalid) || err.Error() != "not valid" || p != (Permit{}) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	if _, err := VerifyPermit(good, keys); err != nil {
		t.Fatalf("the original: %v", err)
	}
	if _, err := VerifyReceipt(good, keySet(t, UseReceipt, keyOne)); !errors.Is(err, ErrInvalid) {
		t.Errorf("a permit passed for a receipt: %v", err)
	}
}

// looseLastDigit changes bits of the mac's last base64 digit that no byte holds:
// a decoder that ignores them would take it for the same mac.
func looseLastDigit(token string) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(digits, token[len(token)-1])
	return token[:len(token)-1] + string(digits[last^1])
}

// TestEveryChangedByteIsNoticed flips one byte anywhere.
func TestEveryChangedByteIsNoticed(t *testing.T) {
	t.Parallel()
	keys := keySet(t, UsePermit, keyOne)
	good, err := somePermit.Sign(keys, "k1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(good) {
		for _, bit := range []byte{1, 2, 4, 8, 16, 32, 64, 128} {
			changed := []byte(good)
			changed[i] ^= bit
			if _, err := VerifyPermit(string(changed), keys); !errors.Is(err, ErrInvalid) {
				t.Fatalf("byte %d changed by %d: %v", i, bit, err)
			}
		}
	}
}

func TestRotationAndRevocation(t *testing.T) {
	t.Parallel()
	both := keySet(t, UsePermit, keyOne, keyTwo)
	old, err := somePermit.Sign(both, "k1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyPermit(old, both.Only("k1", "k2")); err != nil {
		t.Errorf("a retiring key: %v", err)
	}
	if _, err := VerifyPermit(old, both.Only("k2", "k9")); !errors.Is(err, ErrInvalid) {
		t.Errorf("a revoked key: %v", err)
	}
	if _, err := somePermit.Sign(both.Only("k2"), "k1"); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("signing under a key that is not there: %v", err)
	}
}

// TestSignRefusesWhatVerifyWould: nothing leaves that could not come back.
func TestSignRefusesWhatVerifyWould(t *testing.T) {
	t.Parallel()
	permits := map[string]func(*Permit){
		"campaign_id": func(p *Permit) { p.Campaign = "A" },
		"sku_id":      func(p *Permit) { p.SKU = "" },
		"user_id":     func(p *Permit) { p.User = ids.UserID(strings.Repeat("x", 300)) },
		"nonce":       func(p *Permit) { p.Nonce = "a}b" },
		"expires":     func(p *Permit) { p.Expires = time.Time{} },
	}
	for field, spoil := range permits {
		p := somePermit
		spoil(&p)
		if token, err := p.Sign(keySet(t, UsePermit, keyOne), "k1"); err == nil || !strings.Contains(err.Error(), field) || token != "" {
			t.Errorf("permit with bad %s: %q, %v", field, token, err)
		}
	}
	receipts := map[string]func(*Receipt){
		"user_id":     func(r *Receipt) { r.User = "" },
		"request_id":  func(r *Receipt) { r.Request = "a b" },
		"campaign_id": func(r *Receipt) { r.Campaign = "" },
		"sku_id":      func(r *Receipt) { r.SKU = ".." },
		"cell_id":     func(r *Receipt) { r.Cell = "cell.1" },
		"build_id":    func(r *Receipt) { r.Build.Fence = -1 },
		"at":          func(r *Receipt) { r.At = time.Time{} },
	}
	for field, spoil := range receipts {
		r := someReceipt
		spoil(&r)
		if token, err := r.Sign(keySet(t, UseReceipt, keyOne), "k1"); err == nil || !strings.Contains(err.Error(), field) || token != "" {
			t.Errorf("receipt with bad %s: %q, %v", field, token, err)
		}
	}
}

func TestSignedPayloadsOfAnotherShapeAreRefused(t *testing.T) {
	t.Parallel()
	keys := keySet(t, UsePermit, keyOne)
	for _, payload := range []string{"", "\x01", "\xff", strings.Repeat("\x00", 20), "\x01a\x01b\x01c" + strings.Repeat("\x00", 16) + "\x00", strings.Repeat("\x01a", 100)} {
		token, err := keys.signToken("k1", []byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyPermit(token, keys); !errors.Is(err, ErrInvalid) {
			t.Errorf("payload %q: %v", payload, err)
		}
	}
}

func TestNoncesDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		n := NewNonce()
		if !isNonce(n) || seen[n] {
			t.Fatalf("nonce %q", n)
		}
		seen[n] = true
	}
}

// FuzzTokens signs arbitrary payloads, so that the decoders behind the mac are
// reached, and reads arbitrary texts, so that the parser before it is.
func FuzzTokens(f *testing.F) {
	f.Add([]byte("\x01a\x01b\x01c"), "v1.k1.AA.AA")
	f.Add([]byte{}, "...")
	permits, receipts := keySet(f, UsePermit, keyOne), keySet(f, UseReceipt, keyOne)
	f.Fuzz(func(t *testing.T, payload []byte, text string) {
		if _, err := VerifyPermit(text, permits); err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
		token, err := permits.signToken("k1", payload)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := VerifyPermit(token, permits); err == nil {
			if again, err := p.Sign(permits, "k1"); err != nil || again != token {
				t.Fatalf("%q reads as %+v, which signs as %q, %v", payload, p, again, err)
			}
		}
		token, err = receipts.signToken("k1", payload)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := VerifyReceipt(token, receipts); err == nil {
			if again, err := r.Sign(receipts, "k1"); err != nil || again != token {
				t.Fatalf("%q reads as %+v, which signs as %q, %v", payload, r, again, err)
			}
		}
	})
}

func BenchmarkVerifyPermit(b *testing.B) {
	keys := keySet(b, UsePermit, keyOne)
	token, err := somePermit.Sign(keys, "k1")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := VerifyPermit(token, keys); err != nil {
			b.Fatal(err)
		}
	}
}
