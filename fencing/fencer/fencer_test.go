package fencer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/testkit"
)

const cell, group = "cell-1", "blue"

var sku = fencing.SKU{Campaign: "c", SKU: "s"}

// shard is a migrated database with a fence row of cell-1 and 10 units, 6 of them available.
type shard struct {
	t  *testing.T
	db *testkit.Database
	*fencer.Fencer
}

func newShard(t *testing.T) *shard {
	t.Helper()
	db := testkit.Postgres(t).Database(t, testkit.Template{Name: "shard", Setup: func(ctx context.Context, dsn string) error {
		if err := migrate.CreateRoles(ctx, dsn, migrate.Passwords{}); err != nil {
			return err
		}
		return migrate.Up(ctx, dsn)
	}})
	s := &shard{t: t, db: db}
	s.Fencer = s.fencer(time.Second)
	if v, err := s.Install(t.Context(), cell, group); err != nil || v != 1 {
		t.Fatalf("install: version %s, %v", v, err)
	}
	s.exec("INSERT INTO cellquota.stock (campaign_id, sku_id, granted, available, reserved, confirmed, version, adjustment_version, last_number, updated_at) VALUES ('c', 's', 10, 6, 3, 1, 7, 1, 2, now())")
	s.exec("INSERT INTO cellquota.adjustments (adjustment_id, campaign_id, sku_id, fence_version, number, kind, units, outcome, applied_at) VALUES ('g1', 'c', 's', 1, 1, 'GRANT', 10, 'APPLIED', now()), ('g2', 'c', 's', 1, 2, 'GRANT', 0, 'VOIDED', now())")
	return s
}

func (s *shard) fencer(wait time.Duration) *fencer.Fencer {
	s.t.Helper()
	f, err := fencer.Open(s.t.Context(), s.db.As(migrate.RoleFencer), fencer.Options{LockWait: wait})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = f.Close(context.WithoutCancel(s.t.Context())) })
	return f
}

func (s *shard) connect(role string) *pgx.Conn { return s.db.ConnAs(s.t, role) }

func (s *shard) exec(sql string) {
	s.t.Helper()
	if _, err := s.db.Conn(s.t).Exec(s.t.Context(), sql); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// writer is a cell's transaction, stepped by hand.
type writer struct {
	t    *testing.T
	conn *pgx.Conn
}

func (s *shard) writer() *writer { return &writer{t: s.t, conn: s.connect(migrate.RoleApp)} }

func (w *writer) do(sql string) error {
	_, err := w.conn.Exec(w.t.Context(), sql)
	return err
}

func (w *writer) must(sql string) {
	w.t.Helper()
	if err := w.do(sql); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

const (
	lockShared = "SELECT pg_advisory_xact_lock_shared(cellquota.lock_key())"
	checkV1    = "SELECT cellquota.require_fence(1, 'blue', 'ACTIVE')"
	sellOne    = "UPDATE cellquota.stock SET available = available - 1, reserved = reserved + 1, version = version + 1 WHERE sku_id = 's' AND available >= 1"
)

func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// fenceAside runs Fence at version 2 and gives its outcome when it is done.
func (s *shard) fenceAside(wait time.Duration) <-chan fencing.Proof {
	f, done := s.fencer(wait), make(chan fencing.Proof, 1)
	go func() {
		defer close(done)
		proof, err := f.Fence(s.t.Context(), cell, 2, "dead")
		if err != nil {
			s.t.Errorf("fence: %v", err)
			return
		}
		done <- proof
	}()
	return done
}

// fencerWaits returns when a backend of the fencer waits for the advisory lock.
func (s *shard) fencerWaits() {
	s.t.Helper()
	conn := s.connect("postgres")
	testkit.Eventually(s.t, 10*time.Second, func() error {
		var n int
		if err := conn.QueryRow(s.t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return errors.New("the fencer does not wait yet")
		}
		return nil
	})
}

func facts(t *testing.T, proof fencing.Proof) fencing.SKUFacts {
	t.Helper()
	f, ok := proof.Facts(sku)
	if !ok {
		t.Fatalf("proof %+v has no row of %s", proof, sku)
	}
	return f
}

func TestFenceSealsWhatIsAvailableAndNamesWhatWasApplied(t *testing.T) {
	s := newShard(t)
	proof, err := s.Fence(t.Context(), cell, 2, "dead")
	if err != nil {
		t.Fatal(err)
	}
	got := facts(t, proof)
	if got.Sealed != 6 || got.Granted != 4 || got.Reserved != 3 || got.Confirmed != 1 || got.SealID == "" {
		t.Fatalf("facts = %+v", got)
	}
	if len(proof.Applied) != 2 || proof.Applied[0].ID != "g1" || proof.Applied[1].Outcome != fencing.OutcomeVoided {
		t.Fatalf("applied = %+v", proof.Applied)
	}
	again, err := s.Fence(t.Context(), cell, 2, "dead")
	if err != nil || facts(t, again) != got {
		t.Fatalf("second call: %+v, %v; want the same proof", again, err)
	}
	if _, err := s.Fence(t.Context(), cell, 1, "late"); !errors.Is(err, fencer.ErrVersionRefused) {
		t.Fatalf("lower version: %v, want ErrVersionRefused", err)
	}
	if _, err := s.Fence(t.Context(), "cell-2", 3, "wrong"); !errors.Is(err, fencer.ErrOtherCell) {
		t.Fatalf("other cell: %v, want ErrOtherCell", err)
	}
}

// The writer was first: the fencer waits for it and sees its unit as reserved, not as sealed.
func TestFenceWaitsForAWriterAndSeesItsRows(t *testing.T) {
	s := newShard(t)
	w := s.writer()
	w.must("BEGIN")
	w.must(lockShared)
	w.must(checkV1)
	w.must(sellOne)
	done := s.fenceAside(time.Minute)
	s.fencerWaits()
	w.must("COMMIT")
	got := facts(t, <-done)
	if got.Sealed != 5 || got.Reserved != 4 {
		t.Fatalf("facts = %+v: want the unit that committed while the fencer waited as reserved", got)
	}
}

// The writer has the lock and was paused before it read the fence: it may finish under version 1,
// because the fencer is still waiting; the proof holds its rows.
func TestWriterPausedBetweenLockAndFenceIsWaitedFor(t *testing.T) {
	s := newShard(t)
	w := s.writer()
	w.must("BEGIN")
	w.must(lockShared)
	done := s.fenceAside(time.Minute)
	s.fencerWaits()
	w.must(checkV1)
	w.must(sellOne)
	w.must("COMMIT")
	if got := facts(t, <-done); got.Sealed != 5 || got.Reserved != 4 {
		t.Fatalf("facts = %+v", got)
	}
}

// The writer began before the fence and asks for the lock behind it: it reads the new row (K01).
func TestWriterThatWaitedBehindTheFenceIsRefused(t *testing.T) {
	s := newShard(t)
	first, late := s.writer(), s.writer()
	first.must("BEGIN")
	first.must(lockShared)
	first.must(checkV1)
	late.must("BEGIN")
	done := s.fenceAside(time.Minute)
	s.fencerWaits()
	locked := make(chan error, 1)
	go func() { locked <- late.do(lockShared) }()
	first.must("COMMIT")
	<-done
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	if err := late.do(checkV1); code(err) != "CQ001" {
		t.Fatalf("late writer: %v, want CQ001", err)
	}
}

// A writer that hangs with the lock is ended; nothing of it is committed.
func TestStuckWriterIsEnded(t *testing.T) {
	s := newShard(t)
	w := s.writer()
	w.must("BEGIN")
	w.must(lockShared)
	w.must(checkV1)
	w.must(sellOne)
	got := facts(t, <-s.fenceAside(50*time.Millisecond))
	if got.Sealed != 6 || got.Reserved != 3 {
		t.Fatalf("facts = %+v: want none of the stuck writer's rows", got)
	}
	if err := w.do("COMMIT"); err == nil {
		t.Fatal("the stuck writer committed after the fence")
	}
}

func TestFencedShardRefusesUntilRestoredAndActivated(t *testing.T) {
	s := newShard(t)
	try := func(version, need string) string {
		return code(s.writer().do("SELECT cellquota.require_fence(" + version + ", 'blue', '" + need + "')"))
	}
	if _, err := s.Fence(t.Context(), cell, 2, "dead"); err != nil {
		t.Fatal(err)
	}
	if got := try("2", "SETTLE"); got != "CQ002" {
		t.Fatalf("FENCED, need SETTLE: %q, want CQ002", got)
	}
	if err := s.Activate(t.Context(), cell, 2, "too early"); !errors.Is(err, fencer.ErrStateRefused) {
		t.Fatalf("activate before restore: %v", err)
	}
	for range 2 {
		if err := s.Restore(t.Context(), cell, 3, group, "back"); err != nil {
			t.Fatal(err)
		}
	}
	for need, want := range map[string]string{"SETTLE": "", "ACTIVE": "CQ002"} {
		if got := try("3", need); got != want {
			t.Fatalf("SETTLE_ONLY, need %s: %q, want %q", need, got, want)
		}
	}
	for range 2 {
		if err := s.Activate(t.Context(), cell, 3, "back"); err != nil {
			t.Fatal(err)
		}
	}
	if got := try("3", "ACTIVE"); got != "" {
		t.Fatalf("ACTIVE: %q", got)
	}
	row, err := s.Row(t.Context())
	if err != nil || row.Version != 3 || row.MessagesFrom != 3 || row.State != "ACTIVE" {
		t.Fatalf("row = %+v, %v", row, err)
	}
	if err := s.Restore(t.Context(), cell, 4, group, "not fenced"); !errors.Is(err, fencer.ErrStateRefused) {
		t.Fatalf("restore of an ACTIVE shard: %v, want ErrStateRefused", err)
	}
}

func TestTermOnlyGrows(t *testing.T) {
	s := newShard(t)
	for _, tt := range []struct {
		term fencing.Term
		want error
	}{{fencing.Term{Count: 2, ID: "b"}, nil}, {fencing.Term{Count: 2, ID: "b"}, nil}, {fencing.Term{Count: 1, ID: "a"}, fencer.ErrTermRefused}, {fencing.Term{Count: 2, ID: "x"}, fencer.ErrTermRefused}, {fencing.Term{Count: 3, ID: "c"}, nil}} {
		if err := s.RaiseTerm(t.Context(), tt.term); !errors.Is(err, tt.want) {
			t.Fatalf("raise to %s: %v, want %v", tt.term, err, tt.want)
		}
	}
}

func TestTheFencerWritesNothingItself(t *testing.T) {
	s := newShard(t)
	conn := s.connect(migrate.RoleFencer)
	for _, sql := range []string{"UPDATE cellquota.fence SET state = 'ACTIVE'", "UPDATE cellquota.stock SET available = 0", "INSERT INTO cellquota.term VALUES (true, 9, 'x')"} {
		if _, err := conn.Exec(t.Context(), sql); code(err) != "42501" {
			t.Errorf("%s: %v, want insufficient privilege", sql, err)
		}
	}
}

func TestUnreachableShardIsNamed(t *testing.T) {
	_, err := fencer.Open(t.Context(), "postgres://nobody@127.0.0.1:1/none?sslmode=disable", fencer.Options{ConnectTimeout: time.Second})
	if !errors.Is(err, fencer.ErrUnreachable) {
		t.Fatalf("error = %v, want ErrUnreachable", err)
	}
}
