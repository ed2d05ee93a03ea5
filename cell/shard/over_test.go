package shard_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
)

// TestWhatIsOverStaysOver is in the database itself: the cell's own role, past every check of
// this package, can neither close what is paid nor confirm what was released, and back.
func TestWhatIsOverStaysOver(t *testing.T) {
	b := newBench(t)
	b.sell(3)
	paid, closed := b.paid("paid"), b.order("closed")
	b.step(shard.Step{Kind: shard.StepCancel, Order: closed, User: "closed"})
	conn := b.db.ConnAs(t, migrate.RoleApp)
	before := b.fingerprint()
	for name, c := range map[string]struct {
		sql string
		id  any
	}{
		"PAID → CLOSED":          {"UPDATE cellquota.orders SET state = 'CLOSED', closed_at = paid_at, paid_at = NULL WHERE order_id = $1", paid},
		"PAID → PENDING_PAYMENT": {"UPDATE cellquota.orders SET state = 'PENDING_PAYMENT', paid_at = NULL WHERE order_id = $1", paid},
		"CLOSED → PAID":          {"UPDATE cellquota.orders SET state = 'PAID', paid_at = closed_at, closed_at = NULL WHERE order_id = $1", closed},
		"CONFIRMED → RELEASED":   {"UPDATE cellquota.reservations SET state = 'RELEASED' WHERE reservation_id = $1", paid.Reservation()},
		"RELEASED → CONFIRMED":   {"UPDATE cellquota.reservations SET state = 'CONFIRMED' WHERE reservation_id = $1", closed.Reservation()},
		"RELEASED → RESERVED":    {"UPDATE cellquota.reservations SET state = 'RESERVED' WHERE reservation_id = $1", closed.Reservation()},
	} {
		_, err := conn.Exec(b.ctx, c.sql, c.id)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "CQ013" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.fingerprint() != before {
		t.Error("something changed")
	}
}
