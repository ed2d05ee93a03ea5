package closer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/closer"
	"github.com/cellquota/cellquota/cell/payment"
	"github.com/cellquota/cellquota/cell/payment/provider"
	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

var template = testkit.Template{Name: "closer", Setup: func(ctx context.Context, dsn string) error {
	if err := errors.Join(migrate.CreateRoles(ctx, dsn, migrate.Passwords{}), migrate.Up(ctx, dsn)); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, `SELECT cellquota.install('cell-1', 'blue')`)
	return err
}}

var price, _ = reservation.ParseMoney("10.00", "EUR")

// bench is a shard whose clock the test owns, with orders of users u0, u1, … that end after a minute.
type bench struct {
	t     *testing.T
	ctx   context.Context
	admin *pgx.Conn
	db    *testkit.Database
	store *shard.Store
	order []ids.OrderID
}

func newBench(t *testing.T, orders int) *bench {
	t.Helper()
	b := &bench{t: t, ctx: testkit.Deadline(t), db: testkit.Postgres(t).Database(t, template)}
	b.admin = b.db.Conn(t)
	b.exec(`CREATE TABLE cellquota.test_clock AS SELECT clock_timestamp() AS t`)
	b.exec(`GRANT SELECT ON cellquota.test_clock TO cellquota_app`)
	b.exec(`CREATE OR REPLACE FUNCTION cellquota.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT t FROM cellquota.test_clock $$`)
	b.store = b.open()
	now := time.Now()
	_, err := b.store.InstallRules(b.ctx, 1, "t", &cellquotav1.CampaignRules{
		Version: 1, State: cellquotav1.CampaignState_CAMPAIGN_STATE_PUBLISHED,
		Spec: &cellquotav1.CampaignSpec{
			CampaignId: "c", OpenAt: timestamppb.New(now.Add(-time.Hour)), CloseAt: timestamppb.New(now.Add(time.Hour)),
			PurchaseScope: cellquotav1.PurchaseScope_PURCHASE_SCOPE_SKU, MaxQuantityPerOrder: 1, ReservationTtl: durationpb.New(time.Minute),
			Skus: []*cellquotav1.SkuSpec{{SkuId: "s", Price: &cellquotav1.Money{Amount: "10.00", Currency: "EUR"}}},
		},
		Buckets: []*cellquotav1.DomainBuckets{{Ranges: []*cellquotav1.BucketRange{{BucketTo: ids.Buckets - 1}}}},
	})
	b.must(err)
	_, err = b.store.ApplyAdjustment(b.ctx, shard.Adjustment{ID: "g", Campaign: "c", SKU: "s", FenceVersion: 1, Number: 1, Kind: shard.Grant, Units: int32(orders), TermCount: 1, TermID: "t"})
	b.must(err)
	m, err := b.store.MintBuild(b.ctx, "c", "s", "x", time.Minute)
	b.must(err)
	b.must(b.store.RaiseBuild(b.ctx, "c", "s", m.Build))
	at := shard.Position{Topic: "t", TopicID: "id"}
	b.must(b.store.StartPosition(b.ctx, at))
	batch := shard.Batch{From: at, To: int64(orders)}
	for i := range orders {
		user := ids.UserID(fmt.Sprint("u", i))
		res := ids.DeriveReservation("c", "s", user, "r", "cell-1", m.Build)
		batch.Messages = append(batch.Messages, shard.Message{Offset: int64(i), Admission: reservation.Admission{
			Reservation: res, Request: "r", Campaign: "c", SKU: "s", User: user, Quantity: 1, Build: m.Build, Fingerprint: "f", Price: price, AdmittedAt: now,
		}})
		b.order = append(b.order, res.Order())
	}
	_, err = b.store.ApplyOrders(b.ctx, batch)
	b.must(err)
	b.must(b.store.Heartbeat(b.ctx))
	return b
}

func (b *bench) open() *shard.Store {
	b.t.Helper()
	s, err := shard.Open(b.ctx, shard.Config{Cell: "cell-1", DSN: b.db.As(migrate.RoleApp)}, shard.Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler)})
	b.must(err)
	b.t.Cleanup(s.Close)
	s.SetWriter(shard.Writer{FenceVersion: 1, Group: "blue"})
	return s
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) exec(sql string) {
	b.t.Helper()
	_, err := b.admin.Exec(b.ctx, sql)
	b.must(err)
}

func (b *bench) advance(d time.Duration) {
	b.exec(fmt.Sprintf("UPDATE cellquota.test_clock SET t = t + interval '%f seconds'", d.Seconds()))
}

func (b *bench) count(query string) int {
	b.t.Helper()
	var n int
	b.must(b.admin.QueryRow(b.ctx, "SELECT count(*) FROM cellquota."+query).Scan(&n))
	return n
}

func (b *bench) loop(store closer.Store, channel provider.Provider, clk clock.Clock) (*closer.Loop, *prometheus.Registry) {
	b.t.Helper()
	reg := prometheus.NewRegistry()
	l, err := closer.New(store, channel, closer.Config{Batch: 50, Waits: shard.CloseWaits{Attempt: 10 * time.Second}}, clk, slog.New(slog.DiscardHandler), reg)
	b.must(err)
	return l, reg
}

// TestManyClosers is K77: four at once, a thousand due: a thousand releases, no more.
func TestManyClosers(t *testing.T) {
	b := newBench(t, 1000)
	b.advance(time.Minute)
	var wg sync.WaitGroup
	var regs []*prometheus.Registry
	for range 4 {
		l, reg := b.loop(b.open(), &provider.Sandbox{}, clock.System())
		regs = append(regs, reg)
		wg.Go(func() {
			for b.ctx.Err() == nil {
				if err := l.Round(b.ctx); err != nil {
					t.Error(err)
					return
				}
				var open int
				if conn, err := pgx.Connect(b.ctx, b.db.DSN()); err != nil {
					t.Error(err)
					return
				} else if err := errors.Join(conn.QueryRow(b.ctx, "SELECT count(*) FROM cellquota.orders WHERE state = 'PENDING_PAYMENT'").Scan(&open), conn.Close(b.ctx)); err != nil {
					t.Error(err)
					return
				}
				if open == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	if n := b.count("ledger WHERE action = 'RELEASE'"); n != 1000 {
		t.Errorf("%d releases", n)
	}
	if n := b.count("stock WHERE available = 1000 AND released = 1000 AND reserved = 0"); n != 1 {
		t.Error("the stock row does not have its units back")
	}
	observed := uint64(0)
	for _, reg := range regs {
		families, err := reg.Gather()
		b.must(err)
		for _, f := range families {
			if f.GetName() == "cellquota_release_delay_seconds" {
				observed += f.GetMetric()[0].GetHistogram().GetSampleCount()
			}
		}
	}
	if observed != 1000 {
		t.Errorf("release_delay_seconds saw %d", observed)
	}
}

// TestThisProcessesClockDecidesNothing is K32.
func TestThisProcessesClockDecidesNothing(t *testing.T) {
	b := newBench(t, 1)
	for _, off := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		l, _ := b.loop(b.store, &provider.Sandbox{}, clock.Offset(clock.System(), off))
		b.must(l.Round(b.ctx))
		if b.count("orders WHERE state = 'PENDING_PAYMENT'") != 1 {
			t.Fatalf("closed by a clock that is off by %s", off)
		}
	}
	b.advance(time.Minute)
	l, _ := b.loop(b.store, &provider.Sandbox{}, clock.Offset(clock.System(), -10*time.Minute))
	b.must(l.Round(b.ctx))
	if b.count("orders WHERE state = 'CLOSED'") != 1 {
		t.Fatal("not closed in its time")
	}
}

// silent is a channel that answers what it is told to, by payment id.
type silent map[ids.PaymentID]provider.Answer

func (s silent) Inquire(_ context.Context, _ ids.OrderID, p ids.PaymentID) (provider.Answer, error) {
	if a, ok := s[p]; ok {
		return a, nil
	}
	return provider.Answer{}, errors.New("no answer")
}

// TestTheChannelIsAsked: before an order with an open attempt is closed, and only then; what it says
// is applied like a callback; its silence is for a person.
func TestTheChannelIsAsked(t *testing.T) {
	b := newBench(t, 5)
	svc, err := payment.New(b.store, payment.Config{AttemptGrace: 10 * time.Second}, slog.New(slog.DiscardHandler), nil)
	b.must(err)
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = svc.Run(ctx) }()
	defer func() { cancel(); <-done }()
	cheap, _ := reservation.ParseMoney("1.00", "EUR")
	channel := silent{
		"succeeded": {Status: provider.Succeeded, Amount: price}, "failed": {Status: provider.Failed}, "none": {Status: provider.None},
		"cheap": {Status: provider.Succeeded, Amount: cheap},
	}
	for i, p := range []ids.PaymentID{"succeeded", "failed", "none", "cheap", "silent"} {
		a, err := svc.Start(b.ctx, b.order[i], ids.UserID(fmt.Sprint("u", i)), p)
		if err != nil || a.Total != price || a.State != shard.PaymentInitiated || a.ExpiresAt.IsZero() {
			t.Fatalf("%s: %+v, %v", p, a, err)
		}
	}
	l, reg := b.loop(b.store, channel, clock.System())
	b.advance(65 * time.Second)
	b.must(l.Round(b.ctx))
	if n, err := testutil.GatherAndCount(reg, "cellquota_payment_inquiries_total"); err != nil || n != 0 {
		t.Fatalf("asked before the attempts' deadline: %d, %v", n, err)
	}
	state := func(i int) string {
		var s string
		b.must(b.admin.QueryRow(b.ctx, "SELECT o.state || '/' || r.state FROM cellquota.orders o JOIN cellquota.reservations r USING (reservation_id) WHERE order_id = $1", string(b.order[i])).Scan(&s))
		return s
	}
	b.advance(5 * time.Second)
	b.must(l.Round(b.ctx)) // asks
	b.must(l.Round(b.ctx)) // closes those whose attempts ended
	for i, want := range []string{"PAID/CONFIRMED", "CLOSED/RELEASED", "CLOSED/RELEASED", "CLOSED/RELEASED", "PENDING_PAYMENT/RESERVED"} {
		if got := state(i); got != want {
			t.Errorf("order %d is %s, want %s", i, got, want)
		}
	}
	for range 12 {
		b.advance(time.Second)
		b.must(l.Round(b.ctx))
	}
	if got := state(4); got != "PENDING_PAYMENT/MANUAL_REVIEW" {
		t.Errorf("silence led to %s", got)
	}
	out, err := svc.Callback(b.ctx, payment.Callback{Order: b.order[4], Payment: "silent", Amount: price, Status: payment.Failed})
	if err != nil || out.Payment != shard.PaymentFailed {
		t.Fatalf("%+v, %v", out, err)
	}
	b.must(l.Round(b.ctx))
	if got := state(4); got != "CLOSED/RELEASED" {
		t.Errorf("the channel's late no led to %s", got)
	}
	if _, err := svc.Cancel(b.ctx, b.order[0], "u0"); !errors.Is(err, reservation.ErrOrderPaid) {
		t.Error(err)
	}
}

// TestRunGoesOn: a round that fails does not end the loop.
func TestRunGoesOn(t *testing.T) {
	b := newBench(t, 1)
	b.store.DropWriter()
	clk := clock.NewManual(time.Now())
	l, _ := b.loop(b.store, &provider.Sandbox{}, clk)
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	step := func() { b.must(clk.BlockUntil(b.ctx, 1)); clk.Advance(time.Second) }
	step()
	b.must(clk.BlockUntil(b.ctx, 1))
	b.advance(time.Minute)
	b.store.SetWriter(shard.Writer{FenceVersion: 1, Group: "blue"})
	testkit.Eventually(t, 10*time.Second, func() error {
		step()
		if b.count("orders WHERE state = 'CLOSED'") != 1 {
			return errors.New("not closed")
		}
		return nil
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
