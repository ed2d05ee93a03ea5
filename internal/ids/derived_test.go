package ids

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The golden values. They are in the hands of customers and in stores: when this
// test fails, the code is wrong, not the test.
func TestDerivedIDsNeverChange(t *testing.T) {
	t.Parallel()
	res := DeriveReservation("double-eleven", "phone-x", "alice", "req-1", "cell-1", Build{Fence: 3, Count: 7})
	golden := []struct{ name, got, want string }{
		{"reservation", string(res), "cell-1.rudqb3xwsvyaljz4p5kkxvsiurq"},
		{"order", string(res.Order()), "cell-1.oudqb3xwsvyaljz4p5kkxvsiurq"},
		{"event", EventID(res), "reserve-cell-1.rudqb3xwsvyaljz4p5kkxvsiurq"},
		{"fingerprint", Fingerprint("double-eleven", "phone-x", "alice", 1), "zbbf2p3zrdaxsc2vx5djriawcz"},
		{"bucket alice", fmt.Sprint(Bucket("alice")), "73"},
		{"bucket 用户", fmt.Sprint(Bucket("用户")), "906"},
		{"partition", fmt.Sprint(Partition("double-eleven", "phone-x", 16)), "6"},
	}
	for _, g := range golden {
		if g.got != g.want {
			t.Errorf("%s = %s, want %s", g.name, g.got, g.want)
		}
	}
}

type request struct {
	campaign CampaignID
	sku      SKUID
	user     UserID
	request  RequestID
	cell     CellID
	build    Build
}

func (r request) derive() ReservationID {
	return DeriveReservation(r.campaign, r.sku, r.user, r.request, r.cell, r.build)
}

func drawRequest(t *rapid.T, label string) request {
	part := rapid.Int64Range(0, 3)
	return request{
		campaign: CampaignID(rapid.StringMatching(`[ab-]{1,3}`).Draw(t, label+" campaign")),
		sku:      SKUID(rapid.StringMatching(`[ab._-]{1,3}`).Draw(t, label+" sku")),
		user:     UserID(rapid.StringMatching(`[ab用]{1,3}`).Draw(t, label+" user")),
		request:  RequestID(rapid.StringMatching(`[ab_-]{1,3}`).Draw(t, label+" request")),
		cell:     CellID(rapid.StringMatching(`[ab-]{1,3}`).Draw(t, label+" cell")),
		build:    Build{Fence: part.Draw(t, label+" fence"), Count: part.Draw(t, label+" count")},
	}
}

// TestDeriveIsInjective: equal ids mean equal requests; letters that move from
// one part to the next do not.
func TestDeriveIsInjective(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawRequest(t, "a"), drawRequest(t, "b")
		if (a.derive() == b.derive()) != (a == b) {
			t.Fatalf("%+v → %s, %+v → %s", a, a.derive(), b, b.derive())
		}
	})
}

// TestDeriveEqualsThePlainTwin computes the id as the doc comment says it.
func TestDeriveEqualsThePlainTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t, "r")
		var text bytes.Buffer
		for _, p := range []string{string(r.campaign), string(r.sku), string(r.user), string(r.request), string(r.cell), r.build.String()} {
			text.Write([]byte{byte(len(p) >> 24), byte(len(p) >> 16), byte(len(p) >> 8), byte(len(p))})
			text.WriteString(p)
		}
		sum := sha256.Sum256(text.Bytes())
		want := string(r.cell) + ".r" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
		if got := r.derive(); string(got) != want {
			t.Fatalf("derive = %s, want %s", got, want)
		}
	})
}

func TestDerivedIDsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t, "r")
		res := r.derive()
		ord := res.Order()
		parsedRes, errR := ParseReservation(string(res))
		parsedOrd, errO := ParseOrder(string(ord))
		parsedEvent, errE := ParseEventID(EventID(res))
		if errR != nil || errO != nil || errE != nil || parsedRes != res || parsedOrd != ord || parsedEvent != res {
			t.Fatalf("%s, %s: %v %v %v", res, ord, errR, errO, errE)
		}
		if res.Cell() != r.cell || ord.Cell() != r.cell || ord.Reservation() != res {
			t.Fatalf("%s, %s: wrong way back", res, ord)
		}
	})
}

func TestForgedDerivedIDsAreRefused(t *testing.T) {
	t.Parallel()
	good := string(request{"c", "s", "u", "q", "cell-1", Build{1, 1}}.derive())
	digest := good[len("cell-1.r"):]
	forged := []string{
		"", ".", "cell-1", "cell-1.", "cell-1.r", ".r" + digest, "cell-1.x" + digest, "cell-1.R" + digest, "Cell-1.r" + digest,
		"cell-1.r" + strings.ToUpper(digest), good + "a", good[:len(good)-1], "cell-1.r" + digest[:25] + "0", "cell-1.r" + digest[:25] + "1",
		"cell-1.r" + digest[:25] + "=", "cell-1..r" + digest, "cell_1.r" + digest, " " + good, good + "\n", "a/b.r" + digest,
		strings.Repeat("a", 64) + ".r" + digest, "reserve-" + good[:3],
	}
	for _, s := range forged {
		if id, err := ParseReservation(s); err == nil || id != "" {
			t.Errorf("ParseReservation(%q) = %q, %v", s, id, err)
		}
		swapped := strings.Replace(s, ".r", ".o", 1)
		if id, err := ParseOrder(swapped); err == nil || id != "" {
			t.Errorf("ParseOrder(%q) = %q, %v", swapped, id, err)
		}
	}
	if _, err := ParseReservation(string(ReservationID(good).Order())); err == nil {
		t.Error("an order id was read as a reservation id")
	}
	if _, err := ParseOrder(good); err == nil {
		t.Error("a reservation id was read as an order id")
	}
	if _, err := ParseEventID(good); err == nil {
		t.Error("a reservation id was read as an event id")
	}
}

// TestFingerprintTellsEveryParameterApart: K42, the repeat with another quantity; R-268.
func TestFingerprintTellsEveryParameterApart(t *testing.T) {
	t.Parallel()
	base := Fingerprint("c", "s", "u", 1)
	for _, other := range []string{
		Fingerprint("d", "s", "u", 1), Fingerprint("c", "t", "u", 1), Fingerprint("c", "s", "v", 1),
		Fingerprint("c", "s", "u", 2), Fingerprint("c", "s", "u1", 1), Fingerprint("cs", "u", "1", 1), Fingerprint("c", "s", "u", 11),
	} {
		if other == base {
			t.Errorf("fingerprint %s stands for two requests", base)
		}
	}
	if base != Fingerprint("c", "s", "u", 1) {
		t.Error("the same request has two fingerprints")
	}
}

func FuzzParseReservation(f *testing.F) {
	f.Add("cell-1.raaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add("cell-1.oaaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add("reserve-cell-1.raaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add(".r")
	f.Fuzz(func(t *testing.T, s string) {
		res, err := ParseReservation(s)
		if err == nil {
			if string(res) != s || string(res.Cell())+".r"+s[len(s)-26:] != s || res.Order().Reservation() != res {
				t.Fatalf("accepted %q", s)
			}
		}
		if ord, err := ParseOrder(s); err == nil && ord.Reservation().Order() != ord {
			t.Fatalf("accepted order %q", s)
		}
		if ev, err := ParseEventID(s); err == nil && EventID(ev) != s {
			t.Fatalf("accepted event %q", s)
		}
	})
}
