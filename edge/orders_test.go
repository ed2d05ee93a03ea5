package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/testkit"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// bought is a user with an unpaid order.
func (r *rig) bought(name string, cell int) (user, order string) {
	r.t.Helper()
	user = celltest.Homed(name, 1, cell, 2)[0]
	_, a := r.buy(user, r.permit(user))
	r.must(a, 202, "")
	return user, r.cells[cell].MakeOrder(campaign, sku, user, "r1")
}

// Cancelling and paying exclude each other, and repeats answer the same.
func TestOrders(t *testing.T) {
	r := start(t)
	ctx := context.Background()
	user, order := r.bought("dora", 0)
	for range 2 {
		o, a, err := r.client.Cancel(ctx, r.token(user), order)
		if err != nil || a.Status != 200 || o.State != "CLOSED" || o.Reason != "CANCELLED" || o.ClosedAt.IsZero() {
			t.Fatalf("cancel: %v %d %s", err, a.Status, a.Body)
		}
	}
	_, a, _ := r.client.StartPayment(ctx, r.token(user), order, "p1")
	r.must(a, 409, "ORDER_CLOSED")
	_, a = r.buy(user, r.mintedPermit(user), func(t *client.Try) { t.RequestID = "r2" })
	r.must(a, 409, "ORDER_CLOSED")

	user, order = r.bought("emil", 1)
	for range 2 {
		res, body := r.raw(http.MethodPost, "/v1/orders/"+order+"/payments", `{"payment_id":"p1"}`, bearer(r.token(user)))
		if res.StatusCode != 201 {
			t.Fatalf("payment: %d %s", res.StatusCode, body)
		}
	}
	_, a, _ = r.client.Cancel(ctx, r.token(user), order)
	r.must(a, 409, "PAYMENT_IN_PROGRESS")
	if a.RetryAfter <= 0 {
		t.Error("no Retry-After while a payment is in progress")
	}
	if _, a, err := r.client.SendCallback(ctx, client.Callback{PaymentID: "p1", OrderID: order, Amount: "4999.00", Currency: "CNY", Status: "SUCCEEDED"}, r.sign); err != nil || a.Status != 200 {
		t.Fatalf("callback: %v %s", err, a.Body)
	}
	_, a, _ = r.client.Cancel(ctx, r.token(user), order)
	r.must(a, 409, "ORDER_PAID")
	_, a, _ = r.client.StartPayment(ctx, r.token(user), order, "p2")
	r.must(a, 409, "ORDER_PAID")

	for body, pointer := range map[string]string{
		`{}`: "/payment_id", `{"payment_id":""}`: "/payment_id", `{"payment_id":"a b"}`: "/payment_id", `{"payment_id":1}`: "/payment_id",
		`{"payment_id":"a","x":1}`: "/x", ``: "",
	} {
		res, text := r.raw(http.MethodPost, "/v1/orders/"+order+"/payments", body, bearer(r.token(user)))
		var p struct{ Errors []struct{ Pointer string } }
		_ = json.Unmarshal([]byte(text), &p)
		if res.StatusCode != 400 || len(p.Errors) != 1 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %d %s", body, res.StatusCode, text)
		}
	}
	if res, text := r.raw(http.MethodPost, "/v1/orders/"+order+"/cancel", `{"force":true}`, bearer(r.token(user))); res.StatusCode != 400 {
		t.Errorf("cancel with a field: %d %s", res.StatusCode, text)
	}
}

// mintedPermit is a permit that the permit call would no longer give.
func (r *rig) mintedPermit(user string) string {
	r.t.Helper()
	p, err := signed.Permit{Campaign: campaign, SKU: sku, User: userID(user), Expires: now().Add(time.Minute), Nonce: signed.NewNonce()}.Sign(r.keys[signed.UsePermit], "k1")
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// The channel's messages: signature first, then the fields, then the cell.
func TestCallbacks(t *testing.T) {
	r := start(t)
	_, order := r.bought("fritz", 0)
	good := func(edit func(map[string]any)) string {
		m := map[string]any{"payment_id": "p1", "order_id": order, "amount": "4999.00", "currency": "CNY", "status": "SUCCEEDED"}
		edit(m)
		b, _ := json.Marshal(m)
		return string(b)
	}
	same := good(func(map[string]any) {})
	sign := func(body string, at time.Time) string {
		s, err := signed.SignPayment(at, []byte(body), r.keys[signed.UsePayment], "k1")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	post := func(body, signature string) (int, string) {
		header := map[string]string{}
		if signature != "" {
			header["Payment-Signature"] = signature
		}
		res, text := r.raw(http.MethodPost, "/v1/payments/callbacks", body, header)
		r.common(res, text)
		return res.StatusCode, r.code(text)
	}
	for name, signature := range map[string]string{
		"none": "", "nonsense": "x", "other body": sign(same+" ", now()), "too old": sign(same, now().Add(-6*time.Minute)),
		"too new": sign(same, now().Add(6*time.Minute)), "unknown key": strings.Replace(sign(same, now()), "kid=k1", "kid=k9", 1),
	} {
		if status, code := post(same, signature); status != 401 || code != "SIGNATURE_INVALID" {
			t.Errorf("signature %s: %d %s", name, status, code)
		}
	}
	for name, row := range map[string]struct {
		edit   func(map[string]any)
		status int
		code   string
	}{
		"no payment":     {func(m map[string]any) { m["payment_id"] = "" }, 400, "INVALID_ARGUMENT"},
		"amount number":  {func(m map[string]any) { m["amount"] = 4999 }, 400, "INVALID_ARGUMENT"},
		"amount sign":    {func(m map[string]any) { m["amount"] = "-1" }, 400, "INVALID_ARGUMENT"},
		"amount digits":  {func(m map[string]any) { m["amount"] = "123456789012345.1234" }, 400, "INVALID_ARGUMENT"},
		"amount places":  {func(m map[string]any) { m["amount"] = "1.23456" }, 400, "INVALID_ARGUMENT"},
		"currency":       {func(m map[string]any) { m["currency"] = "cny" }, 400, "INVALID_ARGUMENT"},
		"status":         {func(m map[string]any) { m["status"] = "PAID" }, 400, "INVALID_ARGUMENT"},
		"refund missing": {func(m map[string]any) { m["status"] = "REFUNDED" }, 400, "INVALID_ARGUMENT"},
		"refund extra":   {func(m map[string]any) { m["refund_id"] = "r1" }, 400, "INVALID_ARGUMENT"},
		"unknown field":  {func(m map[string]any) { m["user_id"] = "x" }, 400, "INVALID_ARGUMENT"},
		"no order":       {func(m map[string]any) { m["order_id"] = "nonsense" }, 404, "ORDER_UNKNOWN"},
		"other cell":     {func(m map[string]any) { m["order_id"] = "cell-9" + order[6:] }, 404, "ORDER_UNKNOWN"},
		"other order":    {func(m map[string]any) { m["order_id"] = "cell-2" + order[6:] }, 404, "ORDER_UNKNOWN"},
		"other amount":   {func(m map[string]any) { m["amount"] = "1.00" }, 409, "PAYMENT_MISMATCH"},
		"pending":        {func(m map[string]any) { m["status"] = "PENDING" }, 200, ""},
		"refunded":       {func(m map[string]any) { m["status"], m["refund_id"] = "REFUNDED", "r1" }, 200, ""},
	} {
		body := good(row.edit)
		if status, code := post(body, sign(body, now())); status != row.status || code != row.code {
			t.Errorf("%s: %d %s, want %d %s", name, status, code, row.status, row.code)
		}
	}
	// Two keys are good at a time.
	r.addKey(signed.UsePayment, "k2")
	if status, _ := post(same, sign(same, now().Add(-4*time.Minute))); status != 200 {
		t.Errorf("four minutes old: %d", status)
	}
	r.cells[0].Stop()
	if status, code := post(same, sign(same, now())); status != 503 {
		t.Errorf("cell gone: %d %s; the channel must send it again", status, code)
	}
}

// Texts for people follow Accept-Language; codes do not.
func TestLanguages(t *testing.T) {
	r := start(t)
	user, order := r.bought("gerda", 0)
	for accept, chinese := range map[string]bool{
		"": false, "en": false, "zh": true, "zh-CN,zh;q=0.9,en;q=0.8": true, "en;q=0.5, zh-TW;q=0.7": true, "fr": false, "zh;q=0": false, "fr, zh;q=0.1": true,
		strings.Repeat("x,", 5000) + "zh": false,
	} {
		h := with(bearer(r.token(user)), "Accept-Language", accept)
		_, body := r.raw(http.MethodGet, "/v1/orders/"+order, "", h)
		if contains(body, "订单") != chinese {
			t.Errorf("%.30q: %s", accept, body)
		}
		res, body := r.raw(http.MethodGet, "/v1/orders/nonsense", "", h)
		if contains(body, "未找到") != chinese || r.code(body) != "NOT_FOUND" || (res.Header.Get("Content-Language") == "zh-CN") != chinese {
			t.Errorf("%.30q: %s", accept, body)
		}
	}
}

// Scripts of configured origins may call; others are told nothing.
func TestCORS(t *testing.T) {
	r := start(t, func(c *Config) { c.CORS.Origins = []string{"https://shop.example"} })
	for origin, want := range map[string]string{"https://shop.example": "https://shop.example", "https://evil.example": "", "": ""} {
		h := map[string]string{"Access-Control-Request-Method": "POST"}
		if origin != "" {
			h["Origin"] = origin
		}
		res, _ := r.raw(http.MethodOptions, askPath, "", h)
		if res.StatusCode != 204 || res.Header.Get("Access-Control-Allow-Origin") != want || res.Header.Get("Vary") != "Origin" ||
			contains(res.Header.Get("Access-Control-Allow-Methods"), "POST") != (want != "") ||
			contains(res.Header.Get("Access-Control-Allow-Headers"), "Retry-Attempt") != (want != "") || res.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("preflight from %q: %d %v", origin, res.StatusCode, res.Header)
		}
		res, _ = r.raw(http.MethodGet, "/v1/campaigns/"+campaign, "", h)
		if res.Header.Get("Access-Control-Allow-Origin") != want || contains(res.Header.Get("Access-Control-Expose-Headers"), "Trace-Id") != (want != "") {
			t.Errorf("GET from %q: %v", origin, res.Header)
		}
	}
	if res, _ := r.raw(http.MethodOptions, "/nowhere", "", nil); res.StatusCode != 404 {
		t.Errorf("OPTIONS of nothing: %d", res.StatusCode)
	}
}

// A client that sends slowly is cut off, and connections are bounded.
func TestSlowClients(t *testing.T) {
	r := start(t, func(c *Config) {
		c.HTTP.HeaderTimeout, c.HTTP.BodyTimeout, c.HTTP.MaxConnections = 300*time.Millisecond, 600*time.Millisecond, 20
	})
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://")) //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(now().Add(10 * time.Second))
		return conn
	}
	slow := dial()
	defer func() { _ = slow.Close() }()
	_, _ = fmt.Fprintf(slow, "POST %s HTTP/1.1\r\nHost: x\r\nX-Slow:", askPath)
	if b, err := io.ReadAll(slow); err != nil || (len(b) > 0 && !contains(string(b), "408")) {
		t.Errorf("slow header: %q %v", b, err)
	}
	body := dial()
	defer func() { _ = body.Close() }()
	_, _ = fmt.Fprintf(body, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{", askPath, r.token("hans"))
	if b, err := io.ReadAll(body); err != nil || !contains(string(b), "INVALID_ARGUMENT") {
		t.Errorf("slow body: %q %v", b, err)
	}
	// Twenty idle connections fill the edge; one of them leaving lets the next one in.
	var idle []net.Conn
	for range 20 {
		idle = append(idle, dial())
	}
	defer func() {
		for _, c := range idle {
			_ = c.Close()
		}
	}()
	late := dial()
	defer func() { _ = late.Close() }()
	_, _ = fmt.Fprintf(late, "GET /v1/campaigns/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", campaign)
	if b, err := io.ReadAll(late); err != nil || !contains(string(b), "200 OK") {
		t.Errorf("after slow ones were cut off: %q %v", b, err)
	}
}

// A call that runs when the edge is stopped is answered; the long poll is part of it.
func TestDrain(t *testing.T) {
	answered := make(chan string, 1)
	var began time.Time
	t.Run("edge", func(t *testing.T) {
		r := start(t)
		user := celltest.Homed("ida", 1, 0, 2)[0]
		_, a := r.buy(user, r.permit(user))
		r.must(a, 202, "")
		go func() {
			_, a, err := r.client.Status(context.Background(), r.token(user), campaign, sku, "r1", "", 9*time.Second) // ends with the shutdown, not before
			answered <- fmt.Sprint(a.Status, err)
		}()
		testkit.Eventually(t, 5*time.Second, func() error {
			if r.cells[0].LastStatusCall() == nil {
				return io.EOF
			}
			return nil
		})
		began = now()
	})
	if took := now().Sub(began); took > 4*time.Second {
		t.Errorf("the drain took %v", took)
	}
	if got := <-answered; got != "200 <nil>" {
		t.Errorf("a call under way got %s", got)
	}
}
