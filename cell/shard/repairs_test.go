package shard_test

import (
	"errors"
	"testing"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
)

// found records a finding about a reservation's entry of an action, the newest.
func (b *bench) found(id string, r ids.ReservationID, action string, units int32) shard.Finding {
	b.t.Helper()
	f := shard.Finding{
		ID: id, Kind: shard.DuplicateAction, Campaign: campaign, SKU: phone, Reservation: r, Units: units, State: shard.FindingProposed,
		Entry: one[int64](b, "SELECT coalesce(max(entry_id), 0) FROM cellquota.ledger WHERE business_no = $1 AND action = $2", string(r), action),
	}
	_, err := b.store.RecordFinding(b.ctx, f, nil)
	b.must(err)
	return f
}

var approved = shard.RepairNote{Action: shard.ActReverse, Actor: "olga", Reason: "drill", Incident: "INC-1", Approval: "a", Approver: "otto"}

// again writes an entry of a reservation once more, as a defect would, and moves its units.
func (b *bench) again(r ids.ReservationID, action string, available, reserved int32) {
	b.t.Helper()
	b.exec(b.admin, `WITH s AS (UPDATE cellquota.stock SET granted = granted + $3::int + $4::int, available = available + $3::int, reserved = reserved + $4::int, version = version + 1 WHERE sku_id = $5 RETURNING *)
		INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed, before_available, after_available,
			before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, created_at)
		SELECT campaign_id, sku_id, $2, $1, $2 || ':' || $1 || ':2', $3::int, $4::int, 0, available - $3::int, available, reserved - $4::int, reserved, confirmed, confirmed, version, 1, 'orders', 'cell', now() FROM s`,
		string(r), action, available, reserved, string(phone))
}

// TestRepairLeavesAReservationItsEntries: the only entry that a reservation stands on is never reversed,
// whoever approved it: its normal end would return the same unit once more. One too many is.
func TestRepairLeavesAReservationItsEntries(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	r := b.order("u").Reservation()
	before := b.fingerprint()
	if _, _, err := b.store.ReverseEntry(b.ctx, b.found("cell-1.f1", r, "RESERVE", 1), approved); !errors.Is(err, shard.ErrRepair) || b.fingerprint() != before {
		t.Fatalf("the RESERVE of a live reservation is reversed: %v", err)
	}
	b.again(r, "RESERVE", -1, 1)
	f := b.found("cell-1.f2", r, "RESERVE", 1)
	if outcome, _, err := b.store.ReverseEntry(b.ctx, f, approved); err != nil || outcome != shard.RepairDone {
		t.Fatalf("one too many: %s, %v", outcome, err)
	}
	if e := b.effects()["reversal-"+f.ID]; e != nil {
		t.Errorf("the mirror gets a unit that it never lost: %v", e)
	}
	if _, _, err := b.store.ReverseEntry(b.ctx, b.found("cell-1.f1", r, "RESERVE", 1), approved); !errors.Is(err, shard.ErrRepair) {
		t.Fatalf("the one that is left: %v", err)
	}
	if s := b.stock(phone); s.Available != 4 || s.Reserved != 1 {
		t.Errorf("%+v", s)
	}
}

// TestRepairReleasesWhatOneReserveHolds: a reservation without an order whose RESERVE is not there, is there
// twice, or is of other units gives nothing back.
func TestRepairReleasesWhatOneReserveHolds(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	r := b.order("u").Reservation()
	force := func(sql string) {
		admin := b.admin
		b.exec(admin, "SET session_replication_role = replica")
		b.exec(admin, sql)
		b.exec(admin, "SET session_replication_role = DEFAULT")
	}
	force("DELETE FROM cellquota.orders")
	refused := func(why string, units int32) {
		t.Helper()
		before := b.fingerprint()
		if _, _, err := b.store.ReleaseUnits(b.ctx, b.found("cell-1.f1", r, "RESERVE", units), approved); !errors.Is(err, shard.ErrRepair) || b.fingerprint() != before {
			t.Errorf("%s: %v", why, err)
		}
	}
	refused("other units", 2)
	force("UPDATE cellquota.ledger SET business_no = 'gone' WHERE action = 'RESERVE'")
	refused("no RESERVE", 1)
	force("UPDATE cellquota.ledger SET business_no = '" + string(r) + "' WHERE action = 'RESERVE'")
	if outcome, _, err := b.store.ReleaseUnits(b.ctx, b.found("cell-1.f1", r, "RESERVE", 1), approved); err != nil || outcome != shard.RepairDone {
		t.Errorf("whole: %s, %v", outcome, err)
	}
}

// TestRepairCreditsAMirrorWhatItLost: a RESERVE without a reservation took the mirror's units once; one
// that was written again, or whose message was rejected, took none.
func TestRepairCreditsAMirrorWhatItLost(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	id := func(user string) ids.ReservationID { return b.message(user).Reservation }
	ordered, rejected := id("ordered"), b.message("rejected", func(m *shard.Message) { m.Quantity = 6 })
	b.apply(rejected)
	b.again(ordered, "RESERVE", -1, 1)
	for name, row := range map[string]struct {
		r     ids.ReservationID
		delta int32
	}{"the first": {ordered, 1}, "of a rejection": {rejected.Reservation, 0}} {
		if row.delta == 0 {
			b.again(row.r, "RESERVE", -1, 1)
		}
		f := b.found("cell-1.f"+string(row.r), row.r, "RESERVE", 1)
		if outcome, _, err := b.store.ReverseEntry(b.ctx, f, approved); err != nil || outcome != shard.RepairDone {
			t.Fatalf("%s: %s, %v", name, outcome, err)
		}
		if e := b.effects()["reversal-"+f.ID]; e.GetStockDelta() != row.delta {
			t.Errorf("%s: the mirror gets %d", name, e.GetStockDelta())
		}
	}
}

// TestAReversedGrantIsNoOrphan: units that no adjustment granted are found until they were reversed, and
// hold their SKU no longer.
func TestAReversedGrantIsNoOrphan(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	b.again("ghost", "GRANT", 3, 0)
	orphans := func() int64 {
		return one[int64](b, "SELECT count(*) FROM cellquota.v_reconcile_chain WHERE orphan")
	}
	if n := orphans(); n != 1 {
		t.Fatalf("%d orphans", n)
	}
	if outcome, _, err := b.store.ReverseEntry(b.ctx, b.found("cell-1.f1", "ghost", "GRANT", 3), approved); err != nil || outcome != shard.RepairDone {
		t.Fatalf("%s, %v", outcome, err)
	}
	if n := orphans(); n != 0 {
		t.Errorf("%d orphans once it is reversed", n)
	}
}
