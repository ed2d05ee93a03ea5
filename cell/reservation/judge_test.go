package reservation

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/internal/ids"
)

var opening = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

func fine() (Admission, Facts) {
	price := Money{Tenthousandths: 49_990_000, Currency: "CNY"}
	m := Admission{
		Reservation: "cell-1.raaaaaaaaaaaaaaaaaaaaaaaaaa", Request: "r1", Campaign: "c", SKU: "s", User: "u", Quantity: 1,
		Build: ids.Build{Fence: 3, Count: 2}, Fingerprint: "f", Price: price,
		PermitExpiresAt: opening.Add(time.Minute), AdmittedAt: opening,
	}
	f := Facts{
		MessagesFrom: 3, Raised: ids.Build{Fence: 3, Count: 2}, Owned: true,
		Rules: &Rules{OpenAt: opening, CloseAt: opening.Add(time.Hour), Price: price, MaxQuantity: 2, TTL: time.Minute},
	}
	return m, f
}

func TestJudge(t *testing.T) {
	other := ids.ReservationID("cell-1.rbbbbbbbbbbbbbbbbbbbbbbbbbb")
	for _, c := range []struct {
		name   string
		change func(*Admission, *Facts)
		want   Verdict
	}{
		{"fine", func(*Admission, *Facts) {}, Verdict{}},
		{"below messages_from", func(_ *Admission, f *Facts) { f.MessagesFrom = 4 }, Verdict{Reason: CellFenced}},
		{"fence wins over build", func(_ *Admission, f *Facts) { f.MessagesFrom, f.Raised = 4, ids.Build{Fence: 4, Count: 1} }, Verdict{Reason: CellFenced}},
		{"older build", func(_ *Admission, f *Facts) { f.Raised.Count = 3 }, Verdict{Reason: LostAdmission}},
		{"newer build", func(m *Admission, _ *Facts) { m.Build.Count = 9 }, Verdict{}},
		{"unknown SKU", func(_ *Admission, f *Facts) { f.Rules = nil }, Verdict{Reason: Malformed}},
		{"too many", func(m *Admission, _ *Facts) { m.Quantity = 3 }, Verdict{Reason: Malformed}},
		{"none", func(m *Admission, _ *Facts) { m.Quantity = 0 }, Verdict{Reason: Malformed}},
		{"other price", func(m *Admission, _ *Facts) { m.Price.Tenthousandths-- }, Verdict{Reason: Malformed}},
		{"a moment early", func(m *Admission, _ *Facts) { m.AdmittedAt = opening.Add(-time.Millisecond) }, Verdict{Reason: WindowClosed}},
		{"at closing", func(m *Admission, f *Facts) { m.AdmittedAt = f.Rules.CloseAt }, Verdict{Reason: WindowClosed}},
		{"permit over", func(m *Admission, _ *Facts) { m.PermitExpiresAt = m.AdmittedAt }, Verdict{Reason: Expired}},
		{"no permit asked", func(m *Admission, _ *Facts) { m.PermitExpiresAt = time.Time{} }, Verdict{}},
		{"not home", func(_ *Admission, f *Facts) { f.Owned = false }, Verdict{Reason: Moved}},
		{"seen", func(m *Admission, f *Facts) { f.Earlier = []Earlier{{Reservation: m.Reservation}} }, Verdict{Duplicate: true}},
		{"seen, and fenced since", func(m *Admission, f *Facts) {
			f.MessagesFrom, f.Earlier = 9, []Earlier{{Reservation: m.Reservation}}
		}, Verdict{Duplicate: true}},
		{"request was rejected", func(_ *Admission, f *Facts) {
			f.Earlier = []Earlier{{Reservation: other, Rejected: true, Reason: LostAdmission, Fingerprint: "f"}}
		}, Verdict{Reason: LostAdmission}},
		{"request had moved", func(_ *Admission, f *Facts) {
			f.Earlier = []Earlier{{Reservation: other, Rejected: true, Reason: Moved, Fingerprint: "f"}}
		}, Verdict{}},
		{"other parameters", func(_ *Admission, f *Facts) {
			f.Earlier = []Earlier{{Reservation: other, Rejected: true, Reason: Moved, Fingerprint: "g"}}
		}, Verdict{Reason: IdempotencyConflict}},
	} {
		m, f := fine()
		c.change(&m, &f)
		if got := Judge(&m, &f); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestPaymentTTLOnlyShortens(t *testing.T) {
	r := Rules{TTL: time.Minute, TTLByRisk: map[string]time.Duration{"high": time.Second, "low": time.Hour}}
	if r.PaymentTTL("high") != time.Second || r.PaymentTTL("low") != time.Minute || r.PaymentTTL("") != time.Minute {
		t.Fatal("wrong window")
	}
}

func TestMoney(t *testing.T) {
	for text, want := range map[string]string{"4999.00": "4999.00", "4999": "4999.00", "0.125": "0.125", "0.1000": "0.10", "7.0001": "7.0001"} {
		m, err := ParseMoney(text, "CNY")
		if err != nil || m.Amount() != want {
			t.Errorf("%s: %s, %v", text, m.Amount(), err)
		}
	}
	for _, bad := range []string{"", ".", "1.", ".5", "-1", "+1", "1e3", "1.00000", "１", "123456789012345", " 1"} {
		if m, err := ParseMoney(bad, "CNY"); err == nil {
			t.Errorf("%q was read as %s", bad, m.Amount())
		}
	}
	if _, err := ParseMoney("1", "cny"); err == nil {
		t.Error("currency cny was accepted")
	}
	if _, err := (Money{Tenthousandths: maxMoney, Currency: "CNY"}).Times(2); err == nil {
		t.Error("an amount that does not fit was accepted")
	}
	rapid.Check(t, func(t *rapid.T) {
		m := Money{Tenthousandths: rapid.Int64Range(0, maxMoney).Draw(t, "n"), Currency: "EUR"}
		if back, err := ParseMoney(m.Amount(), "EUR"); err != nil || back != m {
			t.Fatalf("%s reads back as %v, %v", m.Amount(), back, err)
		}
	})
}
