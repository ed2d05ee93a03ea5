package rebuild_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/orders"
	"github.com/cellquota/cellquota/cell/outbox"
	"github.com/cellquota/cellquota/cell/rebuild"
	"github.com/cellquota/cellquota/cell/relay"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	cell     = ids.CellID("cell-1")
	campaign = ids.CampaignID("sale")
	phone    = ids.SKUID("phone")
)

var (
	scope    = admission.Scope{Campaign: campaign, SKU: phone}
	template = testkit.Template{Name: "rebuild", Setup: func(ctx context.Context, dsn string) error {
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
)

// bench is a cell without its API: shard, Redis, log, and the loops between them.
type bench struct {
	t     testing.TB
	ctx   context.Context
	db    *testkit.Database
	admin *pgx.Conn
	redis *testkit.RedisServer
	kafka *testkit.KafkaCluster
	log   *slog.Logger
	one   *process
}

// process is one process of the cell: its own store, mirror client and loops.
type process struct {
	b        *bench
	store    *shard.Store
	mirror   *admission.Client
	producer *relay.Producer
	sweeper  *relay.Sweeper
	effects  *outbox.Publisher
	loop     *rebuild.Loop
	reg      *prometheus.Registry
}

func newBench(t testing.TB, redisArgs ...string) *bench {
	t.Helper()
	b := &bench{
		t: t, ctx: testkit.Deadline(t), db: testkit.Postgres(t).Database(t, template), redis: testkit.Redis(t, redisArgs...),
		kafka: testkit.Kafka(t, 1), log: slog.New(slog.DiscardHandler),
	}
	b.admin = b.db.Conn(t)
	b.kafka.CreateTopic(t, events.AdmissionsTopic(cell), 2)
	b.one = b.process("one")
	now := time.Now()
	_, err := b.one.store.InstallRules(b.ctx, 1, "term", &cellquotav1.CampaignRules{
		Version: 1, State: cellquotav1.CampaignState_CAMPAIGN_STATE_PUBLISHED,
		Spec: &cellquotav1.CampaignSpec{
			CampaignId: string(campaign), OpenAt: timestamppb.New(now.Add(-time.Hour)), CloseAt: timestamppb.New(now.Add(time.Hour)),
			PurchaseScope: cellquotav1.PurchaseScope_PURCHASE_SCOPE_SKU, MaxQuantityPerOrder: 5,
			ReservationTtl: durationpb.New(15 * time.Minute), RefundRule: cellquotav1.RefundRule_REFUND_RULE_NO_RESTOCK,
			Skus: []*cellquotav1.SkuSpec{{
				SkuId: string(phone), InventoryMode: cellquotav1.InventoryMode_INVENTORY_MODE_COUNTER,
				Price: &cellquotav1.Money{Amount: "10.00", Currency: "CNY"},
			}},
		},
		Buckets: []*cellquotav1.DomainBuckets{{Ranges: []*cellquotav1.BucketRange{{BucketTo: ids.Buckets - 1}}}},
	})
	b.must(err)
	return b
}

// plans are what the campaign of newBench needs, at version.
func plans(version int64) func() []rebuild.Plan {
	var all admission.BucketSet
	all.Add(0, ids.Buckets-1)
	p := rebuild.Plan{
		Scope: scope, SKUs: []ids.SKUID{phone}, Version: version, Bound: 1000, StreamMax: 10000,
		Window: admission.Window{OpenAtMS: 1, CloseAtMS: 1 << 42}, Buckets: []admission.DomainBuckets{{Set: all}},
	}
	return func() []rebuild.Plan { return []rebuild.Plan{p} }
}

func (b *bench) process(owner string) *process {
	b.t.Helper()
	p := &process{b: b, reg: prometheus.NewRegistry()}
	clk := clock.System()
	var err error
	p.store, err = shard.Open(b.ctx, shard.Config{Cell: cell, DSN: b.db.As(migrate.RoleApp)},
		shard.Deps{Clock: clk, Logger: b.log, Registry: p.reg})
	b.must(err)
	b.t.Cleanup(p.store.Close)
	p.store.SetWriter(shard.Writer{FenceVersion: 1, Group: "blue"})
	p.mirror, err = admission.Open(admission.Config{Cell: cell, Addrs: []string{b.redis.Addr()}, Timeout: time.Second},
		admission.Deps{Clock: clk, Logger: b.log, Registry: p.reg})
	b.must(err)
	b.t.Cleanup(func() { _ = p.mirror.Close() })
	metrics, err := relay.NewMetrics(p.reg)
	b.must(err)
	deps := relay.Deps{Clock: clk, Logger: b.log, Metrics: metrics}
	p.producer, err = relay.NewProducer(relay.Config{Cell: cell, Brokers: b.kafka.Brokers(), Partitions: 2}, p.mirror, deps)
	b.must(err)
	b.t.Cleanup(p.producer.Close)
	p.sweeper = relay.NewSweeper(relay.SweepConfig{}, p.mirror, p.producer, func() []admission.Scope { return []admission.Scope{scope} }, deps)
	p.effects = outbox.NewMirrorPublisher(outbox.Config{Owner: owner, Interval: 5 * time.Millisecond, Pause: 10 * time.Millisecond},
		p.store, p.mirror, outbox.Deps{Clock: clk, Logger: b.log, Registry: p.reg})
	p.loop, err = rebuild.New(rebuild.Config{Owner: owner, Interval: 20 * time.Millisecond, Timeout: 5 * time.Second}, p.store, p.mirror,
		p.producer, p.sweeper, plans(1), rebuild.Deps{Clock: clk, Logger: b.log, Registry: p.reg})
	b.must(err)
	return p
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// run runs a loop until the test ends.
func (b *bench) run(loops ...func(context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	var wait sync.WaitGroup
	for _, loop := range loops {
		wait.Go(func() { _ = loop(ctx) })
	}
	b.t.Cleanup(func() { cancel(); wait.Wait() })
}

// consumer is the real orders loop of one process.
func (p *process) consumer() func(context.Context) error {
	p.b.t.Helper()
	c, err := orders.New(orders.Config{Cell: cell, Brokers: p.b.kafka.Brokers(), BatchWait: time.Millisecond}, p.store, clock.System(), p.b.log, p.reg)
	p.b.must(err)
	return c.Run
}

// grant applies the next grant of the phone.
func (b *bench) grant(units int32) {
	b.t.Helper()
	all, err := b.one.store.Stocks(b.ctx)
	b.must(err)
	w, _ := b.one.store.Writer()
	number := int64(1)
	if len(all) > 0 && all[0].AdjustmentVersion == w.FenceVersion {
		number = all[0].LastNumber + 1
	}
	_, err = b.one.store.ApplyAdjustment(b.ctx, shard.Adjustment{
		ID: fmt.Sprintf("grant-%d-%d", w.FenceVersion, number), Campaign: campaign, SKU: phone, FenceVersion: w.FenceVersion, Number: number,
		Kind: shard.Grant, Units: units, TermCount: 1, TermID: "term", BookRecordID: "book",
	})
	b.must(err)
}

// ask asks once for one unit.
func (p *process) ask(user, request string) admission.Result {
	return p.mirror.Admit(p.b.ctx, []admission.Ask{{
		Scope: scope, SKU: phone, User: ids.UserID(user), Request: ids.RequestID(request), Quantity: 1, Nonce: user + "/" + request,
		PermitExpiresAtMS: 1 << 42, Price: &cellquotav1.Money{Amount: "10.00", Currency: "CNY"}, CampaignVersion: 1,
	}})[0]
}

// accepted asks until the mirror decides, and fails unless it accepts.
func (p *process) accepted(user, request string) admission.Granted {
	p.b.t.Helper()
	r := p.decided(user, request)
	if r.Outcome != admission.Accepted {
		p.b.t.Fatalf("%s/%s: %s %v, want ACCEPTED", user, request, r.Outcome, r.Err)
	}
	return *r.Granted
}

// decided asks until the answer is neither NOT_READY nor PAUSED.
func (p *process) decided(user, request string) admission.Result {
	p.b.t.Helper()
	var r admission.Result
	testkit.Eventually(p.b.t, 20*time.Second, func() error {
		r = p.ask(user, request)
		switch r.Outcome {
		case admission.NotReady, admission.Paused:
			return fmt.Errorf("%s: %w", r.Outcome, r.Err)
		case admission.TempSoldOut:
			p.b.t.Fatalf("%s/%s: sold out although there is stock", user, request)
		default:
		}
		return nil
	})
	return r
}

// produce brings admissions to the log and waits for the acknowledgements.
func (p *process) produce(list ...admission.Granted) {
	p.b.t.Helper()
	answers := make(chan error, len(list))
	p.producer.Produce(list, func(_ admission.Granted, err error) { answers <- err })
	for range list {
		p.b.must(<-answers)
	}
}

// state is the request's state in the shard, "" while there is no row.
func (b *bench) state(user, request string) string {
	b.t.Helper()
	row, err := b.one.store.LookupRequest(b.ctx, campaign, phone, ids.UserID(user), ids.RequestID(request))
	b.must(err)
	if !row.Found {
		return ""
	}
	return string(row.Outcome) + string(row.OrderState) + string(row.Reason)
}

func (b *bench) eventuallyState(user, request, want string) {
	b.t.Helper()
	testkit.Eventually(b.t, 20*time.Second, func() error {
		if got := b.state(user, request); got != want {
			return fmt.Errorf("%s/%s is %q, want %q", user, request, got, want)
		}
		return nil
	})
}

// effectsWaiting counts the effects that have not left for the mirror.
func (b *bench) effectsWaiting() (n int) {
	b.t.Helper()
	b.must(b.admin.QueryRow(b.ctx, `SELECT count(*) FROM cellquota.outbox WHERE target = 'MIRROR' AND state = 'PENDING'`).Scan(&n))
	return n
}

// quiet waits until the mirror's stock is the shard's available and nothing is
// outstanding (I9), and returns that stock.
func (b *bench) quiet() int64 {
	b.t.Helper()
	var stock int64
	testkit.Eventually(b.t, 20*time.Second, func() error {
		f, err := b.one.mirror.Facts(b.ctx, scope, phone)
		if err != nil {
			return err
		}
		all, err := b.one.store.Stocks(b.ctx)
		if err != nil {
			return err
		}
		waiting := b.effectsWaiting()
		if stock = f.Stock; f.State != admission.Ready || stock != int64(all[0].Available) || f.Outstanding != 0 || f.OutstandingUnits != 0 || waiting > 0 {
			return fmt.Errorf("mirror %s has %d (outstanding %d, %d units), shard %d, %d rows wait", f.State, stock, f.Outstanding, f.OutstandingUnits, all[0].Available, waiting)
		}
		return nil
	})
	return stock
}
