package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/outbox"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	campaign = ids.CampaignID("sale")
	phone    = ids.SKUID("phone")
	tablet   = ids.SKUID("tablet")
)

var template = testkit.Template{Name: "outbox", Setup: func(ctx context.Context, dsn string) error {
	if err := migrate.CreateRoles(ctx, dsn, migrate.Passwords{}); err != nil {
		return err
	}
	if err := migrate.Up(ctx, dsn); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "SELECT cellquota.install('cell-1', 'blue')")
	return err
}}

// bench is a shard that sells two SKUs, each with its own mirror on a real Redis.
type bench struct {
	t      testing.TB
	ctx    context.Context
	db     *testkit.Database
	store  *shard.Store
	redis  *testkit.RedisServer
	mirror *admission.Client
	reg    *prometheus.Registry
	deps   outbox.Deps
	builds map[ids.SKUID]ids.Build
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{
		t: t, ctx: testkit.Deadline(t), db: testkit.Postgres(t).Database(t, template), redis: testkit.Redis(t),
		reg: prometheus.NewRegistry(), builds: map[ids.SKUID]ids.Build{},
	}
	log := slog.New(slog.DiscardHandler)
	b.deps = outbox.Deps{Clock: clock.System(), Logger: log, Registry: b.reg}
	var err error
	b.store, err = shard.Open(b.ctx, shard.Config{Cell: "cell-1", DSN: b.db.As(migrate.RoleApp)},
		shard.Deps{Clock: clock.System(), Logger: log, Registry: b.reg})
	b.must(err)
	t.Cleanup(b.store.Close)
	b.store.SetWriter(shard.Writer{FenceVersion: 1, Group: "blue"})
	_, err = b.store.InstallRules(b.ctx, 1, "term", rules())
	b.must(err)
	b.mirror, err = admission.Open(admission.Config{Cell: "cell-1", Addrs: []string{b.redis.Addr()}, Timeout: time.Second},
		admission.Deps{Clock: clock.System(), Logger: log, Registry: b.reg})
	b.must(err)
	t.Cleanup(func() { _ = b.mirror.Close() })
	return b
}

func rules() *cellquotav1.CampaignRules {
	now := time.Now()
	r := &cellquotav1.CampaignRules{
		Version: 1, State: cellquotav1.CampaignState_CAMPAIGN_STATE_PUBLISHED,
		Spec: &cellquotav1.CampaignSpec{
			CampaignId: string(campaign), OpenAt: timestamppb.New(now.Add(-time.Hour)), CloseAt: timestamppb.New(now.Add(time.Hour)),
			PurchaseScope: cellquotav1.PurchaseScope_PURCHASE_SCOPE_SKU, MaxQuantityPerOrder: 5,
			ReservationTtl: durationpb.New(15 * time.Minute), RefundRule: cellquotav1.RefundRule_REFUND_RULE_NO_RESTOCK,
		},
		Buckets: []*cellquotav1.DomainBuckets{{Ranges: []*cellquotav1.BucketRange{{BucketTo: ids.Buckets - 1}}}},
	}
	for _, sku := range []ids.SKUID{phone, tablet} {
		r.Spec.Skus = append(r.Spec.Skus, &cellquotav1.SkuSpec{
			SkuId: string(sku), InventoryMode: cellquotav1.InventoryMode_INVENTORY_MODE_COUNTER,
			Price: &cellquotav1.Money{Amount: "10.00", Currency: "CNY"},
		})
	}
	return r
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// adjust applies the next numbered adjustment of a SKU, which leaves one effect.
func (b *bench) adjust(sku ids.SKUID, kind shard.AdjustmentKind, units int32) string {
	b.t.Helper()
	for _, s := range b.stocks() {
		if s.SKU != sku {
			continue
		}
		a := shard.Adjustment{
			ID: fmt.Sprintf("adj-%s-%d", sku, s.LastNumber+1), Campaign: campaign, SKU: sku, FenceVersion: 1, Number: s.LastNumber + 1,
			Kind: kind, Units: units, TermCount: 1, TermID: "term", BookRecordID: "book",
		}
		_, err := b.store.ApplyAdjustment(b.ctx, a)
		b.must(err)
		return a.ID
	}
	b.t.Fatalf("no stock row of %s", sku)
	return ""
}

func (b *bench) stocks() []shard.StockFacts {
	b.t.Helper()
	all, err := b.store.Stocks(b.ctx)
	b.must(err)
	return all
}

// raise mints and raises the next first build of a SKU's mirror.
func (b *bench) raise(sku ids.SKUID) {
	b.t.Helper()
	m, err := b.store.MintBuild(b.ctx, campaign, string(sku), "test", time.Second)
	b.must(err)
	b.must(b.store.RaiseBuild(b.ctx, campaign, string(sku), m.Build))
	b.must(b.store.ReleaseMint(b.ctx, campaign, string(sku), "test"))
	b.builds[sku] = m.Build
}

// install makes the mirror of the raised build from the shard's stock row.
func (b *bench) install(sku ids.SKUID) {
	b.t.Helper()
	server, err := b.mirror.Acknowledge(b.ctx)
	b.must(err)
	snap, err := b.store.MirrorSnapshot(b.ctx, campaign, string(sku))
	b.must(err)
	defer snap.Close(b.ctx)
	st := snap.Stocks[0]
	b.must(b.mirror.Install(b.ctx, admission.Image{
		Scope: admission.Scope{Campaign: campaign, SKU: sku}, Build: b.builds[sku], Server: server,
		Stocks: []admission.StockBase{{
			SKU: sku, Available: int64(st.Available), Version: st.Version, LastNumber: st.LastNumber,
		}},
	}))
}

func (b *bench) mirrorStock(sku ids.SKUID) int64 {
	b.t.Helper()
	f, err := b.mirror.Facts(b.ctx, admission.Scope{Campaign: campaign, SKU: sku}, sku)
	b.must(err)
	return f.Stock
}

// waiting counts the rows of a target that have not left, as the superuser sees it.
func (b *bench) waiting(target string) (pending, parked int) {
	b.t.Helper()
	b.must(b.db.Conn(b.t).QueryRow(b.ctx, `SELECT count(*) FILTER (WHERE state = 'PENDING'), count(*) FILTER (WHERE state = 'PARKED')
		FROM cellquota.outbox WHERE target = $1`, target).Scan(&pending, &parked))
	return pending, parked
}

func (b *bench) publisher(owner string) *outbox.Publisher {
	return outbox.NewMirrorPublisher(outbox.Config{Owner: owner, Pause: time.Millisecond}, b.store, b.mirror, b.deps)
}
