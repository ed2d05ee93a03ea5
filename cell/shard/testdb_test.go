package shard_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	cellID   = ids.CellID("cell-1")
	group    = "blue"
	campaign = ids.CampaignID("double-eleven")
	phone    = ids.SKUID("phone-x")
	topic    = "cellquota.admissions.cell-1"
	topicID  = "topic-1"
)

// template is a provisioned shard: migrated, with roles and fence version 1, ACTIVE.
var template = testkit.Template{Name: "shard", Setup: func(ctx context.Context, dsn string) error {
	if err := bare(ctx, dsn); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "SELECT cellquota.install($1, $2)", string(cellID), group)
	return err
}}

// bare is a shard that nobody provisioned.
func bare(ctx context.Context, dsn string) error {
	if err := migrate.CreateRoles(ctx, dsn, migrate.Passwords{}); err != nil {
		return err
	}
	return migrate.Up(ctx, dsn)
}

// bench is one test's shard with a store on it.
type bench struct {
	t     testing.TB
	ctx   context.Context
	db    *testkit.Database
	store *shard.Store
	reg   *prometheus.Registry
	admin *pgx.Conn
	next  int64 // offset
	build ids.Build
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, ctx: testkit.Deadline(t), db: testkit.Postgres(t).Database(t, template)}
	b.admin = b.db.Conn(t)
	b.store, b.reg = b.open(shard.Config{}, nil)
	b.store.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	return b
}

// open makes another process's store.
func (b *bench) open(cfg shard.Config, onFenced func(shard.Writer)) (*shard.Store, *prometheus.Registry) {
	b.t.Helper()
	cfg.Cell = cellID
	if cfg.DSN == "" {
		cfg.DSN = b.db.As(migrate.RoleApp)
	}
	reg := prometheus.NewRegistry()
	s, err := shard.Open(b.ctx, cfg, shard.Deps{Clock: clock.System(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Registry: reg, OnFenced: onFenced})
	b.must(err)
	b.t.Cleanup(s.Close)
	return s, reg
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// rules of the campaign: open for an hour around now, one domain, this cell owns every bucket.
func rules(skus ...ids.SKUID) *cellquotav1.CampaignRules {
	now := time.Now()
	r := &cellquotav1.CampaignRules{
		Version: 1, State: cellquotav1.CampaignState_CAMPAIGN_STATE_PUBLISHED,
		Spec: &cellquotav1.CampaignSpec{
			CampaignId: string(campaign), OpenAt: timestamppb.New(now.Add(-time.Hour)), CloseAt: timestamppb.New(now.Add(time.Hour)),
			PurchaseScope: cellquotav1.PurchaseScope_PURCHASE_SCOPE_SKU, MaxQuantityPerOrder: 5,
			ReservationTtl: durationpb.New(15 * time.Minute), RefundRule: cellquotav1.RefundRule_REFUND_RULE_NO_RESTOCK,
		},
		Buckets: []*cellquotav1.DomainBuckets{{Ranges: []*cellquotav1.BucketRange{{BucketFrom: 0, BucketTo: ids.Buckets - 1}}}},
	}
	for _, sku := range skus {
		r.Spec.Skus = append(r.Spec.Skus, &cellquotav1.SkuSpec{
			SkuId: string(sku), InventoryMode: cellquotav1.InventoryMode_INVENTORY_MODE_COUNTER,
			Price: &cellquotav1.Money{Amount: "4999.00", Currency: "CNY"},
		})
	}
	return r
}

// sell installs rules, grants units of the phone and raises the first build of its mirror.
func (b *bench) sell(units int32, change ...func(*cellquotav1.CampaignRules)) {
	b.t.Helper()
	r := rules(phone)
	for _, f := range change {
		f(r)
	}
	b.install(r)
	b.grant(phone, units)
	b.raise(string(phone))
	if r.Spec.PurchaseScope == cellquotav1.PurchaseScope_PURCHASE_SCOPE_CAMPAIGN {
		b.raise(shard.WholeCampaign)
	}
	b.must(b.store.StartPosition(b.ctx, shard.Position{Topic: topic, TopicID: topicID, Epoch: -1}))
}

func (b *bench) install(r *cellquotav1.CampaignRules) {
	b.t.Helper()
	_, err := b.store.InstallRules(b.ctx, 1, "term-1", r)
	b.must(err)
}

func (b *bench) raise(scope string) {
	b.t.Helper()
	m, err := b.store.MintBuild(b.ctx, campaign, scope, "test", time.Second)
	b.must(err)
	if m.NeedsBarrier {
		b.t.Fatalf("build %s needs a barrier although none was raised", m.Build)
	}
	b.must(b.store.RaiseBuild(b.ctx, campaign, scope, m.Build))
	b.must(b.store.ReleaseMint(b.ctx, campaign, scope, "test"))
	b.build = m.Build
}

// grant applies the next numbered grant.
func (b *bench) grant(sku ids.SKUID, units int32) shard.AdjustmentResult {
	b.t.Helper()
	a := b.numbered(sku, shard.Grant, units)
	res, err := b.store.ApplyAdjustment(b.ctx, a)
	b.must(err)
	return res
}

func (b *bench) numbered(sku ids.SKUID, kind shard.AdjustmentKind, units int32) shard.Adjustment {
	b.t.Helper()
	s := b.stock(sku)
	w, _ := b.store.Writer()
	return shard.Adjustment{
		ID: fmt.Sprintf("adj-%s-%d-%d", sku, s.AdjustmentVersion, s.LastNumber+1), Campaign: campaign, SKU: sku, FenceVersion: w.FenceVersion,
		Number: s.LastNumber + 1, Kind: kind, Units: units, TermCount: 1, TermID: "term-1", BookRecordID: "book-1",
	}
}

func (b *bench) stock(sku ids.SKUID) shard.StockFacts {
	b.t.Helper()
	all, err := b.store.Stocks(b.ctx)
	b.must(err)
	for _, s := range all {
		if s.SKU == sku {
			return s
		}
	}
	b.t.Fatalf("no stock row of %s", sku)
	return shard.StockFacts{}
}

// message is user's admission at the next offset.
func (b *bench) message(user string, change ...func(*shard.Message)) shard.Message {
	price, _ := reservation.ParseMoney("4999.00", "CNY")
	m := shard.Message{Offset: b.next, Admission: reservation.Admission{
		Request: ids.RequestID("req-" + user), Campaign: campaign, SKU: phone, User: ids.UserID(user), Quantity: 1, Build: b.build,
		Fingerprint: "fp", Price: price, AdmittedAt: time.Now(), PermitExpiresAt: time.Now().Add(time.Hour),
	}}
	b.next++
	for _, f := range change {
		f(&m)
	}
	if m.Reservation == "" {
		m.Reservation = ids.DeriveReservation(m.Campaign, m.SKU, m.User, m.Request, cellID, m.Build)
	}
	return m
}

// batch is a batch from the stored position to the last message.
func (b *bench) batch(messages ...shard.Message) shard.Batch {
	b.t.Helper()
	from, found, err := b.store.ReadPosition(b.ctx, topic, 0)
	b.must(err)
	if !found {
		b.t.Fatal("no position")
	}
	return shard.Batch{From: from, To: messages[len(messages)-1].Offset + 1, Messages: messages}
}

func (b *bench) apply(messages ...shard.Message) []shard.Decision {
	b.t.Helper()
	res, err := b.store.ApplyOrders(b.ctx, b.batch(messages...))
	b.must(err)
	return res.Decisions
}

// order makes one order for user.
func (b *bench) order(user string, change ...func(*shard.Message)) ids.OrderID {
	b.t.Helper()
	m := b.message(user, change...)
	if d := b.apply(m); d[0].Outcome != shard.Ordered {
		b.t.Fatalf("%s: %+v", user, d[0])
	}
	return m.Reservation.Order()
}

// one scans one value as the superuser.
func one[T any](b *bench, query string, args ...any) T {
	b.t.Helper()
	var v T
	if err := b.admin.QueryRow(b.ctx, query, args...).Scan(&v); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	return v
}

// invariants checks I2, I5 and I7 in the database itself, without the code under test.
func (b *bench) invariants() {
	b.t.Helper()
	if broken := one[string](b, invariantsQuery); broken != "" {
		b.t.Error(broken)
	}
}

// invariantsQuery names every broken one, in one round trip.
var invariantsQuery = func() string {
	var parts []string
	for name, query := range map[string]string{
		"I2: a stock row does not add up":                      `SELECT count(*) FROM cellquota.stock WHERE granted <> available + reserved + confirmed OR least(available, reserved, confirmed) < 0`,
		"I5: the ledger's sum is not the stock row":            `SELECT count(*) FROM cellquota.stock s LEFT JOIN LATERAL (SELECT coalesce(sum(delta_available), 0) a, coalesce(sum(delta_reserved), 0) r, coalesce(sum(delta_confirmed), 0) c, count(*) n FROM cellquota.ledger l WHERE l.campaign_id = s.campaign_id AND l.sku_id = s.sku_id) l ON true WHERE (s.available, s.reserved, s.confirmed, s.version) <> (l.a, l.r, l.c, l.n)`,
		"I5: an entry does not begin where the last one ended": `SELECT count(*) FROM (SELECT before_available b1, before_reserved b2, before_confirmed b3, stock_version v, lag(after_available, 1, 0) OVER w a1, lag(after_reserved, 1, 0) OVER w a2, lag(after_confirmed, 1, 0) OVER w a3, row_number() OVER w n FROM cellquota.ledger WINDOW w AS (PARTITION BY campaign_id, sku_id ORDER BY stock_version)) x WHERE (b1, b2, b3, v) <> (a1, a2, a3, n)`,
		"I7: a reservation without exactly one RESERVE":        `SELECT count(*) FROM cellquota.reservations r WHERE (SELECT count(*) FROM cellquota.ledger l WHERE l.business_no = r.reservation_id AND l.action = 'RESERVE') <> 1`,
		"I7: CONFIRM and RELEASE do not fit the state":         `SELECT count(*) FROM cellquota.reservations r, LATERAL (SELECT count(*) FILTER (WHERE action = 'CONFIRM') c, count(*) FILTER (WHERE action = 'RELEASE') l FROM cellquota.ledger WHERE business_no = r.reservation_id) x WHERE (c, l) <> (CASE WHEN r.state = 'CONFIRMED' THEN 1 ELSE 0 END, CASE WHEN r.state = 'RELEASED' THEN 1 ELSE 0 END)`,
		"reserved units are not those of open reservations":    `SELECT count(*) FROM cellquota.stock s WHERE s.reserved <> (SELECT coalesce(sum(quantity), 0) FROM cellquota.reservations r WHERE r.campaign_id = s.campaign_id AND r.sku_id = s.sku_id AND r.state IN ('RESERVED', 'MANUAL_REVIEW'))`,
		"TOKEN: rows and counters do not fit":                  `SELECT count(*) FROM cellquota.stock s JOIN cellquota.skus k USING (campaign_id, sku_id), LATERAL (SELECT count(*) FILTER (WHERE state = 'FREE') f, count(*) FILTER (WHERE state = 'BOUND') b, count(*) FILTER (WHERE state = 'SOLD') d FROM cellquota.tokens t WHERE t.campaign_id = s.campaign_id AND t.sku_id = s.sku_id) x WHERE k.inventory_mode = 'TOKEN' AND (x.f, x.b, x.d) <> (s.available, s.reserved, s.confirmed)`,
		"TOKEN: a reservation without its rows":                `SELECT count(*) FROM cellquota.reservations r JOIN cellquota.skus k USING (campaign_id, sku_id), LATERAL (SELECT count(*) FILTER (WHERE state = 'BOUND') b, count(*) FILTER (WHERE state = 'SOLD') d, count(*) FILTER (WHERE t.order_id <> (SELECT order_id FROM cellquota.orders o WHERE o.reservation_id = r.reservation_id)) x FROM cellquota.tokens t WHERE t.reservation_id = r.reservation_id) x WHERE k.inventory_mode = 'TOKEN' AND (x.x <> 0 OR x.b <> CASE WHEN r.state IN ('RESERVED', 'MANUAL_REVIEW') THEN r.quantity ELSE 0 END OR x.d NOT IN (0, r.quantity) OR (x.d > 0 AND r.state <> 'CONFIRMED'))`,
		"TOKEN: a finding":                                     `SELECT count(*) FROM cellquota.findings WHERE finding_id LIKE 'tokens.%'`,
		"an order and its reservation do not fit":              `SELECT count(*) FROM cellquota.orders o JOIN cellquota.reservations r USING (reservation_id) WHERE (o.state = 'PAID') <> (r.state = 'CONFIRMED') OR (o.state = 'CLOSED') <> (r.state = 'RELEASED')`,
		"a buyer's place has no order, or an order no place":   `SELECT (SELECT count(*) FROM cellquota.buyers b WHERE origin = 'OWN' AND NOT EXISTS (SELECT FROM cellquota.orders o WHERE o.reservation_id = b.reservation_id)) + (SELECT count(*) FROM cellquota.orders o WHERE NOT EXISTS (SELECT FROM cellquota.buyers b WHERE b.reservation_id = o.reservation_id))`,
	} {
		parts = append(parts, "SELECT '"+strings.ReplaceAll(name, "'", "''")+"' AS name, ("+query+") AS n")
	}
	return "SELECT coalesce(string_agg(name || ': ' || n, '; '), '') FROM (" + strings.Join(parts, " UNION ALL ") + ") x WHERE n <> 0"
}()
