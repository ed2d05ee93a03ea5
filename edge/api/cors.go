package api

import (
	"net/http"
	"slices"
)

// What a browser's script may send and read beside the simple headers.
const (
	corsRequestHeaders  = "Authorization, Content-Type, Accept-Language, Retry-Attempt, traceparent, tracestate"
	corsResponseHeaders = "Location, Retry-After, Trace-Id, Idempotent-Replayed"
	corsMaxAge          = "600"
)

// cors lets scripts of configured origins call. Identity is a bearer token that the script sends
// itself, so credentials are never allowed: no cookie means anything here.
type cors struct {
	origins []string
	any     bool
}

func newCORS(origins []string) *cors {
	return &cors{origins: origins, any: slices.Contains(origins, "*")}
}

// mark sets the headers that every answer to an allowed origin has. Vary is there even for others,
// or a cache would hand one origin what was meant for another.
func (c *cors) mark(h http.Header, r *http.Request) {
	if len(c.origins) == 0 {
		return
	}
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" || (!c.any && !slices.Contains(c.origins, origin)) {
		return
	}
	if c.any {
		origin = "*"
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", corsResponseHeaders)
}

// preflight answers OPTIONS for an allowed origin.
func (c *cors) preflight(h http.Header, r *http.Request, allow string) {
	if h.Get("Access-Control-Allow-Origin") == "" || r.Header.Get("Access-Control-Request-Method") == "" {
		return
	}
	h.Set("Access-Control-Allow-Methods", allow)
	h.Set("Access-Control-Allow-Headers", corsRequestHeaders)
	h.Set("Access-Control-Max-Age", corsMaxAge)
}
