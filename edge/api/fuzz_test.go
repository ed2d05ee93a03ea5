package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/internal/ids"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// What is accepted as a body is JSON that every other reader understands in the same way (K42).
func FuzzBodies(f *testing.F) {
	for _, s := range []string{
		`{"request_id":"a","quantity":1,"permit":"p"}`, `{"payment_id":"p","order_id":"o","amount":"1","currency":"CNY","status":"FAILED"}`,
		`{"quantity":1,"quantity":2}`, `{"Quantity":1}`, `{"quantity":1e0}`, `{"a":1} x`, "", "null", "\ufeff{}", `{"permit":"\u0000"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var ask, plain struct {
			RequestID string `json:"request_id"`
			Quantity  int32  `json:"quantity"`
			Permit    string `json:"permit"`
		}
		if decodeFrom(bytes.NewReader(body), &ask) == nil {
			if err := json.Unmarshal(body, &plain); err != nil || plain != ask || len(body) > maxBody {
				t.Fatalf("%q reads as %+v here, as %+v elsewhere: %v", body, ask, plain, err)
			}
		}
		var message callbackBody
		if decodeFrom(bytes.NewReader(body), &message) != nil {
			return
		}
		if in, order, p := message.check(); p == nil {
			if !amount(in.GetAmount().GetAmount()) || in.GetStatus() == cq.CallbackStatus_CALLBACK_STATUS_UNSPECIFIED {
				t.Fatalf("%q is accepted as %v", body, in)
			}
			if _, err := ids.ParseOrder(string(order)); order != "" && err != nil {
				t.Fatalf("%q names the order %q", body, order)
			}
		}
	})
}

// Whatever the path, a call finds an endpoint whose segments it has, or none.
func FuzzPaths(f *testing.F) {
	for _, s := range []string{"/v1/orders", "/v1/campaigns/a/skus/b/requests/c", "/v1/campaigns/a%2Fb", "//", "/v1/orders/%zz", "/v1/orders/..", "/%"} {
		f.Add(s, http.MethodGet)
	}
	r := newRouter()
	f.Fuzz(func(t *testing.T, path, method string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		e, open, allow := r.find(method, u)
		if e == nil {
			return
		}
		if allow != "" || strings.Count(e.path, "/") != strings.Count(u.EscapedPath(), "/") {
			t.Fatalf("%s %s is %s, %q", method, path, e.name, allow)
		}
		for i := range strings.Count(e.path, "{") {
			if open[i] == "" {
				t.Fatalf("%s %s: an empty segment", method, path)
			}
		}
	})
}

// Headers of a call are read without harm, whatever is in them.
func FuzzHeaders(f *testing.F) {
	f.Add("zh-CN,zh;q=0.9", "1")
	f.Add("en;q=NaN", "-1")
	f.Fuzz(func(t *testing.T, accept, attempt string) {
		if l := language(accept); l != English && l != Chinese {
			t.Fatalf("%q is language %d", accept, l)
		}
		c := &call{r: httptest.NewRequest(http.MethodPost, "/", nil)}
		c.r.Header["Retry-Attempt"] = []string{attempt}
		if n, p := c.retryAttempt(); p == nil && (n < 1 || n > maxRetryAttempt) {
			t.Fatalf("%q is attempt %d", attempt, n)
		}
	})
}
