package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/testkit"
)

// What is not an answer of an edge is never taken for one.
func TestUnknown(t *testing.T) {
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
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { f(w) }))
		c := newClient(t, server.URL)
		if _, _, err := c.Order(ctx, "t", "o"); !errors.Is(err, client.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
		server.Close()
	}
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	c := newClient(t, server.URL)
	defer c.Close()
	if _, _, err := c.Order(ctx, "t", "o"); !errors.Is(err, client.ErrNotSent) {
		t.Errorf("nobody listens: %v", err)
	}
}

func newClient(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{BaseURLs: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
