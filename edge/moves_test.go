package edge

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cellquota/cellquota/edge/celltest"
	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/testkit"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// handover tells the edge of the handover of all that cell-1 has.
func (r *rig) handover(state cq.BucketMoveState) {
	r.t.Helper()
	r.change(func(c *cq.CampaignRoute) {
		was := celltest.Domain("", "cell-1", "cell-2")
		if state == cq.BucketMoveState_BUCKET_MOVE_STATE_MOVED {
			c.Domains = []*cq.DomainRoute{celltest.Domain("", "cell-2")}
		}
		c.Domains[0].Moves = []*cq.BucketMove{{
			FromCell: "cell-1", ToCell: "cell-2", Buckets: was.GetCells()[0].GetBuckets(), RouteVersion: 2, State: state,
		}}
	})
}

// askedFor fails the test unless do asks cell i so many times.
func (r *rig) askedFor(i, want int, do func()) {
	r.t.Helper()
	before, _ := r.cells[i].Asked()
	do()
	if after, _ := r.cells[i].Asked(); after-before != want {
		r.t.Errorf("cell %d was asked %d times, want %d", i, after-before, want)
	}
}

// While a bucket is handed over nobody of it is sold to, by either cell; what was answered is answered
// again by its giver. Everyone else buys.
func TestMoving(t *testing.T) {
	r := start(t)
	users := celltest.Homed("mona", 2, 0, 2)
	owner, newcomer, stranger := users[0], users[1], celltest.Homed("mona", 1, 1, 2)[0]
	pass, late := r.permit(owner), r.permit(newcomer)
	q, a := r.buy(owner, pass)
	r.must(a, 202, "")
	for _, state := range []cq.BucketMoveState{cq.BucketMoveState_BUCKET_MOVE_STATE_MOVING, 99} {
		r.handover(state)
		for i := range r.cells {
			r.askedFor(i, 0, func() {
				_, a = r.buy(newcomer, late)
				r.must(a, 503, "MOVED_PENDING")
				_, a, _ = r.client.Permit(t.Context(), r.token(newcomer), campaign, sku)
				r.must(a, 503, "MOVED_PENDING")
			})
		}
		if a.RetryAfter <= 0 {
			t.Error("nobody says when to come again")
		}
	}
	r.cells[0].CloseBucket(campaign, sku, newcomer)
	again := func(t *client.Try) { t.RetryAttempt = 1 }
	replay, a := r.buy(owner, pass, again)
	if a.Status != 202 || !a.Replayed || replay.ReservationID != q.ReservationID {
		t.Errorf("the giver's repeat: %d %s", a.Status, a.Body)
	}
	r.askedFor(1, 0, func() {
		_, a = r.buy(newcomer, late, again)
		r.must(a, 503, "MOVED_PENDING")
	})
	// A giver that is fenced has nothing to say; home is not unavailable but elsewhere soon.
	r.cell(0, func(c *cq.CellRoute) { c.State = cq.CellState_CELL_STATE_FENCED })
	_, a = r.buy(owner, pass, again)
	r.must(a, 503, "MOVED_PENDING")
	// One that is gone for good never will: nobody takes the bucket over (controlplane/handover).
	r.cell(0, func(c *cq.CellRoute) { c.State = cq.CellState_CELL_STATE_RETIRED })
	for attempt := range 2 {
		_, a = r.buy(newcomer, late, func(t *client.Try) { t.RetryAttempt = attempt })
		r.must(a, 503, "HOME_CELL_UNAVAILABLE")
	}
	_, a, _ = r.client.Permit(t.Context(), r.token(newcomer), campaign, sku)
	r.must(a, 503, "HOME_CELL_UNAVAILABLE")
	r.cell(0, func(*cq.CellRoute) {})
	_, a = r.buy(stranger, r.permit(stranger))
	r.must(a, 202, "")
	// One edge may be ahead of another: who is at home with the taker already is found there.
	r.cells[0].CloseBucket(campaign, sku, owner)
	r.handover(cq.BucketMoveState_BUCKET_MOVE_STATE_MOVED)
	_, a = r.buy(newcomer, late)
	r.must(a, 202, "")
	r.handover(cq.BucketMoveState_BUCKET_MOVE_STATE_MOVING)
	if _, a, _ := r.client.Status(t.Context(), r.token(newcomer), campaign, sku, "r1", "", 0); a.Status != 200 {
		t.Errorf("an edge that is behind says %d %s of a request that was accepted", a.Status, a.Code)
	}
}

// After a handover the new home sells once to each user; what the former cell has stays there and is found
// by its ids, in lists, and under a request id that the new home never saw.
func TestMoved(t *testing.T) {
	r := start(t)
	ctx := testkit.Deadline(t)
	users := celltest.Homed("nadja", 3, 0, 2)
	owner, late, newcomer := users[0], users[1], users[2]
	pass := r.permit(owner)
	q, a := r.buy(owner, pass)
	r.must(a, 202, "")
	order := r.cells[0].MakeOrder(campaign, sku, owner, "r1")
	latePass := r.permit(late)
	lost, a := r.buy(late, latePass)
	r.must(a, 202, "")
	for _, user := range users {
		r.cells[0].CloseBucket(campaign, sku, user)
		r.cells[0].CarryTo(r.cells[1], campaign, sku, user)
	}
	r.handover(cq.BucketMoveState_BUCKET_MOVE_STATE_MOVED)

	second := func(t *client.Try) { t.RequestID = "r2" }
	status := func(user, request, receipt string) (client.Request, client.Answer) {
		got, a, err := r.client.Status(ctx, r.token(user), campaign, sku, request, receipt, 0)
		if err != nil {
			t.Fatal(err)
		}
		return got, a
	}
	// A customer with an order: no second one; its state is asked of the cell that has it.
	_, a = r.buy(owner, r.mintedPermit(owner), second)
	r.must(a, 409, "ALREADY_RESERVED")
	if !strings.HasSuffix(a.StatusURL, "/requests/r1") {
		t.Errorf("status_url is %q", a.StatusURL)
	}
	if _, a, err := r.client.StartPayment(ctx, r.token(owner), order, "p1"); err != nil || a.Status != 201 {
		t.Fatalf("payment: %v %d %s", err, a.Status, a.Body)
	}
	if _, a, err := r.client.SendCallback(ctx, client.Callback{PaymentID: "p1", OrderID: order, Amount: "4999.00", Currency: "CNY", Status: "SUCCEEDED"}, r.sign); err != nil || a.Status != 200 {
		t.Fatalf("callback: %v %d %s", err, a.Status, a.Body)
	}
	_, a = r.buy(owner, r.mintedPermit(owner), second)
	r.must(a, 409, "ALREADY_PURCHASED")
	_, a, _ = r.client.Permit(ctx, r.token(owner), campaign, sku)
	r.must(a, 409, "ALREADY_PURCHASED")
	replay, a := r.buy(owner, pass, func(t *client.Try) { t.RetryAttempt = 1 })
	if a.Status != 200 || !a.Replayed || replay.State != "PAID" || replay.ReservationID != q.ReservationID || replay.Receipt != q.Receipt {
		t.Errorf("repeat: %d %s", a.Status, a.Body)
	}
	for _, receipt := range []string{"", q.Receipt} {
		if got, a := status(owner, "r1", receipt); got.State != "PAID" || got.OrderID != order {
			t.Errorf("status: %d %s", a.Status, a.Body)
		}
	}
	// Who came too late for the former cell tries again, under the same id.
	got, a := status(late, "r1", "")
	if !got.Moved() {
		t.Errorf("a late request is %d %s", a.Status, a.Body)
	}
	got, a = r.buy(late, latePass)
	r.must(a, 202, "")
	if a.Replayed || got.ReservationID == lost.ReservationID {
		t.Errorf("the new home did not decide: %s", a.Body)
	}
	for _, receipt := range []string{"", lost.Receipt, got.Receipt} {
		if now, a := status(late, "r1", receipt); now.ReservationID != got.ReservationID || now.State != "QUEUED" {
			t.Errorf("status after trying again: %d %s", a.Status, a.Body)
		}
	}
	// Lists know both cells.
	_, a = r.buy(newcomer, r.permit(newcomer))
	r.must(a, 202, "")
	r.cells[1].MakeOrder(campaign, sku, newcomer, "r1")
	for user, state := range map[string]string{owner: "PAID", late: "QUEUED", newcomer: "PENDING_PAYMENT"} {
		list, complete, a, err := r.client.Requests(ctx, r.token(user), campaign)
		if err != nil || !complete || len(list) != 1 || list[0].State != state {
			t.Errorf("requests of %s: %v %s", user, err, a.Body)
		}
		orders, complete, a, err := r.client.Orders(ctx, r.token(user))
		if want := map[bool]int{true: 1}[state != "QUEUED"]; err != nil || !complete || len(orders) != want {
			t.Errorf("orders of %s: %v %s", user, err, a.Body)
		}
	}
}

// A request id that the new home does not know is "not found" only by the former cell's word or its end.
func TestFormerCellUnreachable(t *testing.T) {
	r := start(t)
	ctx := testkit.Deadline(t)
	users := celltest.Homed("olli", 2, 0, 2)
	_, a := r.buy(users[0], r.permit(users[0]))
	r.must(a, 202, "")
	r.cells[0].MakeOrder(campaign, sku, users[0], "r1")
	r.cells[0].CloseBucket(campaign, sku, users[0])
	r.cells[0].CarryTo(r.cells[1], campaign, sku, users[0])
	r.handover(cq.BucketMoveState_BUCKET_MOVE_STATE_MOVED)
	for _, row := range []struct {
		name     string
		cell     func(*cq.CellRoute)
		code     string
		complete bool
	}{
		{"answers", func(*cq.CellRoute) {}, "NOT_FOUND", true},
		{"fenced, nobody there", func(c *cq.CellRoute) { c.State, c.Addresses = cq.CellState_CELL_STATE_FENCED, nil }, "HOME_CELL_UNAVAILABLE", false},
		{"retired", func(c *cq.CellRoute) { c.State, c.Addresses = cq.CellState_CELL_STATE_RETIRED, nil }, "NOT_FOUND", false},
	} {
		r.cell(0, row.cell)
		for _, id := range []string{"never", "r1"} { // another's r1 is nobody's
			res, body := r.raw(http.MethodGet, askPath+"/"+id, "", bearer(r.token(users[1])))
			if r.code(body) != row.code || (row.code != "NOT_FOUND") != (res.Header.Get("Retry-After") != "") {
				t.Errorf("%s, %s: %d %s", row.name, id, res.StatusCode, body)
			}
		}
		if _, complete, a, err := r.client.Requests(ctx, r.token(users[1]), campaign); err != nil || complete != row.complete {
			t.Errorf("%s: the list is %s", row.name, a.Body)
		}
		if row.complete {
			continue
		}
		// What came with the bucket is still known: no second order, and no lie about the first.
		_, a := r.buy(users[0], r.mintedPermit(users[0]), func(t *client.Try) { t.RequestID = "r2" })
		r.must(a, 409, "ALREADY_RESERVED")
		if got, a, err := r.client.Status(ctx, r.token(users[0]), campaign, sku, "r1", "", 0); err != nil || got.State != "PENDING_PAYMENT" {
			t.Errorf("%s: %v %d %s", row.name, err, a.Status, a.Body)
		}
	}
	r.cell(0, func(*cq.CellRoute) {})
	r.cells[0].Stop() // routes still name it
	if res, body := r.raw(http.MethodGet, askPath+"/never", "", bearer(r.token(users[1]))); res.StatusCode != 503 {
		t.Errorf("a dead process is taken for a no: %d %s", res.StatusCode, body)
	}
}
