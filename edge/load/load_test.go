package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/edge/load/history"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/signed"
)

// shop is an edge that behaves: it sells stock units, one per user, and forgets what it is told to.
type shop struct {
	mu     sync.Mutex
	stock  int
	orders map[history.Key]*history.Row
	owner  map[string]history.Key // order → request
	// forgets: promises and makes no order. drops: closes every n-th connection after acting.
	forgets bool
	drops   int
	calls   int
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	status, body := s.answer(r)
	if s.drops > 0 && s.calls%s.drops == 0 {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *shop) answer(r *http.Request) (int, any) {
	part := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	raw, _ := io.ReadAll(r.Body)
	var in struct {
		RequestID string `json:"request_id"`
		Quantity  int    `json:"quantity"`
		PaymentID string `json:"payment_id"`
		OrderID   string `json:"order_id"`
	}
	_ = json.Unmarshal(raw, &in)
	user := r.Header.Get("Authorization")
	switch {
	case strings.HasSuffix(r.URL.Path, "/permits"):
		return 201, map[string]any{"permit": "p"}
	case strings.HasSuffix(r.URL.Path, "/requests"):
		return s.buy(history.Key{Campaign: part[2], SKU: part[4], User: user, Request: in.RequestID}, int32(in.Quantity))
	case strings.Contains(r.URL.Path, "/requests/"):
		return 200, s.view(history.Key{Campaign: part[2], SKU: part[4], User: user, Request: part[6]})
	case strings.HasSuffix(r.URL.Path, "/payments"):
		return 201, map[string]any{"payment_id": in.PaymentID, "amount": "1.00", "currency": "CNY"}
	case strings.HasSuffix(r.URL.Path, "/callbacks"):
		s.orders[s.owner[in.OrderID]].State = "PAID"
		return 200, map[string]any{"order_id": in.OrderID, "order_state": "PAID", "payment_state": "SUCCEEDED"}
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		s.orders[s.owner[part[2]]].State = "CLOSED"
		return 200, map[string]any{"order_id": part[2], "state": "CLOSED"}
	}
	return 404, map[string]any{"code": "NOT_FOUND"}
}

func (s *shop) buy(k history.Key, quantity int32) (int, any) {
	if row, ok := s.orders[k]; ok {
		if row.Quantity != quantity {
			return 409, map[string]any{"code": "IDEMPOTENCY_CONFLICT"}
		}
		return 200, s.view(k)
	}
	for other := range s.orders {
		if other.User == k.User {
			return 409, map[string]any{"code": "ALREADY_RESERVED"}
		}
	}
	if s.stock < int(quantity) {
		return 409, map[string]any{"code": "TEMP_SOLD_OUT", "retry_after_ms": 1}
	}
	s.stock -= int(quantity)
	id := fmt.Sprintf("cell-1.o%d", len(s.orders))
	s.orders[k] = &history.Row{Cell: "cell-1", Outcome: "ORDERED", Order: id, State: "PENDING_PAYMENT", Quantity: quantity}
	s.owner[id] = k
	return 202, map[string]any{"request_id": k.Request, "state": "QUEUED", "poll_after_ms": 1}
}

func (s *shop) view(k history.Key) any {
	row, ok := s.orders[k]
	if !ok {
		return map[string]any{"request_id": k.Request, "state": "QUEUED", "poll_after_ms": 1}
	}
	return map[string]any{"request_id": k.Request, "state": row.State, "order_id": row.Order}
}

// Resolve answers by user names, while orders are kept by tokens: the shop knows customers by those.
func (s *shop) Resolve(_ context.Context, keys []history.Key) ([][]history.Row, map[string]string, error) {
	out := make([][]history.Row, len(keys))
	for i, k := range keys {
		for have, row := range s.orders {
			if have.Request == k.Request && !s.forgets {
				out[i] = append(out[i], *row)
			}
		}
	}
	return out, nil, nil
}

func (s *shop) MessagesFrom(string) int64 { return 1 }

type file struct{ bytes.Buffer }

func (f *file) Close() error { return nil }

func drive(t *testing.T, s *shop, p Plan) (Result, history.Report) {
	t.Helper()
	s.orders, s.owner = map[history.Key]*history.Row{}, map[string]history.Key{}
	server := httptest.NewServer(s)
	defer server.Close()
	c, err := client.New(client.Config{BaseURLs: []string{server.URL}, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	keys, err := signed.NewKeySet(signed.UsePayment, map[string][]byte{"k1": []byte("0123456789abcdef0123")})
	if err != nil {
		t.Fatal(err)
	}
	out := &file{}
	w := history.NewWriter(out)
	run, err := New(Options{Client: c, Clock: clock.System(), Campaign: "c", Secret: []byte("0123456789abcdef0123456789abcdef"), Issuer: "i", Audience: "a", Payment: keys, PaymentKID: "k1", History: w}, p)
	if err != nil {
		t.Fatal(err)
	}
	result, err := run.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := history.Check(t.Context(), history.Read(&out.Buffer), s)
	if err != nil {
		t.Fatal(err)
	}
	return result, report
}

func plan(users int, mix Mix) Plan {
	return Plan{Users: users, SKUs: []string{"s"}, Quantity: 1, Seed: 7, Mix: mix, Patience: 20 * time.Second}
}

func TestCustomersBuyPayAndAreJudged(t *testing.T) {
	s := &shop{stock: 40}
	result, report := drive(t, s, plan(100, Mix{Pay: 0.6, Cancel: 0.2, Repeat: 0.3, Clash: 0.2, Second: 0.2, Press: 1, PayTwice: 0.5}))
	n := result.Snapshot
	if n.Started != 100 || n.Finished != 100 || n.Accepted != 40 || n.SoldOut != 60 || n.Ordered != 40 || n.Paid == 0 || n.Cancelled == 0 {
		t.Fatalf("totals = %+v", n)
	}
	if len(report.Breaches) != 0 || report.Promised != 40 || report.Orders != 40 {
		t.Fatalf("report = %+v", report)
	}
	if result.Counts["request 409 IDEMPOTENCY_CONFLICT"] == 0 || result.Counts["request 409 ALREADY_RESERVED"] == 0 || result.Latencies[StageRequest].Count == 0 {
		t.Fatalf("answers = %v", result.Counts)
	}
}

// A platform that promises and forgets is caught, and one whose answers get lost is not blamed for it.
func TestOracleOverARun(t *testing.T) {
	if _, report := drive(t, &shop{stock: 10, forgets: true}, plan(20, Mix{})); len(report.Breaches) == 0 {
		t.Fatal("ten forgotten promises were not found")
	}
	_, report := drive(t, &shop{stock: 10, drops: 3}, plan(20, Mix{Pay: 1}))
	if report.Unknown == 0 || len(report.Breaches) != 0 {
		t.Fatalf("lost answers: unknown %d, breaches %v", report.Unknown, report.Breaches)
	}
}

func TestTheSeedDecidesTheCustomers(t *testing.T) {
	p := plan(1, Mix{Pay: 0.5, Cancel: 0.3, Repeat: 0.5, PayDelay: time.Second})
	for i := range 50 {
		a, b := p.customer(i), p.customer(i)
		a.jitter, b.jitter = nil, nil
		if a != b {
			t.Fatalf("customer %d: %+v and %+v", i, a, b)
		}
	}
	q := p
	q.Seed++
	if p.customer(1).request == q.customer(1).request {
		t.Fatal("another seed made the same customer")
	}
}

func TestPlansNameTheirFaults(t *testing.T) {
	for field, edit := range map[string]func(*Plan){
		"users": func(p *Plan) { p.Users = 0 }, "rate": func(p *Plan) { p.Rate = -1 }, "skus": func(p *Plan) { p.SKUs = nil },
		"skew": func(p *Plan) { p.Skew = 2 }, "quantity": func(p *Plan) { p.Quantity = 0 }, "mix.pay": func(p *Plan) { p.Mix.Pay = 1.5 },
		"mix.pay plus cancel": func(p *Plan) { p.Mix.Pay, p.Mix.Cancel = 0.6, 0.6 },
	} {
		p := plan(10, Mix{})
		edit(&p)
		if _, err := New(Options{}, p); err == nil || !strings.HasPrefix(err.Error(), field+":") {
			t.Errorf("%s: error = %v", field, err)
		}
	}
	for _, name := range []string{"s0", "s3", "s4"} {
		p, err := Profile(name, 100)
		if err != nil || p.Users != map[string]int{"s0": 10_000, "s3": 10_000, "s4": 2_000}[name] {
			t.Errorf("profile %s: %+v, %v", name, p, err)
		}
	}
	if _, err := Profile("s9", 1); err == nil {
		t.Error("an unknown profile was accepted")
	}
}

func TestWhoIsNotLetInGivesUp(t *testing.T) {
	busy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"HOME_CELL_UNAVAILABLE","retry_after_ms":50}`)
	})
	server := httptest.NewServer(busy)
	defer server.Close()
	c, err := client.New(client.Config{BaseURLs: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run, err := New(Options{Client: c, Clock: clock.System(), Campaign: "demo", Secret: []byte("0123456789abcdef")},
		Plan{Users: 3, SKUs: []string{"phone-x"}, Quantity: 1, GiveUp: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	result, err := run.Do(t.Context())
	if err != nil || result.Snapshot.GaveUp != 3 || result.Snapshot.Accepted != 0 || result.Counts["permit 503 HOME_CELL_UNAVAILABLE"] < 6 {
		t.Errorf("%+v %v: %v", result.Snapshot, result.Counts, err)
	}
	if _, err := New(Options{}, Plan{Users: 1, SKUs: []string{"x"}, Quantity: 1, GiveUp: -1}); err == nil {
		t.Error("a negative patience is no patience")
	}
}
