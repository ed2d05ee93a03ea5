package provider

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
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

// TestHTTPListsAnOrdersPayments: a whole and clear list is one; anything else, a channel without the question
// too, says nothing, least of all that nobody paid.
func TestHTTPListsAnOrdersPayments(t *testing.T) {
	euro := reservation.Money{Tenthousandths: 100_000, Currency: "EUR"}
	for name, c := range map[string]struct {
		code int
		body string
		want []Found // nil: an error
	}{
		"nobody paid": {200, `{"payments":[]}`, []Found{}},
		"payments": {200, `{"payments":[{"payment_id":"p:1","status":"FAILED"},{"payment_id":"p:2","status":"SUCCEEDED","amount":"10.00","currency":"EUR"},
			{"payment_id":"p:3","status":"UNKNOWN"},{"payment_id":"p:4","status":"REFUNDED"}]}`, []Found{
			{"p:1", Answer{Status: Failed}}, {"p:2", Answer{Succeeded, euro}}, {"p:3", Answer{Status: Unknown}}, {"p:4", Answer{Status: Refunded}},
		}},
		"no such question": {404, `{"payments":[]}`, nil},
		"its own fault":    {500, `{"payments":[]}`, nil},
		"not JSON":         {200, `ok`, nil},
		"no list":          {200, `{}`, nil},
		"null":             {200, `{"payments":null}`, nil},
		"one attempt's":    {200, `{"status":"NONE"}`, nil},
		"nameless":         {200, `{"payments":[{"status":"FAILED"}]}`, nil},
		"strange name":     {200, `{"payments":[{"payment_id":"*recovery","status":"FAILED"}]}`, nil},
		"twice":            {200, `{"payments":[{"payment_id":"p","status":"FAILED"},{"payment_id":"p","status":"SUCCEEDED"}]}`, nil},
		"strange word":     {200, `{"payments":[{"payment_id":"p","status":"NONE"}]}`, nil},
		"an empty place":   {200, `{"payments":[null]}`, nil},
		"too long":         {200, `{"payments":[],"x":"` + strings.Repeat("x", maxAnswer) + `"}`, nil},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/channel/orders/cell-1.oabc/payments" {
				t.Errorf("asked %s %s", r.Method, r.URL.Path)
			}
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
		}))
		got, err := (&HTTP{URL: server.URL + "/channel"}).InquireOrder(t.Context(), "cell-1.oabc")
		if (err != nil) != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		server.Close()
	}
}

// TestHTTPAsksForNothingElse: a payment_id or refund_id of dots would be joined to the address of
// another question; the channel is not asked at all.
func TestHTTPAsksForNothingElse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("asked %s", r.URL.Path)
		_, _ = io.WriteString(w, `{"status":"REFUNDED"}`)
	}))
	defer server.Close()
	h := &HTTP{URL: server.URL}
	for _, dots := range []string{".", ".."} {
		if got, err := h.Inquire(t.Context(), "o", ids.PaymentID(dots)); got.Status != Unknown || !errors.Is(err, errBadName) {
			t.Errorf("payment %q: %+v, %v", dots, got, err)
		}
		for _, want := range []RefundOrder{{ID: dots, Order: "o", Payment: "p"}, {ID: "rf", Order: "o", Payment: ids.PaymentID(dots)}} {
			if got, err := h.Refund(t.Context(), want); got.Status != Unknown || !errors.Is(err, errBadName) {
				t.Errorf("%+v: %+v, %v", want, got, err)
			}
		}
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
	if list, err := s.InquireOrder(t.Context(), "o"); len(list) != 0 || err != nil {
		t.Errorf("%+v, %v", list, err)
	}
	s.Tell("o", "p", Answer{Status: Succeeded})
	s.Tell("o2", "p2", Answer{Status: Failed})
	if list, err := s.InquireOrder(t.Context(), "o"); !slices.Equal(list, []Found{{"p", Answer{Status: Succeeded}}}) || err != nil {
		t.Errorf("%+v, %v", list, err)
	}
	if a, _ := s.Inquire(t.Context(), "o", "p"); a.Status != Succeeded {
		t.Errorf("%+v", a)
	}
}

// TestHTTPRefunds: only a clear answer is one; everything else is Unknown and asked again.
func TestHTTPRefunds(t *testing.T) {
	want := RefundOrder{ID: "rf-1", Order: "cell-1.oabc", Payment: "p:1", Amount: reservation.Money{Tenthousandths: 100_000, Currency: "EUR"}}
	for name, c := range map[string]struct {
		code  int
		body  string
		want  Answer
		fault bool
	}{
		"done":          {200, `{"status":"REFUNDED"}`, Answer{Status: Refunded}, false},
		"a part":        {200, `{"status":"REFUNDED","amount":"3.00","currency":"EUR"}`, Answer{Refunded, reservation.Money{Tenthousandths: 30_000, Currency: "EUR"}}, false},
		"nothing":       {200, `{"status":"REFUNDED","amount":"0.00","currency":"EUR"}`, Answer{Status: Unknown}, true},
		"strange money": {200, `{"status":"REFUNDED","amount":"3","currency":"?"}`, Answer{Status: Unknown}, true},
		"accepted":      {202, `{"status":"PENDING"}`, Answer{Status: Pending}, false},
		"refused":       {200, `{"status":"REFUSED"}`, Answer{Status: Refused}, false},
		"cannot say":    {200, `{"status":"UNKNOWN"}`, Answer{Status: Unknown}, false},
		"an inquiry's":  {200, `{"status":"SUCCEEDED"}`, Answer{Status: Unknown}, true},
		"never heard":   {404, ``, Answer{Status: Unknown}, true},
		"not JSON":      {200, `ok`, Answer{Status: Unknown}, true},
		"too long":      {200, `{"status":"REFUNDED","x":"` + strings.Repeat("x", maxAnswer) + `"}`, Answer{Status: Unknown}, true},
		"its own fault": {500, `{"status":"REFUNDED"}`, Answer{Status: Unknown}, true},
		"elsewhere":     {307, `{"status":"REFUNDED"}`, Answer{Status: Unknown}, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Method != http.MethodPut || r.URL.Path != "/channel/orders/cell-1.oabc/payments/p:1/refunds/rf-1" || string(body) != `{"amount":"10.00","currency":"EUR"}` {
				t.Errorf("asked %s %s: %s", r.Method, r.URL.Path, body)
			}
			w.Header().Set("Location", "/channel/elsewhere")
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
		}))
		got, err := (&HTTP{URL: server.URL + "/channel"}).Refund(t.Context(), want)
		if got != c.want || (err != nil) != c.fault {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		server.Close()
	}
}

// TestHTTPSignatures: with keys the channel can tell our questions, and an answer that is not signed
// for this very question, by a key we hold, now, is none.
func TestHTTPSignatures(t *testing.T) {
	keys, err := signed.NewKeySet(signed.UsePayment, map[string][]byte{"k1": bytes.Repeat([]byte("k"), 32)})
	others, err2 := signed.NewKeySet(signed.UsePayment, map[string][]byte{"k1": bytes.Repeat([]byte("x"), 32)})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	const path, body = "/orders/o/payments/p", `{"status":"FAILED"}`
	sign := func(set *signed.KeySet, at time.Time, text string) string {
		header, err := signed.SignPayment(at, []byte(text), set, "k1")
		if err != nil {
			t.Fatal(err)
		}
		return header
	}
	for name, c := range map[string]struct {
		header string
		want   Status
	}{
		"signed":           {sign(keys, now, "ANSWER "+path+"\n"+body), Failed},
		"not signed":       {"", Unknown},
		"by another":       {sign(others, now, "ANSWER "+path+"\n"+body), Unknown},
		"another question": {sign(keys, now, "ANSWER "+path+"2\n"+body), Unknown},
		"our own question": {sign(keys, now, "GET "+path+"\n"), Unknown},
		"long ago":         {sign(keys, now.Add(-time.Hour), "ANSWER "+path+"\n"+body), Unknown},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := signed.VerifyPayment(r.Header.Get(signed.PaymentHeader), []byte("GET "+path+"\n"), now, time.Minute, keys); err != nil {
				t.Errorf("the question's signature: %v", err)
			}
			w.Header().Set(signed.PaymentHeader, c.header)
			_, _ = io.WriteString(w, body)
		}))
		h := &HTTP{URL: server.URL, Keys: func() *signed.KeySet { return keys }, Key: "k1", Clock: clock.System()}
		if got, err := h.Inquire(t.Context(), "o", "p"); got.Status != c.want || (err == nil) != (c.want == Failed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		server.Close()
	}
}

func TestSandboxTakesItsTime(t *testing.T) {
	s := Sandbox{RefundAfter: time.Second}
	for age, want := range map[time.Duration]Status{0: Pending, time.Second: Refunded} {
		if got, err := s.Refund(t.Context(), RefundOrder{Age: age}); got.Status != want || err != nil {
			t.Errorf("after %s: %+v, %v", age, got, err)
		}
	}
}
