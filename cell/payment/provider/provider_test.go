package provider

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
)

// TestHTTPAnswers: only a clear answer is one; everything else is Unknown, never a failed payment.
func TestHTTPAnswers(t *testing.T) {
	euro := reservation.Money{Tenthousandths: 100_000, Currency: "EUR"}
	for name, c := range map[string]struct {
		code  int
		body  string
		want  Answer
		fault bool
	}{
		"succeeded":     {200, `{"status":"SUCCEEDED","amount":"10.00","currency":"EUR"}`, Answer{Succeeded, euro}, false},
		"failed":        {200, `{"status":"FAILED"}`, Answer{Status: Failed}, false},
		"never heard":   {404, ``, Answer{Status: None}, false},
		"cannot say":    {200, `{"status":"UNKNOWN"}`, Answer{Status: Unknown}, false},
		"strange word":  {200, `{"status":"MAYBE"}`, Answer{Status: Unknown}, true},
		"not JSON":      {200, `<html>`, Answer{Status: Unknown}, true},
		"strange money": {200, `{"status":"SUCCEEDED","amount":"1e3","currency":"EUR"}`, Answer{Status: Unknown}, true},
		"its own fault": {500, `{"status":"FAILED"}`, Answer{Status: Unknown}, true},
		"not allowed":   {403, ``, Answer{Status: Unknown}, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/channel/orders/cell-1.oabc/payments/p:1" {
				t.Errorf("asked %s", r.URL.Path)
			}
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
		}))
		h := &HTTP{URL: server.URL + "/channel"}
		got, err := h.Inquire(t.Context(), "cell-1.oabc", "p:1")
		if got != c.want || (err != nil) != c.fault {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		server.Close()
	}
}

func TestHTTPSilence(t *testing.T) {
	held := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-held }))
	defer server.Close()
	defer close(held)
	h := &HTTP{URL: server.URL, Timeout: 10 * time.Millisecond}
	if got, err := h.Inquire(t.Context(), "o", "p"); got.Status != Unknown || err == nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := (&HTTP{URL: "http://127.0.0.1:1"}).Inquire(t.Context(), "o", "p"); got.Status != Unknown || err == nil {
		t.Errorf("unreachable: %+v, %v", got, err)
	}
}

func TestSandboxKnowsWhatItWasTold(t *testing.T) {
	var s Sandbox
	if a, _ := s.Inquire(t.Context(), "o", "p"); a.Status != None {
		t.Errorf("%+v", a)
	}
	s.Tell("o", "p", Answer{Status: Succeeded})
	if a, _ := s.Inquire(t.Context(), "o", "p"); a.Status != Succeeded {
		t.Errorf("%+v", a)
	}
}
