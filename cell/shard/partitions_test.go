package shard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // database/sql driver "pgx", which goose speaks to
	"github.com/pressly/goose/v3"
	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/cell/shard/migrations"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// parallel runs one function n times at once.
func parallel(b *bench, n int, do func(int32) error) {
	b.t.Helper()
	var g errgroup.Group
	for i := range n {
		g.Go(func() error { return do(int32(i)) })
	}
	b.must(g.Wait())
}

// buyer is a message of a user of its own, by partition and round.
func buyer(p, round int, sku ids.SKUID, build ids.Build) shard.Message {
	m := shard.Message{Admission: reservation.Admission{
		Request: "r", Campaign: campaign, SKU: sku, User: ids.UserID(fmt.Sprintf("%s-%d-%d", sku, p, round)), Quantity: 1, Build: build, Fingerprint: "fp",
		Price: price, AdmittedAt: time.Now(), PermitExpiresAt: time.Now().Add(time.Hour),
	}}
	m.Reservation = ids.DeriveReservation(m.Campaign, m.SKU, m.User, m.Request, cellID, m.Build)
	return m
}

// benchAt is a bench on a schema of an older step, as a release of that step left it.
func benchAt(t *testing.T, step int64) *bench {
	t.Helper()
	b := &bench{t: t, ctx: testkit.Deadline(t)}
	b.db = testkit.Postgres(t).Database(t, testkit.Template{Name: fmt.Sprint("shard-step-", step), Setup: func(ctx context.Context, dsn string) error {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		if _, err := db.ExecContext(ctx, "CREATE SCHEMA cellquota"); err != nil {
			return err
		}
		p, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files, goose.WithTableName("cellquota.goose_db_version"), goose.WithDisableGlobalRegistry(true))
		if err != nil {
			return err
		}
		if _, err := p.UpTo(ctx, step); err != nil {
			return err
		}
		if err := migrate.CreateRoles(ctx, dsn, migrate.Passwords{}); err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, "SELECT cellquota.install($1, $2)", string(cellID), group)
		return err
	}})
	b.admin = b.db.Conn(t)
	b.store, b.reg = b.open(shard.Config{}, nil)
	b.store.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	return b
}

// TestMigrationUnderSale: this program sells on a schema of step 2, goes on while it is migrated, and
// afterwards; no entry is lost, changed or numbered anew, and every later campaign has a partition of its
// own, as has one that is installed in the middle. Nothing that a live cell holds stops it.
func TestMigrationUnderSale(t *testing.T) {
	b := benchAt(t, 2)
	b.sell(10_000)
	before := b.paid("before")
	entries := func() string {
		return one[string](b, `SELECT md5(string_agg(l::text, '|' ORDER BY entry_id)) FROM cellquota.v_ledger l WHERE entry_id <= 3`)
	}
	was := entries()
	var done atomic.Bool
	sold := make(chan int, 1)
	go func() {
		n := 0
		for ; !done.Load() || n < 20; n++ {
			m := b.message(fmt.Sprint("u", n))
			if _, err := b.store.ApplyOrders(b.ctx, b.batch(m)); err != nil {
				t.Errorf("order %d: %v", n, err)
				break
			}
			if held, err := b.store.TryGateLock(b.ctx); err != nil || !held { // as a cell that lives says it again and again
				t.Errorf("order %d: the gates' lock is held %t, %v", n, held, err)
				break
			}
		}
		sold <- n
	}()
	testkit.Eventually(t, 10*time.Second, func() error {
		if n, err := b.store.Stocks(b.ctx); err != nil || n[0].Reserved < 5 {
			return errors.New("nothing is sold yet")
		}
		return nil
	})
	if held, err := b.store.TryReporterLock(b.ctx); err != nil || !held {
		t.Fatalf("the reporter's lock is held %t, %v", held, err)
	}
	installed := b.installInTheMiddle()
	b.must(migrate.Up(b.ctx, b.db.DSN()))
	b.must(<-installed)
	done.Store(true)
	n := <-sold
	if got := entries(); got != was {
		t.Error("entries of before the migration are others now")
	}
	if got := one[int](b, "SELECT count(*) FROM cellquota.ledger"); got != n+3 {
		t.Errorf("%d entries of %d orders, their grant, and a paid one", got, n)
	}
	if newest, rows := one[int64](b, "SELECT max(entry_id) FROM cellquota.ledger"), one[int64](b, "SELECT count(DISTINCT entry_id) FROM cellquota.ledger"); newest < rows || rows != int64(n+3) {
		t.Errorf("entry ids: %d of them, the newest is %d", rows, newest)
	}
	if r := b.step(wantRefund(before, "rf")); r.Err != nil {
		t.Errorf("refund of an order of before: %+v", r)
	}
	b.invariants()
	next := rules(phone)
	next.Spec.CampaignId = "next"
	b.install(next)
	if got := one[string](b, "SELECT string_agg(campaign_id || '=' || part, ' ' ORDER BY campaign_id) FROM cellquota.v_ledger_parts"); got != "double-eleven=before_00003 middle=middle next=next" {
		t.Errorf("partitions: %s", got)
	}
}

// installInTheMiddle installs a campaign while step 3 runs: when the ledger, which it takes first, is its.
func (b *bench) installInTheMiddle() <-chan error {
	watch, done := b.db.Conn(b.t), make(chan error, 1)
	go func() {
		held := false
		for !held && b.ctx.Err() == nil {
			if err := watch.QueryRow(b.ctx, `SELECT EXISTS (SELECT FROM pg_locks WHERE granted AND mode = 'AccessExclusiveLock' AND locktype = 'relation'
				AND relation = 'cellquota.ledger'::regclass)`).Scan(&held); err != nil {
				break // renamed by now: it runs, or is over
			}
		}
		next := rules(phone)
		next.Spec.CampaignId = "middle"
		_, err := b.store.InstallRules(b.ctx, 1, "term-1", next)
		done <- err
	}()
	return done
}

// TestAnEmptyShardIsMigrated, and a second program that was there before opens its door again.
func TestAnEmptyShardIsMigrated(t *testing.T) {
	b := benchAt(t, 2)
	b.must(migrate.Up(b.ctx, b.db.DSN()))
	b.sell(2)
	b.order("u")
	b.invariants()
	if got := one[string](b, "SELECT string_agg(inhrelid::regclass::text, ' ') FROM pg_inherits WHERE inhparent = 'cellquota.ledger'::regclass"); got != `cellquota_ledger."double-eleven"` {
		t.Errorf("partitions: %s", got)
	}
}

// TestPartitionsKeepTheLedgersPromises: I5's immutability, the unique key and the privileges hold on a
// partition as they do on the ledger, and a partition that retention detached is still all of these.
func TestPartitionsKeepTheLedgersPromises(t *testing.T) {
	b := newBench(t)
	b.sell(2)
	b.order("u")
	const part = `cellquota_ledger."double-eleven"`
	refused := func(conn *pgx.Conn, statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := conn.Exec(b.ctx, s); err == nil {
				t.Errorf("accepted: %s", s)
			}
		}
	}
	again := `INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed, before_available, after_available,
		before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, created_at)
		SELECT campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed, before_available, after_available,
		before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, created_at FROM cellquota.ledger`
	refused(b.admin, "UPDATE "+part+" SET actor = 'x'", "DELETE FROM "+part, "TRUNCATE "+part, again)
	app, reader := b.db.ConnAs(t, migrate.RoleApp), b.db.ConnAs(t, migrate.RoleReader)
	refused(app, "SELECT * FROM "+part, "INSERT INTO "+part+" SELECT * FROM cellquota.ledger", "UPDATE "+part+" SET actor = 'x'", "DROP TABLE "+part,
		"CREATE TABLE cellquota_ledger.x ()", "INSERT INTO cellquota.ledger_parts VALUES ('x', 'x', now())", again)
	refused(reader, "SELECT * FROM "+part)
	b.exec(b.admin, "ALTER TABLE cellquota.ledger DETACH PARTITION "+part)
	refused(b.admin, "UPDATE "+part+" SET actor = 'x'", "DELETE FROM "+part, "TRUNCATE "+part)
	refused(app, "SELECT * FROM "+part)
	if n := one[int](b, "SELECT count(*) FROM "+part); n != 2 {
		t.Errorf("%d entries in the detached partition", n)
	}
}

// TestAPartitionWaitsForNobodysSale: rules of a new campaign are installed while transactions that
// wrote another campaign's entries are open, and while a reader is in the middle of the ledger.
func TestAPartitionWaitsForNobodysSale(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	writer, reader := b.rawWriter(), b.db.Conn(t)
	b.exec(writer, takeOne)
	b.exec(reader, "BEGIN")
	b.exec(reader, "SELECT count(*) FROM cellquota.v_ledger")
	parallel(b, 3, func(i int32) error { // by three processes at once
		next := rules(phone)
		next.Spec.CampaignId = "next"
		_, err := b.store.InstallRules(b.ctx, 1, "term-1", next)
		return err
	})
	b.exec(writer, "COMMIT")
	if n := one[int](b, "SELECT count(*) FROM cellquota.v_ledger_parts"); n != 2 {
		t.Errorf("%d partitions", n)
	}
}
