package cell

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/orders"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	orderBatch  = 500 // orders.batch_max
	roundOrders = 40 * orderBatch
	plenty      = 100_000_000 // units granted
)

// durable are the settings of a shard's server that decide what a commit costs, as the
// local platform has them; with memory for what a benchmark leaves behind, so that the
// last round costs what the first did.
var durable = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "wal_compression": "on", "max_wal_size": "2GB", "shared_buffers": "512MB", "checkpoint_timeout": "15min",
	"max_parallel_workers_per_gather": "0", "autovacuum_naptime": "15s", "track_commit_timestamp": "on",
}

// BenchmarkOrders: orders committed per second by one process from a partition that is
// full, against the same statements in transactions of as many orders by pgbench, one
// client, because a partition has one writer.
func BenchmarkOrders(b *testing.B) {
	s := filled(b)
	script := ordersScript(b, orderBatch, s.payload())
	testkit.Against(b, "pgbench", 0.8, s.consume, func(int) float64 {
		return s.pgbench(script, orderBatch, 1, roundOrders)
	})
}

// BenchmarkOrdersOneByOne: the same against one transaction for each order, with as
// many clients as pgbench is fastest with. What an fsync takes here is told beside it.
func BenchmarkOrdersOneByOne(b *testing.B) {
	s := filled(b)
	script := ordersScript(b, 1, s.payload())
	clients := s.best(b, script)
	testkit.Against(b, "pgbench", 10, s.consume, func(int) float64 {
		return s.pgbench(script, 1, clients, max(clients, roundOrders/20))
	})
	b.ReportMetric(float64(clients), "clients")
	b.ReportMetric(float64(s.pg.FsyncLatency(b).Microseconds()), "fsync-µs")
}

// sales is a provisioned shard on a durable server with a campaign on sale and no
// process: the benchmark runs the loops that it measures.
type sales struct {
	*world
	b     *testing.B
	pg    *testkit.OwnPG
	store *shard.Store
	users int
}

func newSales(b *testing.B) *sales {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
	b.Cleanup(cancel)
	pg := testkit.OwnPostgres(b, durable)
	w := newWorldOn(b, ctx, pg.PG, testkit.Redis(b))
	all := w.start().ready()
	w.install(1)
	w.grant(1, plenty)
	all.stocked(plenty)
	all.end()
	s := &sales{world: w, b: b, pg: pg}
	var err error
	s.store, err = shard.Open(ctx, shard.Config{Cell: "cell-1", DSN: w.db.As(migrate.RoleApp)}, shard.Deps{Clock: clock.System(), Logger: slog.New(slog.DiscardHandler)})
	w.must(err)
	b.Cleanup(s.store.Close)
	s.store.SetWriter(shard.Writer{FenceVersion: 1, Group: "blue"})
	w.exec("INSERT INTO cellquota.positions SELECT 'pgbench', g, '', 0, 0, now() FROM generate_series(0, 63) g")
	return s
}

func filled(b *testing.B) *sales {
	b.Helper()
	s := newSales(b)
	s.consume(-1) // and what a first time costs
	return s
}

// payload is the mean size of what an order leaves in the outbox.
func (s *sales) payload() int {
	return int(s.count("SELECT avg(octet_length(payload))::bigint FROM cellquota.outbox WHERE event_type IN ('settle', 'order-created')"))
}

// best is the number of clients that runs the script most often in a second.
func (s *sales) best(b *testing.B, script string) (clients int) {
	b.Helper()
	most := 0.0
	for _, n := range []int{1, 4, 8, 16, 32} {
		rate := s.db.Pgbench(b, migrate.RoleApp, script, n, max(256, n*16))
		b.Logf("%d clients: %.0f/s", n, rate)
		if rate > most {
			most, clients = rate, n
		}
	}
	return clients
}

// pgbench does so many of what a transaction of the script does each times.
func (s *sales) pgbench(script string, each, clients, n int) float64 {
	s.b.Helper()
	stored := s.pg.CPU(s.b)
	rate := float64(each) * s.db.Pgbench(s.b, migrate.RoleApp, script, clients, n/each)
	s.b.Logf("processor for one: %.1f µs in PostgreSQL", (s.pg.CPU(s.b)-stored).Seconds()/float64(n)*1e6)
	return rate
}

// consume fills the partition, then lets a consumer of orders empty it, and returns the
// orders committed per second from the first batch to the last.
func (s *sales) consume(int) float64 {
	s.b.Helper()
	s.fill(roundOrders)
	c, err := orders.New(orders.Config{Cell: "cell-1", Brokers: s.kafka.Brokers(), BatchMax: orderBatch}, s.store, clock.System(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	s.must(err)
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	applied := func(at int64) int64 {
		testkit.Eventually(s.b, 2*time.Minute, func() error {
			if n := c.Applied(); n < at {
				return fmt.Errorf("%d of %d orders", n, roundOrders)
			}
			return nil
		})
		return c.Applied()
	}
	first := applied(1)
	stored, worked, began := s.pg.CPU(s.b), testkit.OwnCPU(s.b), clock.System().Now()
	applied(roundOrders)
	took := clock.System().Now().Sub(began).Seconds()
	n := float64(roundOrders - first)
	s.b.Logf("processor for one order: %.1f µs here, %.1f µs in PostgreSQL", (testkit.OwnCPU(s.b)-worked).Seconds()/n*1e6, (s.pg.CPU(s.b)-stored).Seconds()/n*1e6)
	cancel()
	<-done
	if have := s.count("SELECT count(*) FROM cellquota.orders WHERE user_id < $1 AND length(user_id) = 13", fmt.Sprintf("u%012d", s.users)); have != int64(s.users) {
		s.b.Fatalf("%d orders of %d users", have, s.users)
	}
	return n / took
}

// fill puts so many admissions of users that never asked before into the partition.
func (s *sales) fill(n int) {
	s.b.Helper()
	client := s.kafka.Client(s.b, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(n))
	now := clock.System().Now()
	for range n {
		m := admitted(s.users, now)
		s.users++
		value, err := events.PrepareAdmission(m)
		s.must(err)
		client.Produce(s.ctx, &kgo.Record{
			Topic: events.AdmissionsTopic("cell-1"), Value: events.AppendAdmittedAt(value, now.UnixMilli()),
			Headers: events.Headers{EventID: ids.EventID(ids.ReservationID(m.GetReservationId())), Type: events.TypeAdmission, FenceVersion: 1}.Render(),
		}, nil)
	}
	s.must(client.Flush(s.ctx))
}

// admitted is the message of one user's unit of the phone.
func admitted(user int, now time.Time) *eventsv1.Admission {
	build := ids.Build{Fence: 1, Count: 1}
	u, r := ids.UserID(fmt.Sprintf("u%012d", user)), ids.RequestID("r"+strconv.Itoa(user))
	return &eventsv1.Admission{
		ReservationId: string(ids.DeriveReservation(campaign, phone, u, r, "cell-1", build)), RequestId: string(r), CampaignId: campaign, SkuId: phone,
		UserId: string(u), Quantity: 1, Build: events.ProtoBuild(build), Fingerprint: ids.Fingerprint(campaign, phone, u, 1),
		Price: &pb.Money{Amount: "4999.00", Currency: "CNY"}, CampaignVersion: 1, PermitExpiresAtMs: now.Add(time.Hour).UnixMilli(),
	}
}
