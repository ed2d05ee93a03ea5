package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// openInside is a provisioned shard, with the store's insides in reach.
func openInside(t *testing.T) (*Store, *testkit.Database) {
	t.Helper()
	db := testkit.Postgres(t).Database(t, testkit.Template{Name: "inside", Setup: func(ctx context.Context, dsn string) error {
		if err := errors.Join(migrate.CreateRoles(ctx, dsn, migrate.Passwords{}), migrate.Up(ctx, dsn)); err != nil {
			return err
		}
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, "SELECT cellquota.install('cell-1', 'blue')")
		return err
	}})
	s, err := Open(testkit.Deadline(t), Config{Cell: "cell-1", DSN: db.As(migrate.RoleApp)},
		Deps{Clock: clock.System(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.SetWriter(Writer{FenceVersion: 1, Group: "blue"})
	now := time.Now()
	_, err = s.InstallRules(t.Context(), 1, "t", &cellquotav1.CampaignRules{
		Version: 1, State: cellquotav1.CampaignState_CAMPAIGN_STATE_PUBLISHED,
		Spec: &cellquotav1.CampaignSpec{
			CampaignId: "c", OpenAt: timestamppb.New(now.Add(-time.Hour)), CloseAt: timestamppb.New(now.Add(time.Hour)),
			PurchaseScope: cellquotav1.PurchaseScope_PURCHASE_SCOPE_SKU, MaxQuantityPerOrder: 1, ReservationTtl: durationpb.New(time.Hour),
			Skus: []*cellquotav1.SkuSpec{{SkuId: "s", Price: &cellquotav1.Money{Amount: "1.00", Currency: "EUR"}}},
		},
		Buckets: []*cellquotav1.DomainBuckets{{Ranges: []*cellquotav1.BucketRange{{BucketTo: ids.Buckets - 1}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, db
}

// cutAt lets the next n commits lose their answer: done says whether the server got the COMMIT.
func (s *Store) cutAt(n int, done bool) {
	s.commit = func(ctx context.Context, tx pgx.Tx) error {
		if n--; n < 0 {
			return tx.Commit(ctx)
		}
		if done {
			if err := tx.Commit(ctx); err != nil {
				return err
			}
			return fmt.Errorf("answer lost: %w", io.ErrUnexpectedEOF)
		}
		_ = tx.Conn().PgConn().Conn().Close()
		return tx.Commit(ctx)
	}
}

// TestUnknownCommitOfAnAdjustment: whether or not the commit happened, the verb answers what became
// of it, and it is applied once.
func TestUnknownCommitOfAnAdjustment(t *testing.T) {
	for _, done := range []bool{true, false} {
		s, _ := openInside(t)
		s.cutAt(1, done)
		a := Adjustment{ID: "g", Campaign: "c", SKU: "s", FenceVersion: 1, Number: 1, Kind: Grant, Units: 7, TermCount: 1, TermID: "t"}
		res, err := s.ApplyAdjustment(t.Context(), a)
		if err != nil || res.Outcome != Applied || res.Stock.Available != 7 || res.Replayed != done {
			t.Fatalf("committed %v: %+v, %v", done, res, err)
		}
		s.cutAt(unknownCommitTries, true)
		a.ID, a.Number = "g2", 2
		if _, err := s.ApplyAdjustment(t.Context(), a); !errors.Is(err, ErrUnknownCommit) {
			t.Fatalf("every answer lost: %v", err)
		}
		if SafeToRetry(err) {
			t.Error("an unknown commit is not safe in that sense")
		}
	}
}

// TestUnknownCommitOfABatch: the same batch again is the position's word: lost when it had committed,
// applied when it had not.
func TestUnknownCommitOfABatch(t *testing.T) {
	for _, done := range []bool{true, false} {
		s, db := openInside(t)
		ctx := testkit.Deadline(t)
		_, err := s.ApplyAdjustment(ctx, Adjustment{ID: "g", Campaign: "c", SKU: "s", FenceVersion: 1, Number: 1, Kind: Grant, Units: 7, TermCount: 1, TermID: "t"})
		m, err2 := s.MintBuild(ctx, "c", "s", "x", time.Second)
		from := Position{Topic: "t", TopicID: "id"}
		if err := errors.Join(err, err2, s.RaiseBuild(ctx, "c", "s", m.Build), s.StartPosition(ctx, from)); err != nil {
			t.Fatal(err)
		}
		price, _ := reservation.ParseMoney("1.00", "EUR")
		b := Batch{From: from, To: 1, Messages: []Message{{Admission: reservation.Admission{
			Reservation: ids.DeriveReservation("c", "s", "u", "r", "cell-1", m.Build), Request: "r", Campaign: "c", SKU: "s", User: "u", Quantity: 1,
			Build: m.Build, Fingerprint: "f", Price: price, AdmittedAt: time.Now(),
		}}}}
		s.cutAt(1, done)
		if _, err := s.ApplyOrders(ctx, b); !errors.Is(err, ErrUnknownCommit) {
			t.Fatalf("committed %v: %v", done, err)
		}
		_, err = s.ApplyOrders(ctx, b)
		if done != errors.Is(err, ErrPositionLost) || (!done && err != nil) {
			t.Fatalf("committed %v, again: %v", done, err)
		}
		var orders, available int
		if err := db.Conn(t).QueryRow(ctx, "SELECT (SELECT count(*) FROM cellquota.orders), available FROM cellquota.stock").Scan(&orders, &available); err != nil || orders != 1 || available != 6 {
			t.Fatalf("%d orders, %d available, %v", orders, available, err)
		}
	}
}

// TestBackendKilledAtCommit: the server ends the session between the last statement and the commit.
func TestBackendKilledAtCommit(t *testing.T) {
	s, db := openInside(t)
	admin := db.Conn(t)
	first := true
	s.commit = func(ctx context.Context, tx pgx.Tx) error {
		if first {
			first = false
			if _, err := admin.Exec(ctx, "SELECT pg_terminate_backend($1, 5000)", int(tx.Conn().PgConn().PID())); err != nil {
				t.Error(err)
			}
		}
		return tx.Commit(ctx)
	}
	res, err := s.ApplyAdjustment(t.Context(), Adjustment{ID: "g", Campaign: "c", SKU: "s", FenceVersion: 1, Number: 1, Kind: Grant, Units: 7, TermCount: 1, TermID: "t"})
	if err != nil || res.Stock.Available != 7 || res.Replayed {
		t.Fatalf("%+v, %v", res, err)
	}
}

// TestStandbyWarningIsUnknown: a commit that ended with the warning about its standby.
func TestStandbyWarningIsUnknown(t *testing.T) {
	s, _ := openInside(t)
	s.commit = func(ctx context.Context, tx pgx.Tx) error {
		err := tx.Commit(ctx)
		noteUnsynced(tx.Conn().PgConn(), &pgconn.Notice{Severity: "WARNUNG", Message: "übersetzt", Routine: "SyncRepWaitForLSN"})
		return err
	}
	if err := s.Heartbeat(t.Context()); !errors.Is(err, ErrUnknownCommit) {
		t.Fatal(err)
	}
	s.commit = func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }
	if err := s.Heartbeat(t.Context()); err != nil {
		t.Fatalf("the next transaction inherits the mark: %v", err)
	}
}

// TestContentionIsRetried is K67: deadlocks, serialisation failures and lock time-outs are tried again a
// bounded number of times; other errors are not.
func TestContentionIsRetried(t *testing.T) {
	s, _ := openInside(t)
	for code, want := range map[string]int{"40001": maxAttempts, "40P01": maxAttempts, "55P03": maxAttempts, "23505": 1, "22003": 1, "42703": 1, "CQ001": 1} {
		tries := 0
		s.SetWriter(Writer{FenceVersion: 1, Group: "blue"})
		err := s.inTx(t.Context(), "test", needSettle, func(ctx context.Context, tx tx) error {
			tries++
			_, err := tx.Exec(ctx, fmt.Sprintf("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '%s'; END $$", code))
			return err
		})
		if err == nil || tries != want {
			t.Errorf("%s: %d tries, %v", code, tries, err)
		}
	}
}

func TestTranslate(t *testing.T) {
	pg := func(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		in, want error
	}{
		{pg("CQ001"), ErrFenced},
		{pg("CQ002"), ErrState},
		{pg("CQ003"), ErrFenced},
		{pg("CQ004"), ErrNoFence},
		{pg("CQ005"), ErrTermLower},
		{pg("23505"), ErrBadData},
		{pg("22021"), ErrBadData},
		{pg("40P01"), ErrUnavailable},
		{pg("57P01"), ErrUnavailable},
		{pg("53300"), ErrUnavailable},
		{io.ErrUnexpectedEOF, ErrUnavailable},
		{&net.OpError{Err: errors.New("refused")}, ErrUnavailable},
		{context.DeadlineExceeded, ErrUnavailable},
		{ErrConflict, ErrConflict},
		{context.Canceled, context.Canceled},
	} {
		if got := translate(c.in); !errors.Is(got, c.want) {
			t.Errorf("%v became %v, want %v", c.in, got, c.want)
		}
	}
	if err := translate(pg("42703")); isOurs(err) {
		t.Errorf("a bug of ours was made a fault: %v", err)
	}
	for _, e := range []error{ErrFenced, ErrUnknownCommit, ErrBadData, ErrNoWriter, nil} {
		if SafeToRetry(e) {
			t.Errorf("%v is safe to retry", e)
		}
	}
	if !SafeToRetry(translate(pg("57P01"))) {
		t.Error("a restart of the server is not safe to retry")
	}
}

// TestUnknownCommitOfAReview: whether or not the commit happened, the operation's id finds the one ending.
func TestUnknownCommitOfAReview(t *testing.T) {
	for _, done := range []bool{true, false} {
		s, db := openInside(t)
		ctx := testkit.Deadline(t)
		admin := db.Conn(t)
		res := ids.DeriveReservation("c", "s", "u", "r", "cell-1", ids.Build{Fence: 1, Count: 1})
		if _, err := admin.Exec(ctx, `INSERT INTO cellquota.inbox VALUES ($1, $2, 'r', 'c', 's', 'u', 2, 'PARKED', '', 'f', 't', 0, 7, 1, 1, 1, now(), now())`,
			ids.EventID(res), res); err != nil {
			t.Fatal(err)
		}
		ask := ReviewAsk{Reservation: res, Operation: "op", Actor: "a", Reason: "r", Incident: "i"}
		s.cutAt(1, done)
		out, err := s.ReturnAdmission(ctx, ask)
		if err != nil || out.Units != 2 || out.Repeat != done {
			t.Fatalf("committed %v: %+v, %v", done, out, err)
		}
		var effects int
		if err := admin.QueryRow(ctx, "SELECT count(*) FROM cellquota.outbox WHERE event_type = 'return'").Scan(&effects); err != nil || effects != 1 {
			t.Errorf("committed %v: %d effects, %v", done, effects, err)
		}
	}
}

// TestUnknownCommitOfDirectOrders: a customer whose order's commit lost its answer is told of the order, as
// ordered, whether or not it had happened, and there is one; while every answer is lost he is told to ask
// again, and then finds it.
func TestUnknownCommitOfDirectOrders(t *testing.T) {
	for _, done := range []bool{true, false} {
		s, db := openInside(t)
		ctx := testkit.Deadline(t)
		admin := db.Conn(t)
		if _, err := s.ApplyAdjustment(ctx, Adjustment{ID: "g", Campaign: "c", SKU: "s", FenceVersion: 1, Number: 1, Kind: Grant, Units: 7, TermCount: 1, TermID: "t"}); err != nil {
			t.Fatal(err)
		}
		ask := func(user ids.UserID) DirectAsk {
			return DirectAsk{Campaign: "c", SKU: "s", User: user, Request: "r", Quantity: 1, PermitExpiresAt: time.Now().Add(time.Hour)}
		}
		left := func(orders, available int) {
			t.Helper()
			var n, a int
			if err := admin.QueryRow(ctx, "SELECT (SELECT count(*) FROM cellquota.orders), available FROM cellquota.stock").Scan(&n, &a); err != nil || n != orders || a != available {
				t.Errorf("committed %v: %d orders, %d available, %v; want %d and %d", done, n, a, err, orders, available)
			}
		}
		s.cutAt(1, done)
		got, err := s.ApplyDirect(ctx, []DirectAsk{ask("u"), ask("v")})
		if err != nil || got[0].Outcome != DirectOrdered || got[1].Outcome != DirectOrdered || got[0].Row.Order == "" || !got[0].Row.Found {
			t.Fatalf("committed %v: %+v, %v", done, got, err)
		}
		left(2, 5)
		if got, err = s.ApplyDirect(ctx, []DirectAsk{ask("u")}); err != nil || got[0].Outcome != DirectReplayed {
			t.Errorf("the same once more: %+v, %v", got, err)
		}
		s.cutAt(directTries, done)
		if _, err = s.ApplyDirect(ctx, []DirectAsk{ask("w")}); !errors.Is(err, ErrUnknownCommit) {
			t.Fatalf("every answer lost: %v", err)
		}
		want := map[bool]DirectOutcome{true: DirectReplayed, false: DirectOrdered}[done]
		if got, err = s.ApplyDirect(ctx, []DirectAsk{ask("w")}); err != nil || got[0].Outcome != want {
			t.Errorf("committed %v, asked again: %+v, %v; want %d", done, got, err, want)
		}
		left(3, 4)
	}
}
