package shardtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// The names that every shard of this package uses.
const (
	Cell     = ids.CellID("cell-1")
	Group    = "blue"
	Campaign = ids.CampaignID("c")
	SKU      = ids.SKUID("s")
)

// Price of one unit.
var Price = reservation.Money{Tenthousandths: 100_000, Currency: "EUR"}

// Template is a provisioned shard without a campaign.
var Template = testkit.Template{Name: "shardtest", Setup: func(ctx context.Context, dsn string) error {
	if err := errors.Join(migrate.CreateRoles(ctx, dsn, migrate.Passwords{}), migrate.Up(ctx, dsn)); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "SELECT cellquota.install($1, $2)", string(Cell), Group)
	return err
}}

// Shard is one test's shard.
type Shard struct {
	T     testing.TB
	Ctx   context.Context //nolint:containedctx // the deadline of one test
	DB    *testkit.Database
	Admin *pgx.Conn // superuser
	Store *shard.Store
	Rules *pb.CampaignRules
	// Orders of the users u0, u1, …, one unit each, that end a minute after they were made.
	Orders []ids.OrderID

	at    shard.Position
	build ids.Build
}

// New makes a shard with so many granted units, and as many unpaid orders.
func New(t testing.TB, orders int, change ...func(*pb.CampaignRules)) *Shard {
	t.Helper()
	s := &Shard{T: t, Ctx: testkit.Deadline(t), DB: testkit.Postgres(t).Database(t, Template), at: shard.Position{Topic: "t", TopicID: "id"}}
	s.Admin = s.DB.Conn(t)
	s.Exec(`CREATE TABLE cellquota.test_clock AS SELECT clock_timestamp() AS t`)
	s.Exec(`GRANT SELECT ON cellquota.test_clock TO cellquota_app`)
	s.Exec(`CREATE OR REPLACE FUNCTION cellquota.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT t FROM cellquota.test_clock $$`)
	s.Store = s.Open()
	s.Rules = Rules()
	for _, f := range change {
		f(s.Rules)
	}
	s.Install()
	_, err := s.Store.ApplyAdjustment(s.Ctx, shard.Adjustment{
		ID: "g", Campaign: Campaign, SKU: SKU, FenceVersion: 1, Number: 1, Kind: shard.Grant, Units: int32(orders), TermCount: 1, TermID: "t",
	})
	s.Must(err)
	m, err := s.Store.MintBuild(s.Ctx, Campaign, string(SKU), "x", time.Minute)
	s.Must(err)
	s.build = m.Build
	s.Must(s.Store.RaiseBuild(s.Ctx, Campaign, string(SKU), m.Build))
	s.Must(s.Store.StartPosition(s.Ctx, s.at))
	s.order(orders)
	s.Must(s.Store.Heartbeat(s.Ctx))
	return s
}

// Rules of a campaign that is open for an hour around now, every bucket of which is owned here.
func Rules() *pb.CampaignRules {
	now := clock.System().Now()
	return &pb.CampaignRules{
		Version: 1, State: pb.CampaignState_CAMPAIGN_STATE_PUBLISHED,
		Spec: &pb.CampaignSpec{
			CampaignId: string(Campaign), OpenAt: timestamppb.New(now.Add(-time.Hour)), CloseAt: timestamppb.New(now.Add(time.Hour)),
			PurchaseScope: pb.PurchaseScope_PURCHASE_SCOPE_SKU, MaxQuantityPerOrder: 1, ReservationTtl: durationpb.New(time.Minute),
			Skus: []*pb.SkuSpec{{SkuId: string(SKU), Price: &pb.Money{Amount: Price.Amount(), Currency: Price.Currency}}},
		},
		Buckets: []*pb.DomainBuckets{{Ranges: []*pb.BucketRange{{BucketTo: ids.Buckets - 1}}}},
	}
}

// Install sends Rules, whose version the test has raised.
func (s *Shard) Install() {
	s.T.Helper()
	_, err := s.Store.InstallRules(s.Ctx, 1, "t", s.Rules)
	s.Must(err)
}

// Cancel cancels the campaign.
func (s *Shard) Cancel() {
	s.T.Helper()
	s.Rules.Version++
	s.Rules.State, s.Rules.Cancelled = pb.CampaignState_CAMPAIGN_STATE_CLOSED, true
	s.Install()
}

func (s *Shard) order(n int) {
	s.T.Helper()
	if n == 0 {
		return
	}
	batch := shard.Batch{From: s.at, To: int64(n)}
	for i := range n {
		user := ids.UserID(fmt.Sprint("u", i))
		res := ids.DeriveReservation(Campaign, SKU, user, "r", Cell, s.build)
		batch.Messages = append(batch.Messages, shard.Message{Offset: int64(i), Admission: reservation.Admission{
			Reservation: res, Request: "r", Campaign: Campaign, SKU: SKU, User: user, Quantity: 1, Build: s.build, Fingerprint: "f", Price: Price, AdmittedAt: clock.System().Now(),
		}})
		s.Orders = append(s.Orders, res.Order())
	}
	_, err := s.Store.ApplyOrders(s.Ctx, batch)
	s.Must(err)
}

// Pay pays orders by the attempt "p".
func (s *Shard) Pay(orders ...ids.OrderID) {
	s.T.Helper()
	steps := make([]shard.Step, len(orders))
	for i, o := range orders {
		steps[i] = shard.Step{Kind: shard.StepSucceeded, Order: o, Payment: "p", Amount: Price, FromChannel: true}
	}
	results, err := s.Store.StepOrders(s.Ctx, time.Minute, steps)
	s.Must(err)
	for i := range results {
		s.Must(results[i].Err)
	}
}

// Open makes another process's store, which may write.
func (s *Shard) Open() *shard.Store {
	s.T.Helper()
	store, err := shard.Open(s.Ctx, shard.Config{Cell: Cell, DSN: s.DB.As(migrate.RoleApp)}, shard.Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler)})
	s.Must(err)
	s.T.Cleanup(store.Close)
	store.SetWriter(shard.Writer{FenceVersion: 1, Group: Group})
	return store
}

// Must ends the test on an error.
func (s *Shard) Must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Exec runs a statement as the superuser.
func (s *Shard) Exec(sql string, args ...any) {
	s.T.Helper()
	_, err := s.Admin.Exec(s.Ctx, sql, args...)
	s.Must(err)
}

// Advance moves the shard's clock.
func (s *Shard) Advance(d time.Duration) {
	s.T.Helper()
	s.Exec("UPDATE cellquota.test_clock SET t = t + make_interval(secs => $1)", d.Seconds())
}

// Count counts rows: "orders WHERE …".
func (s *Shard) Count(query string) int {
	s.T.Helper()
	var n int
	s.Must(s.Admin.QueryRow(s.Ctx, "SELECT count(*) FROM cellquota."+query).Scan(&n))
	return n
}
