package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Sold out is remembered per cell, never hides what another cell has, never outlives its TTL, and a
// request for too many units marks nothing (K15).
func TestSoldOut(t *testing.T) {
	r := start(t, func(c *Config) { c.SoldOut.TTL = 400 * time.Millisecond })
	here, there := celltest.Homed("ursula", 40, 0, 2), celltest.Homed("victor", 2, 1, 2)
	permits := map[string]string{}
	for _, user := range append(append([]string{}, here...), there...) {
		permits[user] = r.permit(user)
	}
	r.cells[0].SetStock(campaign, sku, 2)

	// Too many: refused by the cell, and the next customer still gets his one.
	_, a := r.buy(here[0], permits[here[0]], func(t *client.Try) { t.Quantity = 3 })
	r.must(a, 409, "TEMP_SOLD_OUT")
	_, a = r.buy(here[1], permits[here[1]])
	r.must(a, 202, "")
	if s := r.state(); s != "OPEN" {
		t.Errorf("GET says %s with a unit left", s)
	}
	_, a = r.buy(here[2], permits[here[2]])
	r.must(a, 202, "")

	// Empty: the first is refused by the cell, the others without asking it.
	_, a = r.buy(here[3], permits[here[3]])
	r.must(a, 409, "TEMP_SOLD_OUT")
	before, _ := r.cells[0].Asked()
	_, a = r.buy(here[4], permits[here[4]])
	r.must(a, 409, "TEMP_SOLD_OUT")
	if after, _ := r.cells[0].Asked(); after != before || a.RetryAfter <= 0 {
		t.Errorf("%d asks while the mark was there; Retry-After %v", after-before, a.RetryAfter)
	}
	if got := r.counter(`cellquota_edge_requests_total{code="TEMP_SOLD_OUT",layer="soldout"}`); got != 1 {
		t.Errorf("the sold-out layer counted %v", got)
	}
	// A repeat passes it; another cell is not touched; GET says open while that one is.
	_, a = r.buy(here[1], permits[here[1]], func(t *client.Try) { t.RetryAttempt = 1 })
	r.must(a, 202, "")
	_, a = r.buy(there[0], permits[there[0]])
	r.must(a, 202, "")
	if s := r.state(); s != "OPEN" {
		t.Errorf("GET says %s while cell-2 has units", s)
	}
	r.cells[1].SetStock(campaign, sku, 0)
	_, a = r.buy(there[1], permits[there[1]])
	r.must(a, 409, "TEMP_SOLD_OUT")
	// cell-1's mark may have run out by now: see it again.
	_, a = r.buy(here[5], permits[here[5]])
	r.must(a, 409, "TEMP_SOLD_OUT")
	if s := r.state(); s != "TEMP_SOLD_OUT" {
		t.Errorf("GET says %s while no cell has units", s)
	}

	// A unit comes back; nobody tells the edge; the next try after the TTL gets it.
	r.cells[0].SetStock(campaign, sku, 1)
	i := 5
	testkit.Eventually(t, 2*time.Second, func() error {
		i++
		if _, a := r.buy(here[i%len(here)], permits[here[i%len(here)]]); a.Status != 202 {
			return fmt.Errorf("%d %s", a.Status, a.Code)
		}
		return nil
	})
	if s := r.state(); s != "OPEN" {
		t.Errorf("GET says %s after a unit was sold again", s)
	}
}

// BUSY only when no cell is open.
func TestBusy(t *testing.T) {
	r := start(t, func(c *Config) { c.SoldOut.TTL = time.Minute })
	for i, want := range []string{"OPEN", "BUSY"} {
		user := celltest.Homed("walter", 1, i, 2)[0]
		permit := r.permit(user)
		r.cells[i].Script(func(*cq.Ask) *cq.Answer {
			return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_QUEUE_FULL, RetryAfterMs: 3000}
		})
		_, a := r.buy(user, permit)
		r.must(a, 429, "QUEUE_FULL")
		if a.RetryAfter < 3*time.Second || a.RetryAfter > 5*time.Second {
			t.Errorf("Retry-After %v, the cell said 3 s", a.RetryAfter)
		}
		if s := r.state(); s != want {
			t.Errorf("GET says %s, want %s", s, want)
		}
	}
}

// A stream that breaks leaves an unknown outcome, which is 503 and never a second try; the repeat
// under the same id finds the one reservation.
func TestBrokenStream(t *testing.T) {
	r := start(t)
	user := celltest.Homed("xaver", 1, 0, 2)[0]
	permit, stock := r.permit(user), r.cells[0].Stock(campaign, sku)
	r.cells[0].Silence(true)
	before, _ := r.cells[0].Asked()
	answers := make(chan client.Answer, 1)
	go func() {
		_, a := r.buy(user, permit)
		answers <- a
	}()
	testkit.Eventually(t, 5*time.Second, func() error {
		if n, _ := r.cells[0].Asked(); n != before+1 {
			return fmt.Errorf("%d asks", n-before)
		}
		return nil
	})
	broken := now()
	r.cells[0].Break()
	a := <-answers
	r.must(a, 503, "NOT_READY")
	if took := now().Sub(broken); took > time.Second {
		t.Errorf("the customer was told %v after the stream broke", took)
	}
	if a.RetryAfter <= 0 {
		t.Error("no Retry-After")
	}
	if got := r.counter("cellquota_edge_asks_unknown_total"); got != 1 {
		t.Errorf("unknown outcomes counted: %v", got)
	}
	step := client.Next(a, nil, 0)
	if !step.Again || step.RetryAttempt != 1 || step.NewPermit {
		t.Fatalf("the client would %+v", step)
	}
	r.cells[0].Silence(false)
	testkit.Eventually(t, 10*time.Second, func() error {
		q, a := r.buy(user, permit, func(t *client.Try) { t.RetryAttempt = step.RetryAttempt })
		if a.Status != 202 || !a.Replayed || q.ReservationID == "" {
			return fmt.Errorf("%d %s", a.Status, a.Code)
		}
		return nil
	})
	if got := r.cells[0].Stock(campaign, sku); got != stock-1 {
		t.Errorf("%d units were taken", stock-got)
	}
	if n, _ := r.cells[0].Asked(); n < before+2 {
		t.Errorf("%d asks", n-before)
	}
	if n, last := r.cells[1].Asked(); last.GetUserId() == user {
		t.Errorf("the other cell was asked (%d): %v", n, last)
	}
}

// A cell that takes asks and does not answer: unknown after the deadline; beyond the bound, 429.
func TestSilentCell(t *testing.T) {
	r := start(t, func(c *Config) { c.RequestTimeout, c.Admit.InflightMax = time.Second, 3 })
	users := celltest.Homed("yvonne", 8, 0, 2)
	permits := make([]string, len(users))
	for i, user := range users {
		permits[i] = r.permit(user)
	}
	r.cells[0].Silence(true)
	codes := make(chan string, len(users))
	var all sync.WaitGroup
	for i, user := range users {
		all.Go(func() {
			_, a := r.buy(user, permits[i])
			codes <- fmt.Sprintf("%d %s %v", a.Status, a.Code, a.RetryAfter > 0)
		})
	}
	all.Wait()
	close(codes)
	got := map[string]int{}
	for c := range codes {
		got[c]++
	}
	if got["503 NOT_READY true"] != 3 || got["429 THROTTLED true"] != 5 {
		t.Errorf("answers are %v", got)
	}
	r.cells[0].Silence(false)
	replayed := 0
	for i, user := range users {
		_, a := r.buy(user, permits[i], func(t *client.Try) { t.RetryAttempt = 1 })
		r.must(a, 202, "")
		if a.Replayed {
			replayed++
		}
	}
	if replayed != 3 {
		t.Errorf("%d customers were admitted while the cell was silent, want the 3 that were asked for", replayed)
	}
}

// A cell that cannot be sold from is told as such, with orders served for as long as somebody of it
// answers; the other cell is never asked instead.
func TestCellStandings(t *testing.T) {
	r := start(t)
	users := celltest.Homed("zoe", 2, 0, 2)
	user := users[0]
	permit := r.permit(users[1])
	q, a := r.buy(user, r.permit(user))
	r.must(a, 202, "")
	order := r.cells[0].MakeOrder(campaign, sku, user, "r1")
	ctx := context.Background()
	for _, row := range []struct {
		state  cq.CellState
		gone   bool // no addresses
		admits bool
		serves bool
	}{
		{cq.CellState_CELL_STATE_ACTIVE, false, true, true},
		{cq.CellState_CELL_STATE_SUSPECT, false, true, true},
		{cq.CellState_CELL_STATE_DRAINING, false, true, true},
		{cq.CellState_CELL_STATE_FENCING, false, false, true},
		{cq.CellState_CELL_STATE_FENCED, false, false, true},
		{cq.CellState_CELL_STATE_RESTORING, false, false, true},
		{cq.CellState_CELL_STATE_REGRESSED, false, false, true},
		{cq.CellState_CELL_STATE_SUSPECT, false, true, true},
		// Its leases lapsed, which says nothing about whether it sells: it is asked where it was.
		{cq.CellState_CELL_STATE_SUSPECT, true, true, true},
		{cq.CellState_CELL_STATE_FENCED, true, false, false},
		// Nobody of it has registered since.
		{cq.CellState_CELL_STATE_ACTIVE, true, false, false},
		{cq.CellState_CELL_STATE_RETIRED, false, false, false},
		{cq.CellState_CELL_STATE_PROVISIONED, false, false, false},
	} {
		name := fmt.Sprintf("%s gone=%v", row.state, row.gone)
		r.cell(0, func(c *cq.CellRoute) {
			c.State = row.state
			if row.gone {
				c.Addresses = nil
			}
		})
		before, _ := r.cells[1].Asked()
		for attempt := range 2 {
			q, a := r.buy(users[1], permit, func(t *client.Try) {
				t.RequestID, t.RetryAttempt = "standing", attempt
			})
			if admitted := a.Status == 202 && q.ReservationID != ""; admitted != row.admits || (!row.admits && a.Code != "HOME_CELL_UNAVAILABLE") {
				t.Errorf("%s, attempt %d: %d %s", name, attempt, a.Status, a.Code)
			}
		}
		_, a, err := r.client.Permit(ctx, r.token(users[1]), campaign, sku)
		if err != nil || (a.Code == "HOME_CELL_UNAVAILABLE") == row.admits {
			t.Errorf("%s: permit: %v %d %s", name, err, a.Status, a.Code)
		}
		for what, call := range map[string]func() (client.Answer, error){
			"order": func() (client.Answer, error) { _, a, err := r.client.Order(ctx, r.token(user), order); return a, err },
			"status": func() (client.Answer, error) {
				_, a, err := r.client.Status(ctx, r.token(user), campaign, sku, "r1", "", 0)
				return a, err
			},
			"receipt": func() (client.Answer, error) {
				_, a, err := r.client.Status(ctx, r.token(user), campaign, sku, "r1", q.Receipt, 0)
				return a, err
			},
			"payment": func() (client.Answer, error) {
				_, a, err := r.client.StartPayment(ctx, r.token(user), order, "p1")
				return a, err
			},
		} {
			a, err := call()
			if err != nil || a.OK() != row.serves || (!row.serves && (a.Code != "HOME_CELL_UNAVAILABLE" || a.RetryAfter <= 0)) {
				t.Errorf("%s: %s: %v %d %s", name, what, err, a.Status, a.Code)
			}
		}
		if _, complete, _, err := r.client.Orders(ctx, r.token(user)); err != nil || complete != row.serves {
			t.Errorf("%s: orders: complete %v, %v", name, complete, err)
		}
		if after, _ := r.cells[1].Asked(); after != before {
			t.Errorf("%s: the other cell was asked", name)
		}
	}
}

// A home cell whose process is gone, though the routes still name it.
func TestCellProcessGone(t *testing.T) {
	r := start(t)
	user := celltest.Homed("adam", 1, 0, 2)[0]
	permit := r.permit(user)
	r.cells[0].Stop()
	testkit.Eventually(t, 10*time.Second, func() error {
		_, a := r.buy(user, permit)
		if a.Status != 503 || a.Code != "HOME_CELL_UNAVAILABLE" || a.RetryAfter <= 0 {
			return fmt.Errorf("%d %s", a.Status, a.Code)
		}
		return nil
	})
	_, a, err := r.client.Status(context.Background(), r.token(user), campaign, sku, "r1", "", 0)
	if err != nil || a.Status != 503 || a.RetryAfter <= 0 {
		t.Errorf("status: %v %d %s", err, a.Status, a.Code)
	}
	if s := r.state(); s != "OPEN" {
		t.Errorf("GET says %s while cell-2 is there", s)
	}
	other := celltest.Homed("adam", 1, 1, 2)[0]
	_, a = r.buy(other, r.permit(other))
	r.must(a, 202, "")
}

// The control plane is gone: the sale goes on by the last routes, and the edge says so. When it
// comes back with what is broken, only that is missing.
func TestControlPlaneGone(t *testing.T) {
	r := start(t)
	r.control.Stop()
	user := celltest.Homed("beate", 1, 0, 2)[0]
	_, a := r.buy(user, r.permit(user))
	r.must(a, 202, "")
	testkit.Eventually(t, 5*time.Second, func() error {
		res, err := http.Get(r.metrics + "/readyz") //nolint:noctx // a test
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		var body [512]byte
		n, _ := res.Body.Read(body[:])
		if res.StatusCode != 200 || !contains(string(body[:n]), "last snapshot") {
			return fmt.Errorf("%d %s", res.StatusCode, body[:n])
		}
		return nil
	})
}

// A campaign that cannot be read disappears alone.
func TestQuarantine(t *testing.T) {
	r := start(t)
	bad := celltest.Route("bad", now(), "cell-1", "cell-2")
	bad.Domains[0].Cells = bad.Domains[0].Cells[:1] // half of the buckets are nobody's
	r.send(&cq.WatchRoutesResponse{Campaigns: []*cq.CampaignRoute{bad}})
	if res, _ := r.raw(http.MethodGet, "/v1/campaigns/bad", "", nil); res.StatusCode != 404 {
		t.Errorf("a campaign with a hole is served: %d", res.StatusCode)
	}
	if s := r.state(); s != "OPEN" {
		t.Errorf("the good campaign says %s", s)
	}
	if r.counter("cellquota_edge_routes_quarantined_total") != 1 || !contains(r.log.String(), "bucket 2048 is owned by nobody") {
		t.Error("nobody was told")
	}
	// A version that cannot be read takes the older one away: its homes may be wrong by now.
	r.change(func(c *cq.CampaignRoute) { c.Domains[0].Cells[1].Buckets.Ranges[0].BucketFrom++ })
	if res, _ := r.raw(http.MethodGet, "/v1/campaigns/"+campaign, "", nil); res.StatusCode != 404 {
		t.Errorf("the older version is served: %d", res.StatusCode)
	}
	r.change(func(c *cq.CampaignRoute) { c.Domains[0].Cells[1].Buckets.Ranges[0].BucketFrom-- })
	if s := r.state(); s != "OPEN" {
		t.Errorf("mended, the campaign says %s", s)
	}
	r.send(&cq.WatchRoutesResponse{RemovedCampaigns: []string{campaign}})
	if res, _ := r.raw(http.MethodGet, "/v1/campaigns/"+campaign, "", nil); res.StatusCode != 404 {
		t.Errorf("a campaign that is gone is served: %d", res.StatusCode)
	}
}

// What a cell's other services refuse, and what that is to a customer.
func TestCellRefusals(t *testing.T) {
	r := start(t)
	user := celltest.Homed("clara", 1, 0, 2)[0]
	_, a := r.buy(user, r.permit(user))
	r.must(a, 202, "")
	order := r.cells[0].MakeOrder(campaign, sku, user, "r1")
	for _, row := range []struct {
		err    error
		status int
		code   string
	}{
		{rpcstatus.ErrNotFound, 404, "NOT_FOUND"},
		{rpcstatus.With(rpcstatus.ErrUnavailable, nil, nil, 7*time.Second), 503, "NOT_READY"},
		{rpcstatus.ErrExhausted, 429, "THROTTLED"},
		{rpcstatus.ErrAlreadyExists, 409, "IDEMPOTENCY_CONFLICT"},
		{celltest.ErrFenced, 503, "HOME_CELL_UNAVAILABLE"},
		{celltest.ErrOrderPaid, 409, "ORDER_PAID"},
		{celltest.ErrOrderClosed, 409, "ORDER_CLOSED"},
		{celltest.ErrPaymentInProgress, 409, "PAYMENT_IN_PROGRESS"},
		{rpcstatus.Invalid(rpcstatus.Violation{Field: "payment_id", Rule: "must rhyme"}), 400, "INVALID_ARGUMENT"},
		{rpcstatus.ErrUnknownOutcome, 503, "NOT_READY"},
		{rpcstatus.ErrPermissionDenied, 503, "NOT_READY"},
		{errors.New("a bug"), 503, "NOT_READY"},
	} {
		r.cells[0].FailCalls(row.err)
		for _, call := range []struct{ method, path, body string }{
			{http.MethodGet, "/v1/orders/" + order, ""},
			{http.MethodPost, "/v1/orders/" + order + "/cancel", "{}"},
			{http.MethodPost, "/v1/orders/" + order + "/payments", `{"payment_id":"p1"}`},
			{http.MethodGet, askPath + "/r1", ""},
		} {
			res, body := r.raw(call.method, call.path, call.body, bearer(r.token(user)))
			if res.StatusCode != row.status || r.code(body) != row.code {
				t.Errorf("%v: %s %s: %d %s", row.err, call.method, call.path, res.StatusCode, body)
			}
			r.common(res, body)
		}
	}
}

// TestThrottledMargin: while a cell's gate is THROTTLED, the edge asks it for as many customers as it has
// units left and the campaign's gate.margin more (half of them, here), once for a TTL; repeats always.
func TestThrottledMargin(t *testing.T) {
	r := start(t, func(c *Config) { c.SoldOut.TTL = 20 * time.Second })
	here := celltest.Homed("thea", 12, 0, 2)
	permits := map[string]string{}
	for _, user := range here {
		permits[user] = r.permit(user)
	}
	r.cells[0].Script(func(*cq.Ask) *cq.Answer {
		return &cq.Answer{Outcome: cq.AdmitOutcome_ADMIT_OUTCOME_THROTTLED, StockLeft: 4}
	})
	first, _ := r.cells[0].Asked()
	for _, user := range here {
		_, a := r.buy(user, permits[user])
		r.must(a, 429, "THROTTLED")
		if a.RetryAfter <= 0 {
			t.Errorf("%s is not told when to come again", user)
		}
	}
	if asked, _ := r.cells[0].Asked(); asked-first != 1+6 { // the one that told, and 4 units and a half of them
		t.Errorf("%d of 12 customers came to the cell, want 7", asked-first)
	}
	before, _ := r.cells[0].Asked()
	_, a := r.buy(here[11], permits[here[11]], func(t *client.Try) { t.RetryAttempt = 1 })
	r.must(a, 429, "THROTTLED")
	if after, _ := r.cells[0].Asked(); after != before+1 {
		t.Error("a repeat did not come to the cell")
	}
}
