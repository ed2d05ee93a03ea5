package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/api"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/testkit"
)

// Every code of the catalogue has a rule here that says what the catalogue says: permanent answers
// are not tried again, and waiting is what the answer said.
func TestNextFollowsCatalogue(t *testing.T) {
	// Permanent for this customer's request though the catalogue cannot call them so: what changes
	// is his own doing, not time.
	stands := map[api.Code]bool{api.AlreadyReserved: true, api.Unauthenticated: true}
	for code, entry := range api.Catalog {
		for _, attempt := range []int{0, 3} {
			a := client.Answer{Status: entry.Status, Code: string(code), RetryAfter: 700 * time.Millisecond}
			step := client.Next(a, nil, attempt)
			if step.Again == (entry.Permanent || stands[code]) {
				t.Errorf("%s: again %v, permanent %v", code, step.Again, entry.Permanent)
			}
			if !step.Again {
				continue
			}
			if !step.NewPermit && step.After != a.RetryAfter {
				t.Errorf("%s: waits %v", code, step.After)
			}
			unknown := code == api.NotReady || code == api.Internal
			if want := attempt + map[bool]int{true: 1}[unknown]; step.RetryAttempt != want {
				t.Errorf("%s after attempt %d: Retry-Attempt %d, want %d", code, attempt, step.RetryAttempt, want)
			}
		}
	}
	if s := client.Next(client.Answer{Status: 202}, nil, 0); s.Again {
		t.Error("a success is tried again")
	}
	for attempt := range 20 {
		s := client.Next(client.Answer{}, client.ErrUnknown, attempt)
		if !s.Again || s.RetryAttempt != attempt+1 || s.After < 200*time.Millisecond || s.After > 8*time.Second {
			t.Errorf("no answer to attempt %d: %+v", attempt, s)
		}
	}
}

// What is not an answer of an edge is never taken for one.
func TestUnknown(t *testing.T) {
	var reply func(w http.ResponseWriter)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reply(w) }))
	c, err := client.New(client.Config{BaseURLs: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := testkit.Deadline(t)
	for name, f := range map[string]func(http.ResponseWriter){
		"a proxy's page":   func(w http.ResponseWriter) { w.WriteHeader(502); _, _ = w.Write([]byte("<html>")) },
		"no code":          func(w http.ResponseWriter) { w.WriteHeader(503); _, _ = w.Write([]byte("{}")) },
		"a broken success": func(w http.ResponseWriter) { _, _ = w.Write([]byte("{")) },
		"a redirect":       func(w http.ResponseWriter) { w.Header().Set("Location", "/"); w.WriteHeader(302) },
		"hung up": func(w http.ResponseWriter) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		},
	} {
		reply = f
		if _, _, err := c.Order(ctx, "t", "o"); !errors.Is(err, client.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.Close()
	server.Close()
	if _, _, err := c.Order(ctx, "t", "o"); !errors.Is(err, client.ErrNotSent) {
		t.Errorf("nobody listens: %v", err)
	}
}
