package edge

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/signed"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// second is another edge between the same neighbours, ready to answer.
func (r *rig) second(edit ...func(*Config)) *rig {
	r.t.Helper()
	other := *r
	other.run(edit...)
	other.warm()
	return &other
}

// K15: stock that comes back is buyable within the TEMP time on every edge, on one that remembers the cell
// as empty and on one that never asked it; nothing says FINAL meanwhile.
func TestK15ReturnedStockIsBuyable(t *testing.T) {
	const temp = 500 * time.Millisecond
	r := start(t, func(c *Config) { c.SoldOut.TTL = temp })
	edges := []*rig{r, r.second(func(c *Config) { c.SoldOut.TTL = temp }), r.second(func(c *Config) { c.SoldOut.TTL = temp })}
	users := celltest.Homed("karla", 12, 0, 2)
	permits := make([]string, len(users))
	for i, user := range users {
		permits[i] = r.permit(user)
	}
	r.cells[0].SetStock(campaign, sku, 0)
	for i, e := range edges[:2] { // the third never saw it
		_, a := e.buy(users[i], permits[i])
		r.must(a, 409, "TEMP_SOLD_OUT")
	}
	r.cells[0].SetStock(campaign, sku, int32(len(edges)))
	returned := now()
	for i, e := range edges {
		user, pass := users[3+i], permits[3+i]
		e.until(func() error {
			_, a := e.buy(user, pass)
			if a.Status == 202 {
				return nil
			}
			if a.Code != "TEMP_SOLD_OUT" {
				t.Fatalf("edge %d says %d %s", i, a.Status, a.Code)
			}
			if late := now().Sub(returned) - temp; late > 2*time.Second { // the machine may be busy
				t.Fatalf("edge %d still says sold out %v after the TEMP time", i, late)
			}
			return fmt.Errorf("%s", a.Code)
		})
	}
}

// K44: a herd that the home cell cannot answer is refused at once with spread waits; what was held for it
// is given back.
func TestK44Herd(t *testing.T) {
	const herd, running = 400, 40
	r := start(t, func(c *Config) { c.Limits.Running, c.RequestTimeout = running, time.Second })
	users := celltest.Homed("herd", herd, 0, 2)
	permits := make([]string, herd)
	for i, user := range users {
		permits[i] = r.mintedPermit(user)
	}
	r.until(func() error { // nothing of the start runs any more
		if n := r.counter("cellquota_edge_requests_running"); n != 0 {
			return fmt.Errorf("%v calls", n)
		}
		return nil
	})
	before := runtime.NumGoroutine()
	r.cells[0].Silence(true)
	codes, waits := map[string]int{}, map[time.Duration]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, user := range users {
		all.Go(func() {
			_, a := r.buy(user, permits[i])
			mu.Lock()
			defer mu.Unlock()
			codes[a.Code]++
			waits[a.RetryAfter] = true
			if a.RetryAfter <= 0 {
				t.Errorf("%d %s without a time to wait", a.Status, a.Code)
			}
		})
	}
	all.Wait()
	if codes["THROTTLED"]+codes["NOT_READY"] != herd || codes["THROTTLED"] == 0 {
		t.Errorf("answers are %v", codes)
	}
	if len(waits) < herd/10 {
		t.Errorf("%d different waits for %d customers: they will come back together", len(waits), herd)
	}
	r.cells[0].Silence(false)
	r.client.Close()
	r.until(func() error {
		if n := runtime.NumGoroutine(); n > before+20 { // connections that are kept, both ends in this process
			return fmt.Errorf("%d goroutines, %d before the herd", n, before)
		}
		return nil
	})
	_, a := r.buy(users[0], permits[0], func(t *client.Try) { t.RetryAttempt = 1 })
	r.must(a, 202, "")
}

// K55: a permit that was used is good for no second reservation, also not at another edge, nor at one that
// has just started; and it counts to the second.
func TestK55PermitReplay(t *testing.T) {
	r := start(t)
	users := celltest.Homed("paul", 2, 0, 2)
	user := users[0]
	permit := r.permit(user)
	q, a := r.buy(user, permit)
	r.must(a, 202, "")
	for i, e := range []*rig{r, r.second()} {
		_, a = e.buy(user, permit, func(t *client.Try) { t.RequestID = "r2" })
		r.must(a, 409, "ALREADY_RESERVED")
		again, a := e.buy(user, permit)
		if again.ReservationID != q.ReservationID || !a.Replayed {
			t.Errorf("edge %d: %d %s", i, a.Status, a.Body)
		}
	}
	_, a = r.buy(users[1], r.mintedFor(users[1], -time.Second))
	r.must(a, 403, "PERMIT_INVALID")
	_, a = r.buy(users[1], r.mintedFor(users[1], 5*time.Second)) // a second is too short on a busy machine
	r.must(a, 202, "")
}

// K65: whether the sale has begun is the cell's to say. An edge whose clock is ahead asks it too early and
// one that is behind says so itself: customers are told the same.
func TestK65SkewedEdges(t *testing.T) {
	r := start(t)
	opens := now().Add(20 * time.Minute)
	edges := map[string]*rig{
		"ahead":  r.second(func(c *Config) { c.ClockOffset = 30 * time.Minute }),
		"behind": r.second(func(c *Config) { c.ClockOffset = -30 * time.Minute }),
		"right":  r,
	}
	r.change(func(c *cq.CampaignRoute) {
		c.Spec.OpenAt, c.Spec.CloseAt = timestamppb.New(opens), timestamppb.New(opens.Add(2*time.Hour))
	})
	r.cells[0].Script(func(a *cq.Ask) *cq.Answer {
		return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_NOT_STARTED, OpensInMs: int32(opens.Sub(now()).Milliseconds())}
	})
	user := celltest.Homed("ute", 1, 0, 2)[0]
	for name, e := range edges {
		e.until(func() error { // it has the change
			_, a := e.buy(user, r.mintedFor(user, 3*time.Hour))
			if a.Status != 409 || a.Code != "NOT_STARTED" {
				return fmt.Errorf("%s: %d %s %s", name, a.Status, a.Code, a.Body)
			}
			if a.RetryAfter < 15*time.Minute {
				return fmt.Errorf("%s: told to come back in %v", name, a.RetryAfter)
			}
			return nil
		})
	}
}

// mintedFor is a permit with so long to live.
func (r *rig) mintedFor(user string, ttl time.Duration) string {
	r.t.Helper()
	p, err := signed.Permit{Campaign: campaign, SKU: sku, User: userID(user), Expires: now().Add(ttl), Nonce: signed.NewNonce()}.Sign(r.keys[signed.UsePermit], "k1")
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// K63: the same id for another SKU or campaign is another request; formatting is no difference
// (TestStrictBodies), another quantity is a conflict (there too).
func TestK63SameIDElsewhere(t *testing.T) {
	r := start(t)
	r.change(func(c *cq.CampaignRoute) { c.Spec.Skus = append(c.Spec.Skus, &cq.SkuSpec{SkuId: "phone-y"}) })
	r.cells[0].SetStock(campaign, "phone-y", 10)
	user := celltest.Homed("vera", 1, 0, 2)[0]
	q, a := r.buy(user, r.permit(user))
	r.must(a, 202, "")
	p, a, err := r.client.Permit(t.Context(), r.token(user), campaign, "phone-y")
	if err != nil || a.Status != 201 {
		t.Fatal(err, a.Status)
	}
	_, a, err = r.client.Buy(t.Context(), r.token(user), campaign, sku, client.Try{RequestID: "r1", Quantity: 1, Permit: p.Permit})
	if err != nil || a.Code != "PERMIT_INVALID" {
		t.Errorf("a permit of another SKU: %v %d %s", err, a.Status, a.Code)
	}
	other, a, err := r.client.Buy(t.Context(), r.token(user), campaign, "phone-y", client.Try{RequestID: "r1", Quantity: 1, Permit: p.Permit})
	if err != nil || a.Status != 202 || a.Replayed || other.ReservationID == q.ReservationID {
		t.Errorf("the same id for another SKU: %v %d %s", err, a.Status, a.Body)
	}
}

// K82: however long or odd what clients send, no line of the log is long and none holds a secret of theirs.
func TestK82LogLines(t *testing.T) {
	r := start(t)
	user := celltest.Homed("willi", 1, 0, 2)[0]
	token, permit := r.token(user), r.permit(user)
	long := strings.Repeat("x", 8<<10)
	signature, err := r.sign([]byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.raw(http.MethodPost, askPath, ask("r1", 1, permit), with(bearer(token), "User-Agent", long))
	r.raw(http.MethodPost, askPath, ask(long, 1, permit+long[:100]), bearer(token))
	r.raw(http.MethodGet, "/v1/orders/cell-1.o"+long[:4<<10], "", bearer(token))
	r.raw(http.MethodPost, "/v1/payments/callbacks", "{}", map[string]string{"Payment-Signature": signature})
	body := fmt.Sprintf(`{"payment_id":"p","order_id":"%s","amount":"1.00","currency":"CNY","status":"FAILED"}`, long)
	signature, err = r.sign([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	r.raw(http.MethodPost, "/v1/payments/callbacks", body, map[string]string{"Payment-Signature": signature})
	r.cells[0].Silence(true)
	r.buy(user, r.mintedPermit(user), func(t *client.Try) { t.RequestID = "r2" })
	r.until(func() error {
		if !contains(r.log.String(), `"event":"ask_unknown"`) {
			return fmt.Errorf("no line about the unknown outcome")
		}
		return nil
	})
	for _, line := range strings.Split(r.log.String(), "\n") {
		if len(line) > 2<<10 {
			t.Errorf("a line of %d bytes: %.200s", len(line), line)
		}
		for name, secret := range map[string]string{"token": token, "permit": permit, "signature": signature[len(signature)-64:]} {
			if strings.Contains(line, secret) {
				t.Errorf("the %s is in the log: %.200s", name, line)
			}
		}
		if strings.Contains(line, "ask_unknown") {
			for _, field := range []string{"trace_id", "campaign_id", "sku_id", "user_id", "request_id", "cell_id", "error_class", "retryable"} {
				if !strings.Contains(line, `"`+field+`":`) {
					t.Errorf("%s is not in %s", field, line)
				}
			}
		}
	}
}
