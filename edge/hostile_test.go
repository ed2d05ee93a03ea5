package edge

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func userID(s string) ids.UserID { return ids.UserID(s) }

// Bodies that are not exactly the contract are 400 and never reach a cell (K42, K60).
func TestStrictBodies(t *testing.T) {
	r := start(t)
	user := celltest.Homed("mallory", 1, 0, 2)[0]
	permit := r.permit(user)
	before, _ := r.cells[0].Asked()
	field := func(name, value string) string {
		all := map[string]string{"request_id": `"s1"`, "quantity": `1`, "permit": fmt.Sprintf("%q", permit)}
		all[name] = value
		return fmt.Sprintf(`{"request_id":%s,"quantity":%s,"permit":%s}`, all["request_id"], all["quantity"], all["permit"])
	}
	p := fmt.Sprintf("%q", permit)
	for name, body := range map[string]string{
		"empty":                 "",
		"null":                  "null",
		"array":                 "[]",
		"duplicate name":        `{"request_id":"a","request_id":"b","quantity":1,"permit":` + p + `}`,
		"case variant":          `{"request_id":"a","REQUEST_ID":"b","quantity":1,"permit":` + p + `}`,
		"wrong case":            `{"Request_Id":"a","quantity":1,"permit":` + p + `}`,
		"unknown field":         `{"request_id":"a","quantity":1,"permit":` + p + `,"user_id":"eve"}`,
		"trailing bytes":        field("quantity", "1") + "x",
		"two values":            field("quantity", "1") + field("quantity", "1"),
		"byte order mark":       "\ufeff" + field("quantity", "1"),
		"invalid UTF-8":         strings.Replace(field("request_id", `"a?"`), "?", "\xff", 1),
		"NUL":                   field("request_id", `"a\u0000"`),
		"deep":                  field("request_id", strings.Repeat("[", 100)+strings.Repeat("]", 100)),
		"over 16 KiB":           field("request_id", `"`+strings.Repeat("a", 17<<10)+`"`),
		"over 16 KiB of spaces": field("quantity", "1") + strings.Repeat(" ", 17<<10),
		"quantity 0":            field("quantity", "0"),
		"quantity -1":           field("quantity", "-1"),
		"quantity 1.0":          field("quantity", "1.0"),
		"quantity 1.5":          field("quantity", "1.5"),
		"quantity text":         field("quantity", `"1"`),
		"quantity 1e0":          field("quantity", "1e0"),
		"quantity null":         field("quantity", "null"),
		"quantity 2^31":         field("quantity", "2147483648"),
		"quantity 2^63":         field("quantity", "9223372036854775808"),
		"quantity 9e99":         field("quantity", "9e99"),
		"quantity above most":   field("quantity", "6"),
		"quantity missing":      `{"request_id":"a","permit":` + p + `}`,
		"request_id empty":      field("request_id", `""`),
		"request_id long":       field("request_id", `"`+strings.Repeat("a", 65)+`"`),
		"request_id slash":      field("request_id", `"a/b"`),
		"request_id newline":    field("request_id", `"a\n{\"level\":\"error\"}"`),
		"request_id number":     field("request_id", `7`),
		"permit missing":        `{"request_id":"a","quantity":1}`,
	} {
		res, text := r.raw(http.MethodPost, askPath, body, bearer(r.token(user)))
		if res.StatusCode != 400 || r.code(text) != "INVALID_ARGUMENT" {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
			continue
		}
		var p struct {
			Errors []struct{ Pointer, Detail string }
		}
		if err := json.Unmarshal([]byte(text), &p); err != nil || len(p.Errors) == 0 || p.Errors[0].Detail == "" {
			t.Errorf("%s: no field is named: %s", name, text)
		}
		if strings.HasPrefix(name, "quantity") && p.Errors[0].Pointer != "/quantity" {
			t.Errorf("%s: names %q", name, p.Errors[0].Pointer)
		}
	}
	if after, _ := r.cells[0].Asked(); after != before {
		t.Errorf("%d bad bodies reached the cell", after-before)
	}
	// All that is wrong is named at once, and white space and order are no difference (K63).
	_, text := r.raw(http.MethodPost, askPath, `{"request_id":"","quantity":0,"permit":""}`, bearer(r.token(user)))
	if strings.Count(text, `"pointer"`) != 3 {
		t.Errorf("not all fields are named: %s", text)
	}
	first, _ := r.raw(http.MethodPost, askPath, ask("s1", 2, permit), bearer(r.token(user)))
	again, _ := r.raw(http.MethodPost, askPath, "\n{ \"permit\": "+p+", \"quantity\" :2,\t\"request_id\":\"s1\"}\n", bearer(r.token(user)))
	if first.StatusCode != 202 || again.StatusCode != 202 || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("formatting made a difference: %d, %d", first.StatusCode, again.StatusCode)
	}
	_, text = r.raw(http.MethodPost, askPath, ask("s1", 1, permit), bearer(r.token(user)))
	if r.code(text) != "IDEMPOTENCY_CONFLICT" {
		t.Errorf("another quantity under the same id: %s", text)
	}
	for _, header := range []string{"0", "-1", "x", "1.5", "1e3", "99999999999"} {
		if _, text := r.raw(http.MethodPost, askPath, ask("s1", 2, permit), with(bearer(r.token(user)), "Retry-Attempt", header)); r.code(text) != "INVALID_ARGUMENT" {
			t.Errorf("Retry-Attempt %s: %s", header, text)
		}
	}
}

// Tokens that do not verify are 401 with one answer; subjects that are no user ids are 400.
func TestTokens(t *testing.T) {
	r := start(t)
	good := r.token("nina")
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	for name, header := range map[string]string{
		"none":          "",
		"basic":         "Basic " + good,
		"empty":         "Bearer ",
		"alg none":      "Bearer " + none + "." + parts[1] + ".",
		"alg none, mac": "Bearer " + none + "." + parts[1] + "." + parts[2],
		"cut":           "Bearer " + good[:len(good)-2],
		"other issuer":  "Bearer " + r.token("nina", func(c *client.TokenClaims) { c.Issuer = "x" }),
		"other aud":     "Bearer " + r.token("nina", func(c *client.TokenClaims) { c.Audience = "x" }),
		"expired":       "Bearer " + r.token("nina", func(c *client.TokenClaims) { c.Expires = now().Add(-time.Minute) }),
		"huge":          "Bearer " + r.token("nina", func(c *client.TokenClaims) { c.More = map[string]any{"x": strings.Repeat("y", 9000)} }),
	} {
		res, body := r.raw(http.MethodPost, permitPath, "", map[string]string{"Authorization": header})
		if res.StatusCode != 401 || r.code(body) != "UNAUTHENTICATED" {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
	}
	twice, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+permitPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	twice.Header["Authorization"] = []string{"Bearer " + good, "Bearer " + r.token("eve")}
	res, err := http.DefaultTransport.RoundTrip(twice)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 401 {
		t.Errorf("two tokens at once: %d", res.StatusCode)
	}
	for name, user := range map[string]string{
		"empty": "", "space": "a b", "newline": "a\nb", "NEL": "a\u0085b", "line separator": "a\u2028b", "zero width": "a\u200bb",
		"not NFC": "e\u0301", "long": strings.Repeat("a", 129),
	} {
		res, body := r.raw(http.MethodPost, permitPath, "", bearer(r.token(user)))
		if res.StatusCode != 400 || r.code(body) != "INVALID_ARGUMENT" {
			t.Errorf("user %s: %d %s", name, res.StatusCode, body)
		}
	}
}

// Who a customer is and where he comes from is never read from a header of his (K19).
func TestSpoofedHeaders(t *testing.T) {
	r := start(t)
	r.change(func(c *cq.CampaignRoute) {
		c.Spec.Limits = &cq.LimitRules{Network: &cq.RateRule{RateMilli: 1000, Burst: 5}}
	})
	refused := 0
	for i := range 50 {
		user := celltest.Homed("olga", 50, 0, 2)[i]
		fake := fmt.Sprintf("203.0.113.%d", i)
		res, body := r.raw(http.MethodPost, permitPath, "", with(with(with(with(bearer(r.token(user)),
			"X-Forwarded-For", fake), "X-Real-IP", fake), "Forwarded", "for="+fake), "X-User-Id", "victim"))
		switch {
		case res.StatusCode == 429 && r.code(body) == "RATE_LIMITED" && res.Header.Get("Retry-After") != "":
			refused++
		case res.StatusCode != 201:
			t.Fatalf("%d %s", res.StatusCode, body)
		}
		if _, last := r.cells[0].Asked(); last.GetUserId() == "victim" {
			t.Fatal("a header named the user")
		}
	}
	if refused < 40 {
		t.Errorf("%d of 50 refused; the limit is 1/s with a burst of 5", refused)
	}
	if got := r.counter(`cellquota_edge_requests_total{code="RATE_LIMITED",layer="limit"}`); got < 40 {
		t.Errorf("the limit's counter is at %v", got)
	}
}

// Behind a trusted proxy the customers are told apart, and still cannot choose who they are.
func TestTrustedProxy(t *testing.T) {
	r := start(t, func(c *Config) { c.TrustedProxies = []string{"127.0.0.0/8", "10.0.0.0/8"} })
	r.change(func(c *cq.CampaignRoute) {
		c.Spec.Limits = &cq.LimitRules{Network: &cq.RateRule{RateMilli: 1, Burst: 1}}
	})
	user := celltest.Homed("peggy", 1, 0, 2)[0]
	claim := func(forwarded string) int {
		res, _ := r.raw(http.MethodPost, permitPath, "", with(bearer(r.token(user)), "X-Forwarded-For", forwarded))
		return res.StatusCode
	}
	for _, row := range []struct {
		forwarded string
		want      int
	}{
		{"198.51.100.1", 201},
		{"198.51.100.1", 429},
		{"203.0.113.9, 198.51.100.1", 429},           // what stands left was written by the customer
		{"203.0.113.9, 198.51.100.2, 10.1.2.3", 201}, // our second proxy is passed over
		{"198.51.100.2", 429},
		{"203.0.113.9", 201}, // the address that was spoofed above is not used up
		{"2001:db8::1", 201},
		{"2001:db8::2", 429},
		{"2001:db8:0:1::1", 201},
	} {
		if got := claim(row.forwarded); got != row.want {
			t.Errorf("%s: %d, want %d", row.forwarded, got, row.want)
		}
	}
}

// Limits per user, device and claim, each with its own bucket; a repeat has one of its own.
func TestLimits(t *testing.T) {
	r := start(t)
	users := celltest.Homed("quinn", 8, 0, 2)
	one := &cq.RateRule{RateMilli: 1, Burst: 1}
	device := func(id string) func(*client.TokenClaims) {
		return func(c *client.TokenClaims) { c.DeviceID = id }
	}
	claim := func(user string, edit ...func(*client.TokenClaims)) int {
		res, _ := r.raw(http.MethodPost, permitPath, "", bearer(r.token(user, edit...)))
		return res.StatusCode
	}
	r.change(func(c *cq.CampaignRoute) { c.Spec.Limits = &cq.LimitRules{User: one} })
	if a, b, c := claim(users[0]), claim(users[0]), claim(users[1]); a != 201 || b != 429 || c != 201 {
		t.Errorf("per user: %d %d %d", a, b, c)
	}
	r.change(func(c *cq.CampaignRoute) { c.Spec.Limits = &cq.LimitRules{Device: one} })
	if a, b, c := claim(users[2], device("d1")), claim(users[3], device("d1")), claim(users[3], device("d2")); a != 201 || b != 429 || c != 201 {
		t.Errorf("per device: %d %d %d", a, b, c)
	}
	account := func(id string) func(*client.TokenClaims) {
		return func(c *client.TokenClaims) { c.More = map[string]any{"payment_account": id} }
	}
	r.change(func(c *cq.CampaignRoute) {
		c.Spec.Limits = &cq.LimitRules{Claims: map[string]*cq.RateRule{"payment_account": one}}
	})
	if a, b, c := claim(users[4], account("p1")), claim(users[5], account("p1")), claim(users[5], account("p2")); a != 201 || b != 429 || c != 201 {
		t.Errorf("per claim: %d %d %d", a, b, c)
	}
	r.change(func(c *cq.CampaignRoute) { c.Spec.Limits = &cq.LimitRules{User: one} })
	permit := r.permit(users[6])
	_, a := r.buy(users[6], permit)
	r.must(a, 202, "")
	_, a = r.buy(users[6], permit)
	r.must(a, 429, "RATE_LIMITED")
	_, a = r.buy(users[6], permit, func(t *client.Try) { t.RetryAttempt = 1 })
	r.must(a, 202, "")
}

// What clients send does not make lines in the log, and no series in the metrics (K56, K82).
func TestHostileNames(t *testing.T) {
	r := start(t)
	series := func() int { return strings.Count(r.scrape(), "\n") }
	// One of each kind of answer, so that only new names can add series.
	probe := func(i int) {
		evil := fmt.Sprintf("%d%%0A%%7B%%22level%%22:%%22error%%22%%7D%%0D%%1B%%C2%%85%%E2%%80%%A8", i)
		user := celltest.Homed("rupert", i%40+1, 0, 2)[i%40]
		r.raw(http.MethodGet, "/v1/campaigns/"+evil, "", nil)
		r.raw(http.MethodGet, "/nowhere/"+evil, "", map[string]string{"User-Agent": evil})
		r.raw(http.MethodGet, askPath+"/"+evil, "", bearer(r.token(user)))
		r.raw(http.MethodGet, askPath+fmt.Sprintf("/id-%d", i), "", bearer(r.token(user)))
		r.raw(http.MethodPost, askPath, ask(fmt.Sprintf("h%d", i), 1, "x"), with(bearer(r.token(user)), "traceparent", "\tbad"))
		r.raw("BREW", "/v1/orders", "", nil)
		r.raw(http.MethodPost, "/v1/payments/callbacks", "{}", map[string]string{"Payment-Signature": evil})
	}
	probe(0)
	before := series()
	for i := range 150 {
		probe(i)
	}
	if grown := series() - before; grown > 0 {
		t.Errorf("%d new series", grown)
	}
	if text := r.scrape(); strings.Contains(text, "rupert") || strings.Contains(text, "id-7") {
		t.Error("a label has a customer's value")
	}
	lines := bufio.NewScanner(strings.NewReader(r.log.String()))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event map[string]any
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil || event["component"] != "edge" {
			t.Fatalf("not one of our lines: %q", lines.Text())
		}
	}
}

// Two hundred parallel repeats of one request: one reservation, every answer the same ids (K62).
func TestConcurrentRepeats(t *testing.T) {
	r := start(t)
	second := *r
	second.run()
	testkit.Eventually(t, 10*time.Second, func() error {
		if res, body := second.raw(http.MethodPost, permitPath, "", bearer(r.token(celltest.Homed("warm", 1, 0, 2)[0]))); res.StatusCode != 201 {
			return fmt.Errorf("second edge: %s", body)
		}
		return nil
	})
	user := celltest.Homed("sybil", 1, 0, 2)[0]
	permit, stock := r.permit(user), r.cells[0].Stock(campaign, sku)
	edges := [2]*rig{r, &second}
	type result struct {
		id string
		a  client.Answer
	}
	results := make(chan result, 200)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			q, a := edges[i%2].buy(user, permit)
			results <- result{q.ReservationID, a}
		})
	}
	all.Wait()
	close(results)
	seen, fresh := map[string]int{}, 0
	for one := range results {
		if one.a.Status != 202 && one.a.Status != 200 {
			t.Fatalf("%d %s", one.a.Status, one.a.Body)
		}
		seen[one.id]++
		if !one.a.Replayed {
			fresh++
		}
	}
	if len(seen) != 1 || fresh != 1 {
		t.Errorf("reservations %v, %d of them new", seen, fresh)
	}
	if got := r.cells[0].Stock(campaign, sku); got != stock-1 {
		t.Errorf("stock went from %d to %d", stock, got)
	}
	if r.counter(`cellquota_edge_repeats_total{kind="collapsed"}`)+second.counter(`cellquota_edge_repeats_total{kind="collapsed"}`) == 0 {
		t.Error("no repeat was collapsed")
	}
}

// Only what is the same request is asked once: another quantity under the same id is a conflict for
// the cell to see (K63), and a repeat is not answered by what a first attempt was refused for.
func TestNotCollapsed(t *testing.T) {
	r := start(t)
	user := celltest.Homed("wendy", 1, 0, 2)[0]
	permit := r.permit(user)
	r.cells[0].Silence(true)
	before, _ := r.cells[0].Asked()
	var all sync.WaitGroup
	for _, try := range []client.Try{
		{RequestID: "same", Quantity: 1, Permit: permit},
		{RequestID: "same", Quantity: 2, Permit: permit},
		{RequestID: "same", Quantity: 1, Permit: permit, RetryAttempt: 1},
		{RequestID: "other", Quantity: 1, Permit: permit},
	} {
		all.Go(func() { r.buy(user, permit, func(t *client.Try) { *t = try }) })
	}
	testkit.Eventually(t, 1500*time.Millisecond, func() error {
		if n, _ := r.cells[0].Asked(); n != before+4 {
			return fmt.Errorf("%d asks of 4", n-before)
		}
		return nil
	})
	r.cells[0].Break()
	all.Wait()
}

// Clients that hang up lose nothing and leave nothing (K58).
func TestDisconnects(t *testing.T) {
	r := start(t)
	users := celltest.Homed("trent", 100, 0, 2)
	stock := r.cells[0].Stock(campaign, sku)
	var all sync.WaitGroup
	permits := make([]string, len(users))
	for i, user := range users {
		permits[i] = r.permit(user)
	}
	for i, user := range users {
		all.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://")) //nolint:noctx // a test
			if err != nil {
				t.Error(err)
				return
			}
			body := ask("r1", 1, permits[i])
			var req bytes.Buffer
			fmt.Fprintf(&req, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", askPath, r.token(user), len(body), body)
			if _, err := conn.Write(req.Bytes()); err != nil {
				t.Error(err)
			}
			_ = conn.Close()
		})
	}
	all.Wait()
	for i, user := range users {
		q, a := r.buy(user, permits[i], func(t *client.Try) { t.RetryAttempt = 1 })
		r.must(a, 202, "")
		if q.ReservationID == "" {
			t.Fatalf("%s has no reservation", user)
		}
	}
	if got := r.cells[0].Stock(campaign, sku); got != stock-int32(len(users)) {
		t.Errorf("%d customers took %d units", len(users), stock-got)
	}
	testkit.Eventually(t, 5*time.Second, func() error {
		if n := r.counter("cellquota_edge_requests_running"); n != 0 {
			return fmt.Errorf("%v calls still run", n)
		}
		return nil
	})
}

// The edge's own ceilings: calls at once, calls of one user at once, repeats of one user.
func TestCeilings(t *testing.T) {
	r := start(t, func(c *Config) {
		c.Limits.Running, c.Limits.PerUser, c.Limits.RepeatRate, c.Limits.RepeatBurst = 3, 2, 0.01, 1
	})
	user := celltest.Homed("yuri", 1, 0, 2)[0]
	permit := r.permit(user)
	_, a := r.buy(user, permit)
	r.must(a, 202, "")
	_, a = r.buy(user, permit, func(t *client.Try) { t.RetryAttempt = 1 })
	r.must(a, 202, "")
	_, a = r.buy(user, permit, func(t *client.Try) { t.RetryAttempt = 2 })
	r.must(a, 429, "RATE_LIMITED")

	r.cells[0].Silence(true)
	before, _ := r.cells[0].Asked()
	var all sync.WaitGroup
	hang := func(user, permit, request string) {
		all.Go(func() { r.buy(user, permit, func(t *client.Try) { t.RequestID = request }) })
	}
	reached := func(n int) {
		testkit.Eventually(t, 1500*time.Millisecond, func() error {
			if got, _ := r.cells[0].Asked(); got != before+n {
				return fmt.Errorf("%d asks of %d", got-before, n)
			}
			return nil
		})
	}
	hang(user, permit, "a")
	hang(user, permit, "b")
	reached(2)
	_, a = r.buy(user, permit, func(t *client.Try) { t.RequestID = "c" })
	r.must(a, 429, "RATE_LIMITED")
	other := celltest.Homed("zack", 1, 0, 2)[0]
	hang(other, r.mintedPermit(other), "d")
	reached(3)
	res, body := r.raw(http.MethodGet, "/v1/campaigns/"+campaign, "", nil)
	if res.StatusCode != 429 || r.code(body) != "THROTTLED" || res.Header.Get("Retry-After") == "" {
		t.Errorf("a fourth call at once: %d %s", res.StatusCode, body)
	}
	r.cells[0].Break()
	all.Wait()
	if s := r.state(); s != "OPEN" {
		t.Errorf("after they left: %s", s)
	}
}
