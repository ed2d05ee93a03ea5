package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/cellquota/cellquota/edge/api"
	"github.com/cellquota/cellquota/edge/celltest"
)

// TestEveryRowOfTheContract makes every call of contract §3 and holds every answer, successes and refusals,
// against openapi.yaml. The document may not promise a success that nobody made here.
func TestEveryRowOfTheContract(t *testing.T) {
	r := start(t)
	users := celltest.Homed("kurt", 2, 0, 2)
	user := users[0]
	token, permit := bearer(r.token(user)), r.permit(user)
	seen := map[string]bool{}
	call := func(status int, method, path, body string, header map[string]string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(context.Background(), method, r.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range header {
			req.Header.Set(k, v)
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		out, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		operation, err := r.described(req, res, string(out))
		if err != nil || operation == "" || res.StatusCode != status {
			t.Errorf("%s %s: %d, want %d, operation %q: %v\n%s", method, path, res.StatusCode, status, operation, err, out)
		}
		if cache := res.Header.Get("Cache-Control"); header["Authorization"] != "" && cache != "no-store" {
			t.Errorf("%s %s: Cache-Control is %q on one user's answer", method, path, cache)
		}
		seen[fmt.Sprint(operation, " ", res.StatusCode)] = true
		return string(out)
	}
	call(200, "GET", "/openapi.yaml", "", nil)
	call(200, "GET", "/v1/campaigns/"+campaign, "", nil)
	call(404, "GET", "/v1/campaigns/none", "", nil)
	call(401, "POST", permitPath, "", nil)
	call(201, "POST", permitPath, "", token)
	call(201, "POST", permitPath, "{}", token)
	call(400, "POST", permitPath, `{"x":1}`, token)
	call(202, "POST", askPath, ask("r1", 1, permit), token)
	call(202, "POST", askPath, ask("r1", 1, permit), with(token, "Retry-Attempt", "1"))
	call(400, "POST", askPath, ask("r1", 0, permit), token)
	call(403, "POST", askPath, ask("r1", 1, "no permit"), token)
	call(409, "POST", askPath, ask("r2", 1, permit), token)
	call(409, "POST", permitPath, "", token)
	call(200, "GET", askPath+"/r1?wait=1ms", "", token)
	call(400, "GET", askPath+"/r1?wait=x", "", token)
	call(404, "GET", askPath+"/r9", "", token)
	order := r.cells[0].MakeOrder(campaign, sku, user, "r1")
	call(200, "POST", askPath, ask("r1", 1, permit), token)
	call(200, "GET", "/v1/campaigns/"+campaign+"/requests", "", token)
	call(200, "GET", "/v1/orders", "", token)
	call(200, "GET", "/v1/orders/"+order, "", token)
	call(404, "GET", "/v1/orders/"+order, "", bearer(r.token(users[1])))
	call(201, "POST", "/v1/orders/"+order+"/payments", `{"payment_id":"p1"}`, token)
	call(409, "POST", "/v1/orders/"+order+"/cancel", "", token)
	callback := fmt.Sprintf(`{"payment_id":"p1","order_id":%q,"amount":"4999.00","currency":"CNY","status":"FAILED"}`, order)
	call(401, "POST", "/v1/payments/callbacks", callback, map[string]string{"Payment-Signature": "x"})
	signature, err := r.sign([]byte(callback))
	if err != nil {
		t.Fatal(err)
	}
	call(200, "POST", "/v1/payments/callbacks", callback, map[string]string{"Payment-Signature": signature})
	call(200, "POST", "/v1/orders/"+order+"/cancel", "", token)
	call(409, "POST", "/v1/orders/"+order+"/payments", `{"payment_id":"p2"}`, token)

	r.lottery(-time.Hour, time.Hour)
	call(200, "GET", "/v1/campaigns/"+campaign, "", nil)
	entry := call(202, "POST", entryPath, "", token)
	call(202, "POST", entryPath, "{}", token)
	call(400, "POST", entryPath, `{"x":1}`, token)
	var entered struct {
		ID string `json:"entry_id"`
	}
	if err := json.Unmarshal([]byte(entry), &entered); err != nil {
		t.Fatal(err)
	}
	call(200, "GET", entryPath+"/"+entered.ID, "", token)
	call(404, "GET", entryPath+"/none", "", token)

	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status := range op.Responses.Map() {
				if status != "default" && !seen[op.OperationID+" "+status] {
					t.Errorf("%s %s: openapi.yaml promises %s and nobody saw it", method, path, status)
				}
			}
		}
	}
}

// What is not as the document has it is seen.
func TestTheDocumentBites(t *testing.T) {
	r := start(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/v1/campaigns/"+campaign, nil)
	if err != nil {
		t.Fatal(err)
	}
	good := map[string]any{
		"server_time": "2026-11-11T00:00:00.000Z", "open_at": "2026-11-11T00:00:00.000Z", "close_at": "2026-11-11T00:00:00.000Z",
		"version": 1, "display": map[string]any{}, "skus": []any{map[string]any{"sku_id": "a", "state": "OPEN"}},
	}
	for name, row := range map[string]struct {
		edit func(body map[string]any, h http.Header)
		ok   bool
	}{
		"as it is":      {func(map[string]any, http.Header) {}, true},
		"field missing": {func(b map[string]any, _ http.Header) { delete(b, "version") }, false},
		"field unknown": {func(b map[string]any, _ http.Header) { b["stock"] = 7 }, false},
		"wrong type":    {func(b map[string]any, _ http.Header) { b["version"] = "1" }, false},
		"unknown state": {func(b map[string]any, _ http.Header) {
			b["skus"] = []any{map[string]any{"sku_id": "a", "state": "SOLD"}}
		}, false},
		"no trace":        {func(_ map[string]any, h http.Header) { h.Del("Trace-Id") }, false},
		"no cache rule":   {func(_ map[string]any, h http.Header) { h.Del("Cache-Control") }, false},
		"not its media":   {func(_ map[string]any, h http.Header) { h.Set("Content-Type", "text/html") }, false},
		"trace malformed": {func(_ map[string]any, h http.Header) { h.Set("Trace-Id", "x") }, false},
	} {
		body, header := map[string]any{}, http.Header{}
		for k, v := range good {
			body[k] = v
		}
		header.Set("Content-Type", "application/json")
		header.Set("Cache-Control", "no-cache")
		header.Set("Trace-Id", strings.Repeat("a", 32))
		row.edit(body, header)
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.described(req, &http.Response{StatusCode: 200, Header: header}, string(text)); (err == nil) != row.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
