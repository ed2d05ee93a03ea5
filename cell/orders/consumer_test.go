package orders_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/orders"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	cell     = ids.CellID("cell-1")
	campaign = ids.CampaignID("c1")
	sku      = ids.SKUID("s1")
)

var template = testkit.Template{Name: "orders", Setup: func(ctx context.Context, dsn string) error {
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
}}

// bench is a shard and a log with consumers between them.
type bench struct {
	t        *testing.T
	ctx      context.Context
	db       *testkit.Database
	admin    *pgx.Conn
	kafka    *testkit.KafkaCluster
	producer *kgo.Client
	build    ids.Build
	store    *shard.Store
	session  time.Duration // of consumers; 0: their default
	member   string        // of the next consumer
}

// manual: a record says itself which partition it belongs to.
var manual = kgo.RecordPartitioner(kgo.ManualPartitioner())

func newBench(t *testing.T, partitions int32) *bench {
	t.Helper()
	b := &bench{t: t, ctx: testkit.Deadline(t), db: testkit.Postgres(t).Database(t, template), kafka: testkit.Kafka(t, 1)}
	b.kafka.CreateTopic(t, events.AdmissionsTopic(cell), partitions)
	b.producer = b.kafka.Client(t, manual)
	b.admin = b.db.Conn(t)
	b.store = b.open()
	now := time.Now()
	_, err := b.store.InstallRules(b.ctx, 1, "t", &cellquotav1.CampaignRules{
		Version: 1, State: cellquotav1.CampaignState_CAMPAIGN_STATE_PUBLISHED,
		Spec: &cellquotav1.CampaignSpec{
			CampaignId: string(campaign), OpenAt: timestamppb.New(now.Add(-time.Hour)), CloseAt: timestamppb.New(now.Add(time.Hour)),
			PurchaseScope: cellquotav1.PurchaseScope_PURCHASE_SCOPE_SKU, MaxQuantityPerOrder: 1, ReservationTtl: durationpb.New(time.Hour),
			Skus: []*cellquotav1.SkuSpec{{SkuId: string(sku), Price: &cellquotav1.Money{Amount: "10.00", Currency: "EUR"}}},
		},
		Buckets: []*cellquotav1.DomainBuckets{{Ranges: []*cellquotav1.BucketRange{{BucketTo: ids.Buckets - 1}}}},
	})
	b.must(err)
	_, err = b.store.ApplyAdjustment(b.ctx, shard.Adjustment{
		ID: "g1", Campaign: campaign, SKU: sku, FenceVersion: 1, Number: 1, Kind: shard.Grant, Units: 100_000, TermCount: 1, TermID: "t",
	})
	b.must(err)
	m, err := b.store.MintBuild(b.ctx, campaign, string(sku), "test", time.Minute)
	b.must(err)
	b.must(b.store.RaiseBuild(b.ctx, campaign, string(sku), m.Build))
	b.build = m.Build
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) open() *shard.Store {
	s, err := shard.Open(b.ctx, shard.Config{Cell: cell, DSN: b.db.As(migrate.RoleApp)},
		shard.Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	b.must(err)
	b.t.Cleanup(s.Close)
	s.SetWriter(shard.Writer{FenceVersion: 1, Group: "blue"})
	return s
}

// consume runs a consumer on store until the test, or stop, ends it.
func (b *bench) consume(store orders.Store) (c *orders.Consumer, reg *prometheus.Registry, stop func()) {
	b.t.Helper()
	reg = prometheus.NewRegistry()
	c, err := orders.New(orders.Config{Cell: cell, Brokers: b.kafka.Brokers(), BatchMax: 50, BatchWait: time.Millisecond, SessionTimeout: b.session, Member: b.member, RetryMax: 100 * time.Millisecond},
		store, clock.System(), slog.New(slog.NewTextHandler(b.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})), reg)
	b.must(err)
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
			b.t.Errorf("consumer ended: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	b.t.Cleanup(stop)
	return c, reg, stop
}

func (b *bench) record(user, request string, partition int32) *kgo.Record {
	m := &eventsv1.Admission{
		RequestId: request, CampaignId: string(campaign), SkuId: string(sku), UserId: user, Quantity: 1, Fingerprint: "f",
		Build: &cellquotav1.Build{FenceVersion: b.build.Fence, Count: b.build.Count}, Price: &cellquotav1.Money{Amount: "10.00", Currency: "EUR"},
	}
	res := ids.DeriveReservation(campaign, sku, ids.UserID(user), ids.RequestID(request), cell, b.build)
	m.ReservationId = string(res)
	raw, err := events.PrepareAdmission(m)
	b.must(err)
	return &kgo.Record{
		Topic: events.AdmissionsTopic(cell), Partition: partition, Value: events.AppendAdmittedAt(raw, time.Now().UnixMilli()),
		Headers: events.Headers{EventID: ids.EventID(res), Type: events.TypeAdmission, FenceVersion: b.build.Fence}.Render(),
	}
}

func (b *bench) produce(records ...*kgo.Record) {
	b.t.Helper()
	b.must(b.producer.ProduceSync(b.ctx, records...).FirstErr())
}

func (b *bench) count(query string) int {
	b.t.Helper()
	var n int
	b.must(b.admin.QueryRow(b.ctx, "SELECT count(*) FROM cellquota."+query).Scan(&n))
	return n
}

func (b *bench) eventually(want int, query string) {
	b.t.Helper()
	testkit.Eventually(b.t, 20*time.Second, func() error {
		if n := b.count(query); n != want {
			return fmt.Errorf("%s: %d, want %d", query, n, want)
		}
		return nil
	})
}

// TestConsumeAndRestart: messages become orders once, over restarts of the consumer, over a shard that
// is asked to start over, and over a topic that is made anew.
func TestConsumeAndRestart(t *testing.T) {
	b := newBench(t, 1)
	c, reg, stop := b.consume(b.store)
	for i := range 120 {
		b.produce(b.record(fmt.Sprintf("u%d", i), "r", 0))
	}
	b.produce(b.record("u0", "r", 0), b.record("u1", "another", 0), &kgo.Record{Topic: events.AdmissionsTopic(cell), Value: []byte("garbage")})
	b.eventually(120, "orders")
	b.eventually(1, "parked WHERE error_class = 'DECODE' AND value = 'garbage'")
	b.eventually(1, "inbox WHERE outcome = 'REJECTED' AND reason = 'ALREADY_RESERVED'")
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := c.Applied(); n != 123 {
			return fmt.Errorf("%d applied", n)
		}
		return nil
	})
	for outcome, want := range map[string]float64{"ORDERED": 120, "DUPLICATE": 1, "ALREADY_RESERVED": 1, "PARKED": 1} {
		if got := metric(t, reg, outcome); got != want {
			t.Errorf("orders_total{outcome=%q} is %v, want %v", outcome, got, want)
		}
	}
	for _, name := range []string{"cellquota_order_batch_size", "cellquota_order_queue_duration_seconds", "cellquota_order_end_to_end_seconds"} {
		if n, err := testutil.GatherAndCount(reg, name); err != nil || n != 1 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	stop()
	b.produce(b.record("late", "r", 0))
	_, _, stop = b.consume(b.store)
	b.eventually(121, "orders")
	stop()

	// Another topic of the same name: another log. Its messages are taken from the start.
	b.kafka.DeleteTopic(t, events.AdmissionsTopic(cell))
	b.kafka.CreateTopic(t, events.AdmissionsTopic(cell), 1)
	b.producer = b.kafka.Client(t, manual)
	b.produce(b.record("u5", "r", 0), b.record("new-log", "r", 0))
	_, reg, _ = b.consume(b.store)
	b.eventually(122, "orders")
	if got := one(t, reg, "cellquota_order_position_mismatches_total"); got != 1 {
		t.Errorf("%v mismatches", got)
	}
}

func metric(t *testing.T, reg *prometheus.Registry, outcome string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "cellquota_orders_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func one(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return -1
}

// TestTwoConsumersAndManyPartitions: partitions are shared, a user in all of them gets one order.
func TestTwoConsumersAndManyPartitions(t *testing.T) {
	b := newBench(t, 4)
	b.consume(b.store)
	for i := range 40 {
		b.produce(b.record(fmt.Sprintf("u%d", i), "r", int32(i%4)))
	}
	b.consume(b.open())
	for p := range int32(4) {
		b.produce(b.record("same", fmt.Sprintf("r%d", p), p))
	}
	for i := 40; i < 80; i++ {
		b.produce(b.record(fmt.Sprintf("u%d", i), "r", int32(i%4)))
	}
	b.eventually(81, "orders")
	b.eventually(84, "inbox")
	b.eventually(1, "buyers WHERE user_id = 'same'")
}

// shaky fails in front of the real store as often as it is told.
type shaky struct {
	orders.Store
	faults atomic.Int64
	fault  func() error
}

func (s *shaky) ApplyOrders(ctx context.Context, batch shard.Batch) (shard.BatchResult, error) {
	if s.faults.Add(-1) >= 0 {
		return shard.BatchResult{}, s.fault()
	}
	return s.Store.ApplyOrders(ctx, batch)
}

// TestFaultsAreTriedAgain is K67: nothing is parked or lost for a fault that is not the data's.
func TestFaultsAreTriedAgain(t *testing.T) {
	b := newBench(t, 1)
	kinds := []error{shard.ErrUnavailable, shard.ErrUnknownCommit, shard.ErrState, shard.ErrNoWriter, shard.ErrShardBehind, shard.ErrPositionLost, errors.New("surprise")}
	s := &shaky{Store: b.store}
	var turn atomic.Int64
	s.fault = func() error { return kinds[int(turn.Add(1)-1)%len(kinds)] }
	s.faults.Store(int64(2 * len(kinds)))
	b.consume(s)
	for i := range 10 {
		b.produce(b.record(fmt.Sprintf("u%d", i), "r", 0))
	}
	b.eventually(10, "orders")
	b.eventually(0, "parked")
}

// TestCommittedButUnknown: the commit happened and its answer was lost. The position tells; the next
// messages go on.
func TestCommittedButUnknown(t *testing.T) {
	b := newBench(t, 1)
	s := &committed{Store: b.store}
	s.left.Store(3)
	b.consume(s)
	for i := range 30 {
		b.produce(b.record(fmt.Sprintf("u%d", i), "r", 0))
	}
	b.eventually(30, "orders")
	b.eventually(30, "inbox")
}

type committed struct {
	orders.Store
	left atomic.Int64
}

func (s *committed) ApplyOrders(ctx context.Context, batch shard.Batch) (shard.BatchResult, error) {
	res, err := s.Store.ApplyOrders(ctx, batch)
	if err == nil && s.left.Add(-1) >= 0 {
		return shard.BatchResult{}, shard.ErrUnknownCommit
	}
	return res, err
}

// TestBadMessageIsFoundByHalving: the database refuses one message of a full batch: exactly that one
// is parked, with its bytes, and its request reads MANUAL_REVIEW.
func TestBadMessageIsFoundByHalving(t *testing.T) {
	b := newBench(t, 1)
	var records []*kgo.Record
	for i := range 20 {
		records = append(records, b.record(fmt.Sprintf("u%d", i), "r", 0))
	}
	if _, err := b.admin.Exec(b.ctx, `ALTER TABLE cellquota.orders ADD CONSTRAINT nobody_likes_u13 CHECK (user_id <> 'u13')`); err != nil {
		t.Fatal(err)
	}
	b.produce(records...)
	b.consume(b.store)
	b.eventually(19, "orders")
	b.eventually(1, "parked WHERE error_class = '23'")
	b.eventually(1, "inbox WHERE outcome = 'PARKED' AND user_id = 'u13'")
	b.eventually(0, "buyers WHERE user_id = 'u13'")
}

// TestBarrierRaises: the barrier of the last partition raises the build; later messages of the older
// one are lost.
func TestBarrierRaises(t *testing.T) {
	b := newBench(t, 2)
	old := b.record("old", "r", 0)
	m, err := b.store.MintBuild(b.ctx, campaign, string(sku), "test", time.Minute)
	b.must(err)
	for p := range int32(2) {
		raw, err := events.EncodeBarrier(&eventsv1.Barrier{
			CampaignId: string(campaign), SkuId: string(sku), Build: &cellquotav1.Build{FenceVersion: m.Build.Fence, Count: m.Build.Count}, Partition: p, Partitions: 2,
		})
		b.must(err)
		b.produce(&kgo.Record{
			Topic: events.AdmissionsTopic(cell), Partition: p, Value: raw,
			Headers: events.Headers{EventID: events.BarrierID(campaign, sku, m.Build, p), Type: events.TypeBarrier, FenceVersion: 1}.Render(),
		})
	}
	b.consume(b.store)
	testkit.Eventually(t, 10*time.Second, func() error {
		raised, err := b.store.RaisedBuild(b.ctx, campaign, string(sku))
		if err == nil && raised != m.Build {
			err = fmt.Errorf("raised is %s", raised)
		}
		return err
	})
	b.produce(old)
	b.eventually(1, "inbox WHERE reason = 'LOST_ADMISSION'")
}
