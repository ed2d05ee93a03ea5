package cell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// quickly compares often, and takes things for stuck soon.
var quickly = []string{"--reconcile-interval=30ms", "--reconcile-in-flight=500ms", "--reconcile-settle=100ms", "--reconcile-overdue=1s", "--reconcile-confirm=50ms"}

// proposing repairs nothing by itself.
var proposing = slices.Clip(append(quickly, "--reconcile-auto-repair=false"))

// finding is a row of v_findings, by the user of its request.
type finding struct{ kind, request, event, reservation, order, state, action string }

// findings reads what is not repaired, "KIND USER" each.
func (w *world) findings() map[string]finding {
	w.t.Helper()
	rows, err := w.admin.Query(w.ctx, `SELECT f.kind, d.user_id, f.request_id, f.event_id, f.reservation_id, f.order_id, f.state, f.action
		FROM cellquota.v_findings f JOIN cellquota.v_finding_details d USING (finding_id) WHERE f.state <> 'REPAIRED'`)
	w.must(err)
	defer rows.Close()
	out := map[string]finding{}
	for rows.Next() {
		var user string
		var f finding
		w.must(rows.Scan(&f.kind, &user, &f.request, &f.event, &f.reservation, &f.order, &f.state, &f.action))
		out[f.kind+" "+user] = f
	}
	w.must(rows.Err())
	return out
}

// finds waits until exactly these are found.
func (w *world) finds(want ...string) map[string]finding {
	w.t.Helper()
	slices.Sort(want)
	var got map[string]finding
	testkit.Eventually(w.t, patience, func() error {
		got = w.findings()
		if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, want) {
			return fmt.Errorf("found %q, want %q", have, want)
		}
		return nil
	})
	return got
}

// cycles waits until so many more comparisons of everything have ended.
func (w *world) cycles(n int64) {
	w.t.Helper()
	from := w.count("SELECT cycle FROM cellquota.v_reconcile_walk")
	testkit.Eventually(w.t, patience, func() error {
		if at := w.count("SELECT cycle FROM cellquota.v_reconcile_walk"); at < from+n {
			return fmt.Errorf("cycle %d of %d", at, from+n)
		}
		return nil
	})
}

// byForce changes rows behind every trigger and constraint, as a bad statement of a superuser, a torn
// restore or a defect would.
func (w *world) byForce(sql string, args ...any) {
	w.t.Helper()
	w.exec("SET session_replication_role = replica")
	w.exec(sql, args...)
	w.exec("SET session_replication_role = DEFAULT")
}

// bought sells a unit to each user and gives their reservations.
func (w *world) bought(p *process, users ...string) map[string]*pb.RequestView {
	w.t.Helper()
	out := map[string]*pb.RequestView{}
	for _, u := range users {
		want(w.t, p.exchange(w.ask(u, "r-"+u))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
		out[u] = p.reaches(u, "r-"+u, "", pending)
	}
	return out
}

// names tells whether a finding has the ids of a request.
func (f finding) names(v *pb.RequestView) error {
	if f.request != v.GetRequestId() || f.reservation != v.GetReservationId() || f.order != v.GetOrderId() || f.event != ids.EventID(ids.ReservationID(v.GetReservationId())) {
		return fmt.Errorf("finding %+v does not name %v", f, v)
	}
	return nil
}

// A sale that goes well has no finding, whatever is in flight.
func TestReconcileFindsNothingInASale(t *testing.T) {
	w := newWorld(t)
	p := w.sell(50, proposing...)
	got := w.bought(p, "ann", "bob", "cid")
	pay(t, w, p, "ann", got["ann"].GetOrderId())
	_, err := p.client.Orders.CancelOrder(w.ctx, &pb.CancelOrderRequest{OrderId: got["bob"].GetOrderId(), UserId: "bob"})
	w.must(err)
	for i := range 20 {
		p.exchange(w.ask(fmt.Sprint("u", i), "r"))
	}
	w.cycles(3)
	w.finds()
}

// Every kind that rows of the shard can show is named with its ids, one difference each, and two opposite
// errors that leave all totals equal are both found.
func TestReconcileNamesWhatTheShardShows(t *testing.T) {
	w := newWorld(t)
	p := w.sell(50, proposing...)
	users := []string{"dup", "miss", "qty", "state", "order", "gone", "place", "late", "plus", "minus"}
	got := w.bought(p, users...)
	w.finds()
	id := func(u string) string { return got[u].GetReservationId() }

	// Every totals stays as it was: one reservation reserves twice, another not at all.
	w.byForce(`UPDATE cellquota.ledger SET business_no = $1, idempotency_key = 'RESERVE:' || $1 || ':2' WHERE business_no = $2`, id("plus"), id("minus"))
	w.byForce(`UPDATE cellquota.ledger SET business_no = $1, idempotency_key = 'RESERVE:' || $1 || ':3' WHERE business_no = $2`, id("dup"), id("miss"))
	w.byForce(`UPDATE cellquota.orders SET quantity = 2 WHERE reservation_id = $1`, id("qty"))
	w.byForce(`UPDATE cellquota.reservations SET state = 'CONFIRMED' WHERE reservation_id = $1`, id("state"))
	w.byForce(`DELETE FROM cellquota.orders WHERE reservation_id = $1`, id("order"))
	w.byForce(`DELETE FROM cellquota.orders WHERE reservation_id = $1`, id("gone"))
	w.byForce(`DELETE FROM cellquota.reservations WHERE reservation_id = $1`, id("gone"))
	w.byForce(`DELETE FROM cellquota.buyers WHERE reservation_id = $1`, id("gone"))
	w.byForce(`UPDATE cellquota.buyers SET reservation_id = left(reservation_id, -3) || 'aaa' WHERE reservation_id = $1`, id("place"))
	w.byForce(`UPDATE cellquota.orders SET close_after = now() - interval '1 hour', expires_at = now() + interval '1 hour' WHERE reservation_id = $1`, id("late"))

	found := w.finds(
		"DUPLICATE_ACTION plus", "MISSING_ACTION minus", "DUPLICATE_ACTION dup", "MISSING_ACTION miss", "QUANTITY_MISMATCH qty",
		"STATE_MISMATCH state", "MISSING_ACTION state", // a confirmed reservation has no CONFIRM either
		"RESERVATION_WITHOUT_ORDER order", "EVENT_WITHOUT_RESERVATION gone",
		"STATE_MISMATCH place", "ORPHAN_BUYER_MARK place", "OVERDUE late",
	)
	for name, f := range found {
		kind, user, _ := strings.Cut(name, " ")
		if user == "place" && kind == "ORPHAN_BUYER_MARK" || user == "gone" || user == "order" {
			continue // there is no order, or the place names another reservation
		}
		if err := f.names(got[user]); err != nil {
			t.Error(err)
		}
	}
	if n := w.count("SELECT count(*) FROM cellquota.v_frozen_skus WHERE sku_id = $1", phone); n != 1 {
		t.Errorf("%d frozen SKUs", n)
	}
	if n := w.count("SELECT count(*) FROM cellquota.v_finding_details WHERE snapshot->'stock'->>'sku_id' = $1 AND snapshot->'mirror'->>'Stock' <> ''", phone); n < 4 {
		t.Errorf("%d findings keep the scene", n)
	}
	before := w.count("SELECT count(*) FROM cellquota.findings")
	w.cycles(2)
	if after := w.count("SELECT count(*) FROM cellquota.findings"); after != before {
		t.Errorf("the same differences are %d rows now, they were %d", after, before)
	}
}

// The mirror's side: units that went and are in no event, a message that nobody consumes, a closed order
// and a rejected request whose units did not come back, a mark with nothing behind it, a stock figure that
// somebody changed.
func TestReconcileNamesWhatTheMirrorShows(t *testing.T) {
	t.Run("taken and not sent", func(t *testing.T) {
		w := newWorld(t)
		p := w.sell(10, append(proposing, "--roles=admission,outbox,reconcile")...)
		p.admitOnly("ann") // a process that died before it produced; nobody sweeps
		if f := w.finds("TAKEN_WITHOUT_EVENT ann")["TAKEN_WITHOUT_EVENT ann"]; f.request != "r1" || f.event == "" {
			t.Errorf("%+v", f)
		}
	})
	t.Run("sent and not consumed", func(t *testing.T) {
		w := newWorld(t)
		p := w.sell(10, append(proposing, "--roles=admission,outbox,reconcile")...)
		want(t, p.exchange(w.ask("ann", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
		w.finds("EVENT_WITHOUT_RESERVATION ann")
	})
	t.Run("at rest", func(t *testing.T) {
		w := newWorld(t)
		p := w.sell(10, append(proposing, "--relay-scan-interval=1h")...)
		rdb := redis.NewClient(&redis.Options{Addr: w.redis.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		got := w.bought(p, "back", "shown", "quiet")
		_, err := p.client.Orders.CancelOrder(w.ctx, &pb.CancelOrderRequest{OrderId: got["back"].GetOrderId(), UserId: "back"})
		w.must(err)
		p.stocked(8)
		w.finds()

		key := func(part string) string { return p.mirrorPrefix() + "1.1:" + part }
		w.must(rdb.SRem(w.ctx, key("applied"), "release-"+got["back"].GetReservationId()).Err())
		w.must(rdb.DecrBy(w.ctx, key("stock:"+phone), 1).Err())
		w.must(rdb.HSet(w.ctx, key("record:"+phone+":r-shown:shown"), "state", int32(paid)).Err())
		w.must(rdb.HSet(w.ctx, key("marks"), "nobody", strings.Join([]string{"3", phone, "r-nobody", "cell-1.raaaaaaaaaaaaaaaaaaaaaaaaaa", "1"}, "|")).Err())
		found := w.finds("CLOSED_WITHOUT_RETURN back", "STATE_MISMATCH shown", "ORPHAN_BUYER_MARK nobody")
		if err := found["CLOSED_WITHOUT_RETURN back"].names(got["back"]); err != nil {
			t.Error(err)
		}

		w.must(rdb.DecrBy(w.ctx, key("stock:"+phone), 1).Err()) // in no record at all
		w.finds("CLOSED_WITHOUT_RETURN back", "STATE_MISMATCH shown", "ORPHAN_BUYER_MARK nobody", "QUANTITY_MISMATCH ")
	})
}
