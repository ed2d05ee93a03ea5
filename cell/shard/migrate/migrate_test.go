package migrate_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/cell/shard/migrations"
	"github.com/cellquota/cellquota/internal/testkit"
)

func empty(t *testing.T) *testkit.Database {
	return testkit.Postgres(t).Database(t, testkit.Template{Name: "empty"})
}

// TestUpAndRolesInEitherOrder: privileges are complete after both, whichever came first, and after
// repeats by several hosts at once.
func TestUpAndRolesInEitherOrder(t *testing.T) {
	ctx := testkit.Deadline(t)
	up := func(dsn string) error { return migrate.Up(ctx, dsn) }
	roles := func(dsn string) error {
		return migrate.CreateRoles(ctx, dsn, migrate.Passwords{App: "a'b\\c", Fencer: "f", Reader: "r"})
	}
	for name, steps := range map[string][]func(string) error{"up first": {up, roles}, "roles first": {roles, up}} {
		t.Run(name, func(t *testing.T) {
			db := empty(t)
			for _, step := range steps {
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						if err := step(db.DSN()); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			}
			for role, query := range map[string]string{
				migrate.RoleApp:    "SELECT count(*) FROM cellquota.stock",
				migrate.RoleFencer: "SELECT cellquota.install('cell-1', 'blue')",
				migrate.RoleReader: "SELECT count(*) FROM cellquota.v_stock",
			} {
				if _, err := db.ConnAs(t, role).Exec(ctx, query); err != nil {
					t.Errorf("%s: %v", role, err)
				}
			}
			if _, err := db.ConnAs(t, migrate.RoleReader).Exec(ctx, "SELECT * FROM cellquota.stock"); err == nil {
				t.Error("the reader reads tables")
			}
		})
	}
}

// TestEveryViewOfTheContract can be read by the reader.
func TestEveryViewOfTheContract(t *testing.T) {
	ctx := testkit.Deadline(t)
	db := empty(t)
	if err := errors.Join(migrate.Up(ctx, db.DSN()), migrate.CreateRoles(ctx, db.DSN(), migrate.Passwords{})); err != nil {
		t.Fatal(err)
	}
	reader := db.ConnAs(t, migrate.RoleReader)
	for view, columns := range map[string]string{
		"v_stock":        "campaign_id, sku_id, granted, available, reserved, confirmed, released, version, updated_at",
		"v_reservations": "reservation_id, request_id, campaign_id, sku_id, user_id, quantity, state, reason, fence_version, expires_at, created_at",
		"v_orders":       "order_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, amount, currency, state, version, created_at, paid_at, closed_at",
		"v_payments":     "payment_id, order_id, amount, currency, state, refund_id, created_at, updated_at",
		"v_ledger":       "entry_id, campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed, before_available, after_available, before_reserved, after_reserved, before_confirmed, after_confirmed, source, actor, reverses, created_at",
		"v_adjustments":  "adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, outcome, applied_at",
		"v_buyers":       "campaign_id, scope_key, user_id, origin, reservation_id, created_at",
		"v_inbox":        "event_id, reservation_id, request_id, campaign_id, sku_id, user_id, quantity, outcome, reason, topic, partition, kafka_offset, fence_version, build_id, received_at",
		"v_positions":    "topic, topic_id, partition, next_offset, leader_epoch, updated_at",
		"v_outbox":       "outbox_id, aggregate, event_type, state, attempts, created_at, published_at",
		"v_parked":       "parked_id, topic, partition, kafka_offset, error_class, value, parked_at",
		"v_tokens":       "token_id, campaign_id, sku_id, state, reservation_id, order_id",
		"v_fence":        "cell_id, fence_version, messages_from, state, instance_group, term, fenced_at, reason",
		"v_buckets":      "campaign_id, domain, bucket_from, bucket_to, state, moved_version",
		"v_findings":     "finding_id, kind, campaign_id, sku_id, request_id, event_id, reservation_id, order_id, units, age_seconds, state, action",
		// Beyond the contract, for the control plane.
		"v_bucket_closings": "campaign_id, domain, bucket_from, bucket_to, route_version, ranges, positions, fence_version, closed_at",
		"v_bucket_imports":  "campaign_id, domain, bucket_from, bucket_to, route_version, ranges, buyers, requests, complete, started_at, opened_at",
		"v_refunds":         "refund_id, order_id, payment_id, amount, currency, part, cause, actor, reason, state, restocked, asks, answer, next_ask_at, requested_at, refunded_at",
		"v_cell_switch":     "paused, version, reason, updated_at",
	} {
		if _, err := reader.Exec(ctx, "SELECT "+columns+" FROM cellquota."+view); err != nil {
			t.Errorf("%s: %v", view, err)
		}
	}
}

// TestTheSwitchGrowsOnly: the cell's role keeps the newest word and cannot take it back.
func TestTheSwitchGrowsOnly(t *testing.T) {
	ctx := testkit.Deadline(t)
	db := empty(t)
	if err := errors.Join(migrate.Up(ctx, db.DSN()), migrate.CreateRoles(ctx, db.DSN(), migrate.Passwords{})); err != nil {
		t.Fatal(err)
	}
	app := db.ConnAs(t, migrate.RoleApp)
	for _, c := range []struct {
		paused  bool
		version int64
		newer   bool
	}{{true, 3, true}, {false, 3, false}, {false, 2, false}, {false, 4, true}} {
		var newer bool
		if err := app.QueryRow(ctx, "SELECT cellquota.set_cell_switch($1, $2, 'drill')", c.paused, c.version).Scan(&newer); err != nil || newer != c.newer {
			t.Errorf("%+v: %v, %v", c, newer, err)
		}
	}
	var paused bool
	var version int64
	if err := app.QueryRow(ctx, "SELECT paused, version FROM cellquota.cell_switch").Scan(&paused, &version); err != nil || paused || version != 4 {
		t.Errorf("paused %v at %d, %v", paused, version, err)
	}
	for _, statement := range []string{"UPDATE cellquota.cell_switch SET version = 1", "DELETE FROM cellquota.cell_switch", "INSERT INTO cellquota.cell_switch DEFAULT VALUES"} {
		if _, err := app.Exec(ctx, statement); err == nil {
			t.Errorf("the cell's role may %s", statement)
		}
	}
}

// TestCheck: one step newer or older is tolerated, anything else is named.
func TestCheck(t *testing.T) {
	ctx := testkit.Deadline(t)
	db := empty(t)
	if r, err := migrate.Check(ctx, db.DSN()); !errors.Is(err, migrate.ErrOutOfReach) || len(r.Pending) == 0 {
		t.Errorf("empty database: %+v, %v", r, err)
	}
	if err := migrate.Up(ctx, db.DSN()); err != nil {
		t.Fatal(err)
	}
	own, err := migrations.Latest()
	if err != nil {
		t.Fatal(err)
	}
	conn := db.Conn(t)
	for newer, ok := range map[int64]bool{own: true, own + 1: true, own + 2: false} {
		if newer != own {
			if _, err := conn.Exec(ctx, "INSERT INTO cellquota.goose_db_version (version_id, is_applied) VALUES ($1, true)", newer); err != nil {
				t.Fatal(err)
			}
		}
		_, err := migrate.Check(ctx, db.DSN())
		if (err == nil) != ok {
			t.Errorf("schema at %d, program at %d: %v", newer, own, err)
		}
		if _, err := conn.Exec(ctx, "DELETE FROM cellquota.goose_db_version WHERE version_id > $1", own); err != nil {
			t.Fatal(err)
		}
	}
	if migrations.Tolerated(3, 1) || !migrations.Tolerated(3, 2) || migrations.Tolerated(1, 0) {
		t.Error("tolerance is one step, and never an empty schema")
	}
	if !migrations.Tolerated(4, 2) || migrations.Tolerated(4, 1) {
		t.Error("a rolling upgrade begins on the last release's schema, which is at step 2")
	}
	if _, err := migrate.Check(context.Background(), "postgres://nobody@127.0.0.1:1/x?connect_timeout=1"); err == nil {
		t.Error("an unreachable shard was checked")
	}
}

// TestPasswords: a password with quotes logs in literally (the server of the tests trusts everybody,
// so only the stored secret's presence is looked at).
func TestPasswords(t *testing.T) {
	ctx := testkit.Deadline(t)
	db := empty(t)
	if err := migrate.CreateRoles(ctx, db.DSN(), migrate.Passwords{Reader: `x'; DROP ROLE cellquota_app; --`}); err != nil {
		t.Fatal(err)
	}
	var set bool
	err := db.Conn(t).QueryRow(ctx, "SELECT rolpassword LIKE 'SCRAM-SHA-256%' FROM pg_authid WHERE rolname = 'cellquota_reader'").Scan(&set)
	if err != nil || !set {
		t.Errorf("password set %v, %v", set, err)
	}
	var there int
	if err := db.Conn(t).QueryRow(ctx, "SELECT count(*) FROM pg_roles WHERE rolname = 'cellquota_app'").Scan(&there); err != nil || there != 1 {
		t.Errorf("%d roles, %v", there, err)
	}
}

// TestNobodyButTheFencerMovesBuckets: the cell's role installs what a publish deals, and reads the rest.
func TestNobodyButTheFencerMovesBuckets(t *testing.T) {
	ctx := testkit.Deadline(t)
	db := empty(t)
	if err := errors.Join(migrate.Up(ctx, db.DSN()), migrate.CreateRoles(ctx, db.DSN(), migrate.Passwords{})); err != nil {
		t.Fatal(err)
	}
	app := db.ConnAs(t, migrate.RoleApp)
	for _, statement := range []string{
		"UPDATE cellquota.buckets SET state = 'OPEN'", "DELETE FROM cellquota.buckets", "DELETE FROM cellquota.carried_requests",
		"UPDATE cellquota.bucket_imports SET buyers_done = true", "INSERT INTO cellquota.bucket_closings SELECT * FROM cellquota.bucket_closings",
		"SELECT cellquota.close_buckets('c', 'c', '', 0, 1, 2, 'h', 1)", "SELECT cellquota.open_buckets('c', 'c', '', 0, 1, 2)",
		"SELECT cellquota.cut_buckets('c', '', 0, 1)",
	} {
		if _, err := app.Exec(ctx, statement); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s as the cell's role: %v", statement, err)
		}
	}
	fencer := db.ConnAs(t, migrate.RoleFencer)
	if _, err := fencer.Exec(ctx, "UPDATE cellquota.buckets SET state = 'OPEN'"); err == nil {
		t.Error("the fencer's role writes without its functions")
	}
}
