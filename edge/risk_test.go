package edge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/edge/risk"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// The risk service hears what calls came to, and its verdict counts from then on: in the campaign's
// deny_risk_tiers, and at the cell, which shortens the time to pay. A service that hangs holds up nobody.
func TestRisk(t *testing.T) {
	var mu sync.Mutex
	var heard []risk.Event
	verdict, hang := "", make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var in struct{ Events []risk.Event }
		if err := json.NewDecoder(q.Body).Decode(&in); err != nil || q.Header.Get("Authorization") != "Bearer s3cret" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		mu.Lock()
		heard = append(heard, in.Events...)
		answer := verdict
		mu.Unlock()
		if answer == "hang" {
			select {
			case <-hang:
			case <-q.Context().Done():
			}
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(service.Close)
	t.Cleanup(func() { close(hang) })
	say := func(answer string) { mu.Lock(); verdict = answer; mu.Unlock() }
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(c *Config) { c.Risk.URL, c.Risk.TokenFile, c.Risk.Wait = service.URL, file, time.Millisecond })
	users := celltest.Homed("rolf", 2, 0, 2)
	device := func(c *client.TokenClaims) { c.DeviceID, c.RiskTier = "d1", "low" }
	token := r.token(users[0], device)
	p, _, err := r.client.Permit(t.Context(), token, campaign, sku)
	if err != nil {
		t.Fatal(err)
	}
	q, a, err := r.client.Buy(t.Context(), token, campaign, sku, client.Try{RequestID: "r1", Quantity: 1, Permit: p.Permit})
	if err != nil || a.Status != 202 {
		t.Fatal(err, a.Status)
	}
	if _, asked := r.cells[0].Asked(); asked.GetAdmit().GetRiskTier() != "low" {
		t.Errorf("the cell was asked %v", asked)
	}
	order := r.cells[0].MakeOrder(campaign, sku, users[0], "r1")
	if _, _, err := r.client.StartPayment(t.Context(), token, order, "p1"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.client.SendCallback(t.Context(), client.Callback{PaymentID: "p1", OrderID: order, Amount: "4999.00", Currency: "CNY", Status: "FAILED"}, r.sign); err != nil {
		t.Fatal(err)
	}
	for _, want := range []risk.Event{
		{Call: "claim_permit", Code: "ISSUED", Campaign: campaign, SKU: sku, User: users[0], Device: "d1", Network: "127.0.0.1", Tier: "low"},
		{Call: "request", Code: "ACCEPTED", Campaign: campaign, SKU: sku, User: users[0], Device: "d1", Network: "127.0.0.1", Tier: "low", Reservation: q.ReservationID},
		{Call: "start_payment", Code: "STARTED", User: users[0], Device: "d1", Network: "127.0.0.1", Tier: "low", Order: order, Payment: "p1"},
		{Call: "payment_callback", Code: "OK", Order: order, Payment: "p1", Status: "FAILED"},
	} {
		r.until(func() error {
			mu.Lock()
			defer mu.Unlock()
			if !slices.ContainsFunc(heard, func(e risk.Event) bool { e.At = time.Time{}; return e == want }) {
				return fmt.Errorf("not heard of %+v in %+v", want, heard)
			}
			return nil
		})
	}
	// The verdict: whoever has the device is of another tier now.
	say(`{"verdicts":[{"device_id":"d1","risk_tier":"high","ttl_ms":60000}]}`)
	second := r.token(users[1], device)
	claim := func() client.Answer {
		_, a, err := r.client.Permit(t.Context(), second, campaign, sku)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	claim()
	r.until(func() error {
		if r.counter("cellquota_edge_risk_verdicts_total") == 0 {
			return fmt.Errorf("no verdict")
		}
		return nil
	})
	say("hang")
	began := now()
	if _, a, err := r.client.Buy(t.Context(), second, campaign, sku, client.Try{RequestID: "r1", Quantity: 1, Permit: r.permit(users[1])}); err != nil || a.Status != 202 {
		t.Fatal(err, a.Status, string(a.Body))
	}
	if _, asked := r.cells[0].Asked(); asked.GetAdmit().GetRiskTier() != "high" {
		t.Errorf("after the verdict the cell was asked %v", asked)
	}
	r.change(func(c *cq.CampaignRoute) { c.Spec.Eligibility = &cq.EligibilityRules{DenyRiskTiers: []string{"high"}} })
	r.must(claim(), 403, "NOT_ELIGIBLE")
	if took := now().Sub(began); took > 2*time.Second {
		t.Errorf("customers waited for the service: %v", took)
	}
	if r.counter(`cellquota_edge_risk_events_total{outcome="sent"}`) < 4 {
		t.Error("events are not counted")
	}
}
