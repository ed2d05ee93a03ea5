package handover_test

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
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	campaign = ids.CampaignID("c")
	phone    = ids.SKUID("s")
	group    = "blue"
)

var price = reservation.Money{Tenthousandths: 100_000, Currency: "EUR"}

// cell is one cell's shard, with the store that its processes write through and the fencer.
type cell struct {
	t     testing.TB
	ctx   context.Context //nolint:containedctx // the deadline of one test
	id    ids.CellID
	db    *testkit.Database
	admin *pgx.Conn
	store *shard.Store
	*fencer.Fencer
	build ids.Build
	next  int64
}

// newCell is a cell that owns the buckets of ranges, with units to sell.
func newCell(t testing.TB, id ids.CellID, units int32, ranges ...*pb.BucketRange) *cell {
	t.Helper()
	c := &cell{t: t, ctx: testkit.Deadline(t), id: id}
	c.db = testkit.Postgres(t).Database(t, testkit.Template{Name: "handover", Setup: func(ctx context.Context, dsn string) error {
		return errors.Join(migrate.CreateRoles(ctx, dsn, migrate.Passwords{}), migrate.Up(ctx, dsn))
	}})
	c.admin = c.db.Conn(t)
	c.Fencer = c.fencer(time.Second)
	_, err := c.Install(c.ctx, string(id), group)
	c.must(err)
	c.store, err = shard.Open(c.ctx, shard.Config{Cell: id, DSN: c.db.As(migrate.RoleApp)}, shard.Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler)})
	c.must(err)
	t.Cleanup(c.store.Close)
	c.store.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	c.rules(ranges)
	_, err = c.store.ApplyAdjustment(c.ctx, shard.Adjustment{ID: "g-" + string(id), Campaign: campaign, SKU: phone, FenceVersion: 1, Number: 1, Kind: shard.Grant, Units: units, TermCount: 1, TermID: "t"})
	c.must(err)
	c.mint(string(phone))
	c.must(c.store.StartPosition(c.ctx, shard.Position{Topic: "t", TopicID: "id"}))
	return c
}

func (c *cell) rules(ranges []*pb.BucketRange) {
	c.t.Helper()
	now := clock.System().Now()
	_, err := c.store.InstallRules(c.ctx, 1, "t", &pb.CampaignRules{
		Version: 1, State: pb.CampaignState_CAMPAIGN_STATE_PUBLISHED,
		Spec: &pb.CampaignSpec{
			CampaignId: string(campaign), OpenAt: timestamppb.New(now.Add(-time.Hour)), CloseAt: timestamppb.New(now.Add(time.Hour)),
			PurchaseScope: pb.PurchaseScope_PURCHASE_SCOPE_SKU, MaxQuantityPerOrder: 1, ReservationTtl: durationpb.New(time.Minute),
			Skus: []*pb.SkuSpec{{SkuId: string(phone), Price: &pb.Money{Amount: price.Amount(), Currency: price.Currency}}},
		},
		Buckets: []*pb.DomainBuckets{{Ranges: ranges}},
	})
	c.must(err)
}

func (c *cell) mint(scope string) {
	c.t.Helper()
	m, err := c.store.MintBuild(c.ctx, campaign, scope, "x", time.Minute)
	c.must(err)
	c.must(c.store.RaiseBuild(c.ctx, campaign, scope, m.Build))
	c.build = m.Build
}

func (c *cell) fencer(wait time.Duration) *fencer.Fencer {
	c.t.Helper()
	f, err := fencer.Open(c.ctx, c.db.As(migrate.RoleFencer), fencer.Options{LockWait: wait})
	c.must(err)
	c.t.Cleanup(func() { _ = f.Close(context.WithoutCancel(c.ctx)) })
	return f
}

func (c *cell) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cell) count(query string) int {
	c.t.Helper()
	var n int
	c.must(c.admin.QueryRow(c.ctx, "SELECT count(*) FROM cellquota."+query).Scan(&n))
	return n
}

func (c *cell) text(query string) string {
	c.t.Helper()
	var s string
	c.must(c.admin.QueryRow(c.ctx, query).Scan(&s))
	return s
}

// buckets are the rows as "from-to STATE version".
func (c *cell) buckets() string {
	c.t.Helper()
	return c.text(`SELECT string_agg(bucket_from || '-' || bucket_to || ' ' || state || ' ' || moved_version, ', ' ORDER BY bucket_from) FROM cellquota.v_buckets`)
}

// ask is user's admission under a request id.
func (c *cell) ask(user ids.UserID, request ids.RequestID) shard.Message {
	m := shard.Message{Offset: c.next, Admission: reservation.Admission{
		Request: request, Campaign: campaign, SKU: phone, User: user, Quantity: 1, Build: c.build, Fingerprint: "f", Price: price, AdmittedAt: clock.System().Now(),
	}}
	c.next++
	m.Reservation = ids.DeriveReservation(m.Campaign, m.SKU, m.User, m.Request, c.id, m.Build)
	return m
}

func (c *cell) apply(messages ...shard.Message) ([]shard.Decision, error) {
	from, _, err := c.store.ReadPosition(c.ctx, "t", 0)
	if err != nil {
		return nil, err
	}
	res, err := c.store.ApplyOrders(c.ctx, shard.Batch{From: from, To: messages[len(messages)-1].Offset + 1, Messages: messages})
	return res.Decisions, err
}

// decide applies one message and answers what became of it.
func (c *cell) decide(user ids.UserID, request ids.RequestID) shard.Decision {
	c.t.Helper()
	d, err := c.apply(c.ask(user, request))
	c.must(err)
	return d[0]
}

// userIn is the n-th user whose bucket lies in the range.
func userIn(n int, from, to uint16) ids.UserID {
	for i := 0; ; i++ {
		u := ids.UserID(fmt.Sprint("u", i))
		if b := ids.Bucket(u); b >= from && b <= to {
			if n == 0 {
				return u
			}
			n--
		}
	}
}

// carry moves what m closed at from to its target, in pages of limit rows, and opens it there.
func carry(from, to *cell, m fencer.Move, what fencer.Closed, limit int) fencer.Import {
	from.t.Helper()
	at, err := to.ImportBuckets(to.ctx, string(to.id), m, what)
	from.must(err)
	for !at.BuyersDone {
		page, err := from.ExportBuyers(from.ctx, m, at.BuyersAfter, limit)
		from.must(err)
		at, err = to.ImportBuyers(to.ctx, string(to.id), m, page)
		from.must(err)
	}
	for !at.RequestsDone {
		page, err := from.ExportRequests(from.ctx, m, at.RequestsAfter, limit)
		from.must(err)
		at, err = to.ImportRequests(to.ctx, string(to.id), m, page)
		from.must(err)
	}
	at, err = to.OpenBuckets(to.ctx, string(to.id), m)
	from.must(err)
	return at
}
