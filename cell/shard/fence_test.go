package shard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/testkit"
)

// proof is what fence_cell answers, as far as tests read it.
type proof struct {
	FenceVersion int64 `json:"fence_version"`
	Sealed       []struct {
		SKU   string `json:"sku_id"`
		Units int32  `json:"units"`
	} `json:"sealed"`
	Stocks []struct {
		Granted, Available, Reserved, Confirmed int32
	} `json:"stocks"`
	Adjustments []struct {
		ID      string `json:"adjustment_id"`
		Outcome string
	} `json:"adjustments"`
	Positions []struct {
		Next int64 `json:"next_offset"`
	} `json:"positions"`
}

// fence fences under the fencer's own role.
func (b *bench) fence(conn *pgx.Conn, version int64, wait time.Duration) (proof, error) {
	var raw []byte
	err := conn.QueryRow(b.ctx, "SELECT cellquota.fence_cell($1, $2, 'test', $3)", string(cellID), version, int(wait.Milliseconds())).Scan(&raw)
	if err != nil {
		return proof{}, err
	}
	var p proof
	return p, json.Unmarshal(raw, &p)
}

func (b *bench) fencer() *pgx.Conn { return b.db.ConnAs(b.t, migrate.RoleFencer) }

// waitsForLock waits until a backend of role waits for an advisory lock.
func (b *bench) waitsForLock(role string) {
	b.t.Helper()
	testkit.Eventually(b.t, 10*time.Second, func() error {
		if one[int](b, "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND NOT l.granted AND a.usename = $1", role) == 0 {
			return errors.New("nobody waits")
		}
		return nil
	})
}

// rawWriter is a writer whose steps the test takes one by one, with the package's own statements.
func (b *bench) rawWriter() *pgx.Conn {
	conn := b.db.ConnAs(b.t, migrate.RoleApp)
	_, err := conn.Exec(b.ctx, "BEGIN ISOLATION LEVEL READ COMMITTED")
	b.must(err)
	return conn
}

const takeOne = `WITH s AS (UPDATE cellquota.stock SET available = available - 1, reserved = reserved + 1, version = version + 1 RETURNING *)
	INSERT INTO cellquota.ledger (campaign_id, sku_id, action, business_no, idempotency_key, delta_available, delta_reserved, delta_confirmed,
	before_available, after_available, before_reserved, after_reserved, before_confirmed, after_confirmed, stock_version, fence_version, source, actor, created_at)
	SELECT campaign_id, sku_id, 'RESERVE', 'raw', 'RESERVE:raw:1', -1, 1, 0, available + 1, available, reserved - 1, reserved, confirmed, confirmed, version, 1, 't', 't', cellquota.now() FROM s`

// TestFencerWaitsForTheWriterInFlight: a writer that has the lock, before or after it has read the
// fence, commits; the fencer waits for it and the seal has its rows (K01).
func TestFencerWaitsForTheWriterInFlight(t *testing.T) {
	for _, point := range []string{"after the lock, before the fence", "after the fence, before the commit"} {
		t.Run(point, func(t *testing.T) {
			b := newBench(t)
			b.sell(10)
			w := b.rawWriter()
			exec := func(sql string, args ...any) { _, err := w.Exec(b.ctx, sql, args...); b.must(err) }
			exec(shard.Queries()["tx_lock_shared"])
			if point == "after the fence, before the commit" {
				exec(shard.Queries()["tx_require_fence"], 1, group, "ACTIVE")
				exec(takeOne)
			}
			got := make(chan proof, 1)
			fencer := b.fencer()
			go func() {
				p, err := b.fence(fencer, 2, 10*time.Second)
				if err != nil {
					t.Error(err)
				}
				got <- p
			}()
			b.waitsForLock(migrate.RoleFencer)
			if point != "after the fence, before the commit" {
				exec(shard.Queries()["tx_require_fence"], 1, group, "ACTIVE")
				exec(takeOne)
			}
			exec("COMMIT")
			p := <-got
			if len(p.Sealed) != 1 || p.Sealed[0].Units != 9 || p.Stocks[0].Reserved != 1 || p.Stocks[0].Granted != 1 {
				t.Fatalf("the seal missed the writer: %+v", p)
			}
			// And from here on nothing of version 1 is written.
			if _, err := b.store.ApplyOrders(b.ctx, b.batch(b.message("late"))); !errors.Is(err, shard.ErrFenced) {
				t.Fatalf("late writer: %v", err)
			}
		})
	}
}

// TestWriterBehindTheFencer: a writer that waited for the lock behind a fencer reads the new row and
// is refused; its process has lost its writer, once, and says so.
func TestWriterBehindTheFencer(t *testing.T) {
	b := newBench(t)
	b.sell(10)
	var lost atomic.Int64
	store, _ := b.open(shard.Config{}, func(w shard.Writer) { lost.Add(w.FenceVersion) })
	store.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	batch := b.batch(b.message("u"))
	fencer := b.fencer()
	_, err := fencer.Exec(b.ctx, "BEGIN")
	b.must(err)
	if _, err := b.fence(fencer, 2, time.Second); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { _, err := store.ApplyOrders(b.ctx, batch); result <- err }()
	b.waitsForLock(migrate.RoleApp)
	_, err = fencer.Exec(b.ctx, "COMMIT")
	b.must(err)
	if err := <-result; !errors.Is(err, shard.ErrFenced) {
		t.Fatalf("writer behind the fencer: %v", err)
	}
	if _, ok := store.Writer(); ok || lost.Load() != 1 {
		t.Errorf("writer kept, or told %d times", lost.Load())
	}
	if err := store.Heartbeat(b.ctx); !errors.Is(err, shard.ErrNoWriter) {
		t.Errorf("a process that was refused still writes: %v", err)
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.orders"); n != 0 {
		t.Errorf("%d orders", n)
	}
}

// TestStuckWriterIsEnded: a writer that never ends does not hold the fence up: its backend is ended,
// and what it had not committed is gone.
func TestStuckWriterIsEnded(t *testing.T) {
	b := newBench(t)
	b.sell(10)
	w := b.rawWriter()
	for _, q := range []string{shard.Queries()["tx_lock_shared"], takeOne} {
		_, err := w.Exec(b.ctx, q)
		b.must(err)
	}
	p, err := b.fence(b.fencer(), 2, 50*time.Millisecond)
	b.must(err)
	if p.Sealed[0].Units != 10 {
		t.Errorf("sealed %+v", p.Sealed)
	}
	if _, err := w.Exec(b.ctx, "COMMIT"); err == nil {
		t.Error("the stuck writer could commit")
	}
	b.invariants()
}

// TestFenceLifecycle: fence again answers the same proof; grants of the old version come too late;
// settle-only takes what can only be rejected and what settles; active sells again by new grants (K22).
func TestFenceLifecycle(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	order := b.order("before")
	late := b.numbered(phone, shard.Grant, 7)
	first, err := b.fence(b.fencer(), 2, time.Second)
	b.must(err)
	again, err := b.fence(b.fencer(), 2, time.Second)
	b.must(err)
	if fmt.Sprint(first) != fmt.Sprint(again) || first.Sealed[0].Units != 4 || first.Positions[0].Next != b.next || len(first.Adjustments) != 1 {
		t.Fatalf("proofs differ or are wrong:\n%+v\n%+v", first, again)
	}
	if _, err := b.fence(b.fencer(), 1, time.Second); err == nil {
		t.Error("a lower version was fenced")
	}
	if _, err := b.store.ApplyAdjustment(b.ctx, late); !errors.Is(err, shard.ErrFenced) {
		t.Errorf("late grant: %v", err)
	}
	b.store.SetWriter(shard.Writer{FenceVersion: 2, Group: group}) // a liar: FENCED refuses everything
	if err := b.store.Heartbeat(b.ctx); !errors.Is(err, shard.ErrState) {
		t.Errorf("writing into a FENCED shard: %v", err)
	}
	b.exec(b.fencer(), "SELECT cellquota.restore_cell($1, 3, 'green', 'test', 1000)", string(cellID))
	b.exec(b.fencer(), "SELECT cellquota.restore_cell($1, 3, 'green', 'test', 1000)", string(cellID))
	b.store.SetWriter(shard.Writer{FenceVersion: 3, Group: group})
	if err := b.store.Heartbeat(b.ctx); !errors.Is(err, shard.ErrFenced) {
		t.Errorf("the old group still writes: %v", err)
	}
	b.store.SetWriter(shard.Writer{FenceVersion: 3, Group: "green"})

	// Settle only: an old message is rejected, a new one waits, a payment goes through.
	b.mintOnly(string(phone))
	res, err := b.store.ApplyOrders(b.ctx, b.batch(b.message("old", func(m *shard.Message) { m.Build.Fence, m.Build.Count = 1, 1 }), b.message("new")))
	b.must(err)
	if len(res.Decisions) != 1 || res.Decisions[0].Reason != reservation.CellFenced || res.Next != b.next-1 {
		t.Fatalf("settle only took %+v", res)
	}
	b.next--
	if _, err := b.store.ApplyOrders(b.ctx, b.batch(b.message("new"))); !errors.Is(err, shard.ErrState) {
		t.Fatalf("settle only sold: %v", err)
	}
	b.next--
	if r := b.step(shard.Step{Kind: shard.StepSucceeded, Order: order, Payment: "p"}); r.Err != nil || r.Order.State != reservation.OrderPaid {
		t.Fatalf("payment while settling: %+v", r)
	}
	if _, err := b.store.ApplyAdjustment(b.ctx, late); !errors.Is(err, shard.ErrConflict) {
		t.Errorf("a grant of an old version after the restore: %v", err)
	}
	b.exec(b.fencer(), "SELECT cellquota.activate_cell($1, 3, 'test', 1000)", string(cellID))
	b.grant(phone, 2)
	if d := b.apply(b.message("new")); d[0].Outcome != shard.Ordered {
		t.Errorf("active again: %+v", d[0])
	}
	b.invariants()
	if n := one[int](b, `SELECT count(*) FROM cellquota.ledger l JOIN cellquota.fence_history h ON h.state = 'FENCED' WHERE l.fence_version < h.fence_version AND l.created_at > h.at`); n != 0 {
		t.Errorf("I8: %d entries of a lower version after a fence", n)
	}
}

func (b *bench) exec(conn *pgx.Conn, sql string, args ...any) {
	b.t.Helper()
	_, err := conn.Exec(b.ctx, sql, args...)
	b.must(err)
}

// mintOnly mints and raises under the present fence version, where no barrier is needed.
func (b *bench) mintOnly(scope string) {
	b.t.Helper()
	b.raise(scope)
}

// TestTheCellCannotTouchTheFence: neither its rows nor the fencer's functions.
func TestTheCellCannotTouchTheFence(t *testing.T) {
	b := newBench(t)
	app := b.db.ConnAs(t, migrate.RoleApp)
	for _, sql := range []string{
		"UPDATE cellquota.fence SET state = 'ACTIVE'", "DELETE FROM cellquota.fence", "UPDATE cellquota.term SET term_count = 0",
		"DELETE FROM cellquota.fence_history", "SELECT cellquota.fence_cell('cell-1', 9, '', 10)", "SELECT cellquota.restore_cell('cell-1', 9, 'x', '', 10)",
		"SELECT cellquota.install('cell-1', 'x')", "UPDATE cellquota.ledger SET actor = 'x'", "DELETE FROM cellquota.ledger", "TRUNCATE cellquota.ledger",
		"ALTER TABLE cellquota.ledger DISABLE TRIGGER ALL",
	} {
		if _, err := app.Exec(b.ctx, sql); err == nil {
			t.Errorf("the cell's role may: %s", sql)
		}
	}
}

// TestTheLedgerIsImmutable is I5, for the owner of the table too.
func TestTheLedgerIsImmutable(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	for _, sql := range []string{"UPDATE cellquota.ledger SET actor = 'x'", "DELETE FROM cellquota.ledger", "TRUNCATE cellquota.ledger"} {
		if _, err := b.admin.Exec(b.ctx, sql); err == nil {
			t.Errorf("accepted: %s", sql)
		}
	}
}

// TestTerms: terms only rise; one count has one id; an adjustment of an old leader is refused.
func TestTerms(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	b.must(b.store.RaiseTerm(b.ctx, 5, "five"))
	b.must(b.store.RaiseTerm(b.ctx, 5, "five"))
	for _, c := range []struct {
		count int64
		id    string
	}{{4, "four"}, {5, "other"}} {
		if err := b.store.RaiseTerm(b.ctx, c.count, c.id); !errors.Is(err, shard.ErrTermLower) {
			t.Errorf("term %d/%s: %v", c.count, c.id, err)
		}
	}
	if _, err := b.store.ApplyAdjustment(b.ctx, b.numbered(phone, shard.Grant, 1)); !errors.Is(err, shard.ErrTermLower) {
		t.Errorf("adjustment of term 1: %v", err)
	}
	f, err := b.store.ReadFence(b.ctx)
	b.must(err)
	if f.TermCount != 5 || f.TermID != "five" || f.Version != 1 || f.State != shard.Active || f.Cell != cellID {
		t.Errorf("fence %+v", f)
	}
}

// TestRaiseWaitsForTheAdjustmentInFlight: facts read after a raise hold every adjustment that an older
// leader could still have applied.
func TestRaiseWaitsForTheAdjustmentInFlight(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	w := b.rawWriter()
	_, err := w.Exec(b.ctx, "SELECT cellquota.raise_term(1, 'term-1')")
	b.must(err)
	raised := make(chan error, 1)
	go func() { raised <- b.store.RaiseTerm(b.ctx, 2, "two") }()
	testkit.Eventually(t, 10*time.Second, func() error {
		if one[int](b, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%raise_term%'") == 0 {
			return errors.New("the raise does not wait")
		}
		return nil
	})
	_, err = w.Exec(b.ctx, "COMMIT")
	b.must(err)
	b.must(<-raised)
}

// TestReporterLock: one process at a time; it passes on when its holder is gone.
func TestReporterLock(t *testing.T) {
	b := newBench(t)
	other, _ := b.open(shard.Config{}, nil)
	held := func(s *shard.Store) bool { h, err := s.TryReporterLock(b.ctx); b.must(err); return h }
	if first, again := held(b.store), held(b.store); !first || !again || held(other) {
		t.Fatal("the lock is not one process's")
	}
	_, err := b.admin.Exec(b.ctx, "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'")
	b.must(err)
	if !held(other) || held(b.store) {
		t.Fatal("the lock did not pass on")
	}
}

// TestWhoeverWaitsForALockStaysConnected: a process that does not lead asks again and again, on one connection.
func TestWhoeverWaitsForALockStaysConnected(t *testing.T) {
	b := newBench(t)
	other, _ := b.open(shard.Config{}, nil)
	try := func(s *shard.Store) bool { h, err := s.TryGateLock(b.ctx); b.must(err); return h }
	if !try(b.store) || try(other) {
		t.Fatal("the lock is not one process's")
	}
	const asking = "SELECT coalesce(min(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_try_advisory_lock%' AND pid <> pg_backend_pid() AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
	was := one[int](b, asking)
	if try(other) || was == 0 || one[int](b, asking) != was {
		t.Fatalf("backend %d, then %d", was, one[int](b, asking))
	}
	b.store.GiveUpGateLock()
	testkit.Eventually(t, 10*time.Second, func() error { // its session ends a moment later
		if !try(other) {
			return errors.New("the lock did not pass on")
		}
		return nil
	})
	if !try(other) || try(b.store) {
		t.Fatal("given up, it is still held")
	}
}

// TestAStoppedReporterLosesItsLock: a process that is stopped keeps its connections; the lock must not
// stay with it, or its cell would get no directives for as long as it sleeps.
func TestAStoppedReporterLosesItsLock(t *testing.T) {
	b := newBench(t)
	sleeper, _ := b.open(shard.Config{ReporterIdle: 300 * time.Millisecond}, nil)
	other, _ := b.open(shard.Config{}, nil)
	held, err := sleeper.TryReporterLock(b.ctx)
	b.must(err)
	if !held {
		t.Fatal("the lock is not free")
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if held, err := other.TryReporterLock(b.ctx); err != nil || !held {
			return fmt.Errorf("held %t, %w", held, err)
		}
		return nil
	})
	if held, err := sleeper.TryReporterLock(b.ctx); err != nil || held {
		t.Fatalf("it woke up and holds %t, %v", held, err)
	}
}

// TestIdentityAndNoFence: what a process reads before it may write.
func TestIdentityAndNoFence(t *testing.T) {
	b := newBench(t)
	id, err := b.store.Identity(b.ctx)
	b.must(err)
	if want := one[string](b, "SELECT system_identifier::text || '/1' FROM pg_control_system()"); id != want {
		t.Errorf("identity %s, want %s", id, want)
	}
	_, err = b.admin.Exec(b.ctx, "DELETE FROM cellquota.fence")
	b.must(err)
	if _, err := b.store.ReadFence(b.ctx); !errors.Is(err, shard.ErrNoFence) {
		t.Error(err)
	}
	if err := b.store.Heartbeat(b.ctx); !errors.Is(err, shard.ErrNoFence) {
		t.Error(err)
	}
}
