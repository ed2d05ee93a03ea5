package cell

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// repairs is the control plane's way to the cell.
func (p *process) repairs() func(in *pb.CellReconcileServiceRepairRequest) (*pb.CellReconcileServiceRepairResponse, error) {
	p.w.t.Helper()
	conn, err := transport.Dial(p.listener.Addr().String(), transport.DialOptions{Dev: true, Workload: "controlplane/cp"})
	p.w.must(err)
	p.w.t.Cleanup(func() { _ = conn.Close() })
	cell := pb.NewCellReconcileServiceClient(conn)
	return func(in *pb.CellReconcileServiceRepairRequest) (*pb.CellReconcileServiceRepairResponse, error) {
		in.Actor, in.Reason = "olga", "drill"
		return cell.Repair(p.w.ctx, in)
	}
}

// idOf is the id of the open finding of a kind and user.
func (w *world) idOf(kind, user string) (id string) {
	w.t.Helper()
	w.must(w.admin.QueryRow(w.ctx, "SELECT finding_id FROM cellquota.v_finding_details WHERE kind = $1 AND user_id = $2 AND state <> 'REPAIRED'", kind, user).Scan(&id))
	return id
}

// twice repairs a finding twice; the second time nothing happens.
func (w *world) twice(repair func(*pb.CellReconcileServiceRepairRequest) (*pb.CellReconcileServiceRepairResponse, error), in *pb.CellReconcileServiceRepairRequest) {
	w.t.Helper()
	first, err := repair(in)
	w.must(err)
	if first.GetOutcome() != "DONE" {
		w.t.Errorf("%s: first %v", in.GetAction(), first)
	}
	testkit.Eventually(w.t, patience, func() error {
		again, err := repair(in)
		if err != nil || again.GetOutcome() != "ALREADY" {
			return fmt.Errorf("%s again: %v %w", in.GetAction(), again, err)
		}
		return nil
	})
}

// Every action repairs what it is for, by added rows, once; and the ledgers close.
func TestReconcileRepairs(t *testing.T) {
	w := newWorld(t)
	p := w.sell(20, append(proposing, "--relay-scan-interval=1h")...)
	rdb := redis.NewClient(&redis.Options{Addr: w.redis.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	key := func(part string) string { return p.mirrorPrefix() + "1.1:" + part }
	repair := p.repairs()
	got := w.bought(p, "back", "double", "order")
	_, err := p.client.Orders.CancelOrder(w.ctx, &pb.CancelOrderRequest{OrderId: got["back"].GetOrderId(), UserId: "back"})
	w.must(err)
	p.stocked(18)

	// return: the mirror lost a give-back.
	w.must(rdb.SRem(w.ctx, key("applied"), "release-"+got["back"].GetReservationId()).Err())
	w.must(rdb.DecrBy(w.ctx, key("stock:"+phone), 1).Err())
	w.finds("CLOSED_WITHOUT_RETURN back")
	w.twice(repair, &pb.CellReconcileServiceRepairRequest{FindingId: w.idOf("CLOSED_WITHOUT_RETURN", "back"), Action: pb.RepairAction_REPAIR_ACTION_RETURN})
	w.finds()
	p.stocked(18)

	// release: the reservation's order is gone.
	w.byForce(`DELETE FROM cellquota.orders WHERE reservation_id = $1`, got["order"].GetReservationId())
	w.finds("RESERVATION_WITHOUT_ORDER order")
	in := &pb.CellReconcileServiceRepairRequest{FindingId: w.idOf("RESERVATION_WITHOUT_ORDER", "order"), Action: pb.RepairAction_REPAIR_ACTION_REVERSE, Incident: "INC-1", ApprovalId: "a", Approver: "otto"}
	if _, err := repair(in); rpcstatus.Reason(err) != "ACTION_REFUSED" {
		t.Errorf("reversing what names no entry: %v", err)
	}
	in.Action = pb.RepairAction_REPAIR_ACTION_RELEASE
	w.twice(repair, in)
	p.stocked(19)
	if n := w.count("SELECT count(*) FROM cellquota.v_ledger WHERE business_no = $1 AND action = 'RELEASE'", got["order"].GetReservationId()); n != 1 {
		t.Errorf("%d RELEASE entries", n)
	}

	// reverse: a RESERVE was written twice, and took a unit of the shard. The mirror never lost it.
	w.exec(`WITH s AS (UPDATE cellquota.stock SET available = available - 1, reserved = reserved + 1, version = version + 1 WHERE sku_id = $2 RETURNING *)
		INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed, before_available, after_available,
			before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, created_at)
		SELECT campaign_id, sku_id, 'RESERVE', $1, 'RESERVE:' || $1 || ':2', -1, 1, 0, available + 1, available, reserved - 1, reserved, confirmed, confirmed, version, 1, 'orders', 'cell', now() FROM s`,
		got["double"].GetReservationId(), phone)
	w.finds("DUPLICATE_ACTION double")
	if n := w.count("SELECT count(*) FROM cellquota.v_frozen_skus"); n != 1 {
		t.Errorf("%d frozen SKUs", n)
	}
	in = &pb.CellReconcileServiceRepairRequest{FindingId: w.idOf("DUPLICATE_ACTION", "double"), Action: pb.RepairAction_REPAIR_ACTION_REVERSE, Incident: "INC-2", ApprovalId: "op", Approver: "olga"}
	if _, err := repair(in); rpcstatus.Reason(err) != "ACTION_REFUSED" {
		t.Errorf("reversing with one's own approval: %v", err)
	}
	in.Approver = "otto"
	w.twice(repair, in)
	p.stocked(19)
	if n := w.count(`SELECT count(*) FROM cellquota.v_ledger l JOIN cellquota.v_ledger o ON o.entry_id = l.reverses WHERE l.action = 'REVERSAL' AND l.source = 'repair' AND l.actor = 'olga' AND o.idempotency_key = $1`,
		"RESERVE:"+got["double"].GetReservationId()+":2"); n != 1 {
		t.Errorf("%d reversals", n)
	}
	if n := w.count("SELECT count(*) FROM cellquota.v_finding_repairs WHERE incident = 'INC-2' AND approver = 'otto' AND approval_id = 'op' AND outcome = 'DONE'"); n != 1 {
		t.Errorf("%d repairs keep their incident", n)
	}

	// release of a mark with nothing behind it.
	w.must(rdb.HSet(w.ctx, key("marks"), "nobody", strings.Join([]string{"3", phone, "r-nobody", "cell-1.raaaaaaaaaaaaaaaaaaaaaaaaaa", "1"}, "|")).Err())
	w.finds("ORPHAN_BUYER_MARK nobody")
	w.twice(repair, &pb.CellReconcileServiceRepairRequest{FindingId: w.idOf("ORPHAN_BUYER_MARK", "nobody"), Action: pb.RepairAction_REPAIR_ACTION_RELEASE})
	testkit.Eventually(t, patience, func() error {
		if there, err := rdb.HExists(w.ctx, key("marks"), "nobody").Result(); err != nil || there {
			return fmt.Errorf("mark %v %w", there, err)
		}
		return nil
	})

	// tombstone: the mirror took units and its message is lost; should it come after all, it changes nothing.
	p.admitOnly("lost")
	message, err := rdb.XRange(w.ctx, key("stream"), "-", "+").Result()
	w.must(err)
	w.must(rdb.Del(w.ctx, key("stream"), key("pending:"+phone)).Err())
	w.finds("TAKEN_WITHOUT_EVENT lost")
	p.stocked(18)
	w.twice(repair, &pb.CellReconcileServiceRepairRequest{FindingId: w.idOf("TAKEN_WITHOUT_EVENT", "lost"), Action: pb.RepairAction_REPAIR_ACTION_TOMBSTONE})
	p.stocked(19)
	if len(message) == 1 { // the sweeper had not brought it away
		w.must(rdb.XAdd(w.ctx, &redis.XAddArgs{Stream: key("stream"), ID: message[0].ID, Values: message[0].Values}).Err())
	}
	p.reaches("lost", "r1", "", pb.RequestState_REQUEST_STATE_REJECTED)
	w.cycles(2)
	w.finds()
	if n := w.count(`SELECT count(*) FROM cellquota.v_stock s WHERE available = 19 AND reserved = 1 AND confirmed = 0 AND (available, reserved, confirmed) =
		(SELECT sum(delta_available), sum(delta_reserved), sum(delta_confirmed) FROM cellquota.v_ledger l WHERE l.sku_id = s.sku_id)`); n != 1 {
		t.Error("the ledger does not close")
	}
	if _, err := repair(&pb.CellReconcileServiceRepairRequest{FindingId: "cell-1.fnone", Action: pb.RepairAction_REPAIR_ACTION_RETURN}); !errors.Is(err, rpcstatus.ErrNotFound) {
		t.Errorf("an unknown finding: %v", err)
	}
}

// What the cell repairs by itself: an event that was not sent, and units that did not come back. What does
// not help within the budget waits for a person, and is left by a repair alone.
func TestReconcileRepairsByItself(t *testing.T) {
	w := newWorld(t)
	p := w.sell(10, append(quickly, "--relay-sweep-after=10m", "--relay-scan-interval=1h", "--reconcile-repair-tries=2")...)
	rdb := redis.NewClient(&redis.Options{Addr: w.redis.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	got := w.bought(p, "shown")
	p.admitOnly("ann") // and dies: nobody sweeps
	p.reaches("ann", "r1", "", pending)
	w.finds()
	if n := w.count("SELECT count(*) FROM cellquota.v_finding_details d JOIN cellquota.v_finding_repairs USING (finding_id) WHERE kind = 'TAKEN_WITHOUT_EVENT' AND user_id = 'ann' AND state = 'REPAIRED'"); n < 1 {
		t.Errorf("%d repairs of the event that was not sent", n)
	}

	// A record that no effect cures: it has the newest version already.
	record := p.mirrorPrefix() + "1.1:record:" + phone + ":r-shown:shown"
	w.must(rdb.HSet(w.ctx, record, "state", int32(paid)).Err())
	testkit.Eventually(t, patience, func() error {
		if f := w.findings()["STATE_MISMATCH shown"]; f.state != "MANUAL_REVIEW" {
			return fmt.Errorf("finding %+v", f)
		}
		return nil
	})
	w.must(rdb.HSet(w.ctx, record, "state", int32(pending)).Err())
	w.cycles(3)
	if f := w.findings()["STATE_MISMATCH shown"]; f.state != "MANUAL_REVIEW" || f.names(got["shown"]) != nil {
		t.Errorf("a review ended by itself: %+v", f)
	}
	out, err := p.repairs()(&pb.CellReconcileServiceRepairRequest{FindingId: w.idOf("STATE_MISMATCH", "shown"), Action: pb.RepairAction_REPAIR_ACTION_REPUBLISH})
	w.must(err)
	if out.GetOutcome() != "CLOSED" {
		t.Errorf("its repair: %v", out)
	}
	w.finds()
}

// A parked message that a person returns gives its units back once, whoever looks afterwards, and once more
// only where the mirror lost them.
func TestReconcileAfterAReturn(t *testing.T) {
	w := newWorld(t)
	p := w.sell(10, append(quickly, "--relay-scan-interval=1h")...)
	w.exec("ALTER TABLE cellquota.orders ADD CONSTRAINT nobody CHECK (user_id <> 'parked')")
	want(t, p.exchange(w.ask("parked", "r-parked"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	w.finds("EVENT_WITHOUT_RESERVATION parked")
	in := &pb.CellReconcileServiceRepairRequest{FindingId: w.idOf("EVENT_WITHOUT_RESERVATION", "parked"), Action: pb.RepairAction_REPAIR_ACTION_RETURN, Incident: "INC-1"}
	w.twice(p.repairs(), in)
	p.stocked(10)
	w.cycles(5)
	w.finds()
	p.stocked(10)
	if n := w.count("SELECT count(*) FROM cellquota.findings"); n != 1 {
		t.Errorf("%d findings", n)
	}

	rdb := redis.NewClient(&redis.Options{Addr: w.redis.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	var reservation string
	w.must(w.admin.QueryRow(w.ctx, "SELECT reservation_id FROM cellquota.v_inbox WHERE user_id = 'parked'").Scan(&reservation))
	if n, err := rdb.SRem(w.ctx, p.mirrorPrefix()+"1.1:applied", "return-"+reservation).Result(); err != nil || n != 1 {
		t.Fatalf("%d returns, %v", n, err)
	}
	w.must(rdb.DecrBy(w.ctx, p.mirrorPrefix()+"1.1:stock:"+phone, 1).Err())
	p.stocked(10)
	w.finds()
	if there, err := rdb.SIsMember(w.ctx, p.mirrorPrefix()+"1.1:applied", "return-"+reservation).Result(); err != nil || !there {
		t.Errorf("given back under another id: %v", err)
	}
}
