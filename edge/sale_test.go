package edge

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/testkit"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// A customer's whole way: campaign, permit, request, long poll, payment, callback, repeat.
func TestSale(t *testing.T) {
	r := start(t)
	ctx := testkit.Deadline(t)
	for i := range r.cells {
		user := celltest.Homed("alice", 1, i, 2)[0]
		token := r.token(user)

		c, a, err := r.client.Campaign(ctx, campaign)
		if err != nil || a.Status != 200 || len(c.SKUs) != 1 || c.SKUs[0].State != "OPEN" || string(c.Display) != `{"title":"Double Eleven"}` {
			t.Fatalf("campaign: %v %d %s", err, a.Status, a.Body)
		}
		before := r.cells[i].Stock(campaign, sku)
		permit := r.permit(user)
		q, a := r.buy(user, permit)
		r.must(a, http.StatusAccepted, "")
		if q.State != "QUEUED" || q.Receipt == "" || q.Ack != "KAFKA" || a.Replayed || q.PollAfterMS == 0 ||
			q.StatusURL != "/v1/campaigns/"+campaign+"/skus/"+sku+"/requests/r1" || a.Location != q.StatusURL || q.Message == "" {
			t.Fatalf("202 is %+v, location %q", q, a.Location)
		}
		if len(a.TraceID) != 32 {
			t.Fatalf("trace id is %q", a.TraceID)
		}
		if got := r.cells[i].Stock(campaign, sku); got != before-1 {
			t.Fatalf("home cell has %d, want %d", got, before-1)
		}
		if _, ask := r.cells[i].Asked(); !strings.Contains(ask.GetTraceparent(), a.TraceID) || ask.GetUserId() != user || ask.GetAdmit().GetPermit() != permit {
			t.Fatalf("the cell was asked %v", ask)
		}

		// The order is made while the customer waits.
		done := make(chan client.Request, 1)
		go func() {
			got, _, err := r.client.Status(ctx, token, campaign, sku, "r1", q.Receipt, 5*time.Second)
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		testkit.Eventually(t, 5*time.Second, func() error {
			if r.cells[i].LastStatusCall() == nil {
				return http.ErrNoLocation
			}
			return nil
		})
		order := r.cells[i].MakeOrder(campaign, sku, user, "r1")
		got := <-done
		if got.State != "PENDING_PAYMENT" || got.OrderID != order || got.ExpiresInMS <= 0 || got.PollAfterMS != 0 {
			t.Fatalf("status is %+v", got)
		}

		// Paying.
		p, a, err := r.client.StartPayment(ctx, token, order, "pay-1")
		if err != nil || a.Status != http.StatusCreated || p.Amount != "4999.00" || p.Currency != "CNY" || p.PaymentID != "pay-1" {
			t.Fatalf("payment: %v %d %s", err, a.Status, a.Body)
		}
		for range 2 { // the channel repeats itself
			paid, a, err := r.client.SendCallback(ctx, client.Callback{PaymentID: "pay-1", OrderID: order, Amount: "4999.00", Currency: "CNY", Status: "SUCCEEDED"}, r.sign)
			if err != nil || a.Status != 200 || paid.OrderState != "PAID" || paid.PaymentState != "SUCCEEDED" {
				t.Fatalf("callback: %v %d %s", err, a.Status, a.Body)
			}
		}

		// A repeat of the request answers the same ids and the present state, and says so.
		again, a := r.buy(user, permit, func(t *client.Try) { t.RetryAttempt = 1 })
		r.must(a, http.StatusOK, "")
		if !a.Replayed || again.ReservationID != q.ReservationID || again.State != "PAID" || again.OrderID != order {
			t.Fatalf("repeat is %+v", again)
		}
		// And nobody buys twice; the permit call says so already.
		_, a = r.buy(user, permit, func(t *client.Try) { t.RequestID = "r2" })
		r.must(a, http.StatusConflict, "ALREADY_PURCHASED")
		if a.StatusURL != q.StatusURL {
			t.Fatalf("status_url is %q, want %q", a.StatusURL, q.StatusURL)
		}
		_, a, err = r.client.Permit(ctx, token, campaign, sku)
		if err != nil {
			t.Fatal(err)
		}
		r.must(a, http.StatusConflict, "ALREADY_PURCHASED")

		list, complete, a, err := r.client.Requests(ctx, token, campaign)
		if err != nil || !complete || a.Status != 200 || len(list) != 1 || list[0].State != "PAID" || list[0].SKUID != sku {
			t.Fatalf("requests: %v %s", err, a.Body)
		}
		orders, complete, a, err := r.client.Orders(ctx, token)
		if err != nil || !complete || len(orders) != 1 || orders[0].OrderID != order || orders[0].State != "PAID" {
			t.Fatalf("orders: %v %s", err, a.Body)
		}
	}
	for _, series := range []string{
		`cellquota_edge_requests_total{code="ACCEPTED",layer="home"}`,
		`cellquota_edge_requests_total{code="REPLAYED",layer="home"}`,
		`cellquota_edge_requests_total{code="ISSUED",layer="permit"}`,
		`cellquota_edge_repeats_total{kind="replayed"}`,
		`cellquota_edge_repeats_total{kind="attempt"}`,
		`cellquota_edge_request_duration_seconds_count{call="request"}`,
	} {
		if r.counter(series) < 2 {
			t.Errorf("%s did not move", series)
		}
	}
	if took := r.counter(`cellquota_edge_request_duration_seconds_sum{call="request"}`); took <= 0 || took > 60 {
		t.Errorf("requests took %v s in all", took)
	}
	if n := r.counter("cellquota_edge_exchange_streams"); n < 2 { // one to each of the two cells at least
		t.Errorf("%v streams are open", n)
	}
	if n := r.counter("cellquota_edge_routes_watch_cycles_total"); n < 1 {
		t.Errorf("the watch of routes was begun %v times", n)
	}
	if n := r.counter("cellquota_edge_routes_revision"); n != float64(*r.sent) {
		t.Errorf("goes by revision %v, was sent %d", n, *r.sent)
	}
	if at := r.counter("cellquota_edge_routes_applied_timestamp_seconds"); now().Sub(time.UnixMilli(int64(at*1000))).Abs() > time.Minute {
		t.Errorf("routes applied at %v, it is %d", at, now().Unix())
	}
}

func (r *rig) sign(body []byte) (string, error) {
	return signed.SignPayment(now(), body, r.keys[signed.UsePayment], "k1")
}

// A receipt leads to its cell only if it is this user's for this request; any other is as good as none.
func TestReceiptRouting(t *testing.T) {
	r := start(t)
	ctx := testkit.Deadline(t)
	here, there := celltest.Homed("rita", 1, 0, 2)[0], celltest.Homed("rita", 1, 1, 2)[0]
	_, a := r.buy(here, r.permit(here))
	r.must(a, http.StatusAccepted, "")
	foreign, a := r.buy(there, r.permit(there))
	r.must(a, http.StatusAccepted, "")
	for _, receipt := range []string{"", "nonsense", foreign.Receipt} {
		q, a, err := r.client.Status(ctx, r.token(here), campaign, sku, "r1", receipt, 0)
		if err != nil || a.Status != 200 || q.State != "QUEUED" {
			t.Errorf("with receipt %.20q: %v %d %s", receipt, err, a.Status, a.Code)
		}
	}
	// After his home moved, the receipt still finds the cell that accepted.
	r.change(func(c *cq.CampaignRoute) { c.Domains = []*cq.DomainRoute{celltest.Domain("", "cell-1")} })
	q, a, err := r.client.Status(ctx, r.token(there), campaign, sku, "r1", foreign.Receipt, 0)
	if err != nil || a.Status != 200 || q.ReservationID != foreign.ReservationID {
		t.Errorf("after the move: %v %d %s", err, a.Status, a.Body)
	}
}

// Follow polls by the hints, with the receipt, until the order is there.
func TestFollow(t *testing.T) {
	r := start(t)
	user := celltest.Homed("bob", 1, 0, 2)[0]
	q, a := r.buy(user, r.permit(user))
	r.must(a, http.StatusAccepted, "")
	order := ""
	for _, wait := range []time.Duration{0, 2 * time.Second} {
		done := make(chan client.Request, 1)
		go func() {
			got, _, err := r.client.Follow(context.Background(), clock.System(), r.token(user), campaign, sku, q, wait)
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		if order == "" {
			testkit.Eventually(t, 5*time.Second, func() error {
				if r.cells[0].LastStatusCall().GetReceipt() != q.Receipt {
					return http.ErrNoLocation
				}
				return nil
			})
			order = r.cells[0].MakeOrder(campaign, sku, user, "r1")
		}
		if got := <-done; got.OrderID != order {
			t.Fatalf("followed to %+v, want order %s", got, order)
		}
	}
}
