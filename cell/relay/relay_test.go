package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/relay"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const topic = "cellquota.admissions.cell-1"

var (
	scope = admission.Scope{Campaign: "sale", SKU: "phone"}
	build = ids.Build{Fence: 1, Count: 1}
)

// rig is a mirror on a real Redis, a log, and the relay between them.
type rig struct {
	redis    *testkit.RedisServer
	mirror   *admission.Client
	kafka    *testkit.KafkaCluster
	producer *relay.Producer
	sweeper  *relay.Sweeper
	reg      *prometheus.Registry
	deps     relay.Deps
	clock    clock.Clock
}

func newRig(t *testing.T, cfg relay.Config) *rig {
	t.Helper()
	r := &rig{redis: testkit.Redis(t), reg: prometheus.NewRegistry(), kafka: testkit.Kafka(t, 1), clock: clock.System()}
	r.kafka.CreateTopic(t, topic, 2)
	log := slog.New(slog.DiscardHandler)
	var err error
	r.mirror, err = admission.Open(admission.Config{Cell: "cell-1", Addrs: []string{r.redis.Addr()}, Timeout: 2 * time.Second},
		admission.Deps{Clock: r.clock, Logger: log, Registry: r.reg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.mirror.Close() })
	r.install(t)
	metrics, err := relay.NewMetrics(r.reg)
	if err != nil {
		t.Fatal(err)
	}
	r.deps = relay.Deps{Clock: r.clock, Logger: log, Metrics: metrics}
	cfg.Cell, cfg.Brokers, cfg.Partitions = "cell-1", r.kafka.Brokers(), 2
	if r.producer, err = relay.NewProducer(cfg, r.mirror, r.deps); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.producer.Close)
	r.sweeper = relay.NewSweeper(relay.SweepConfig{}, r.mirror, r.producer, func() []admission.Scope { return []admission.Scope{scope} }, r.deps)
	return r
}

func (r *rig) install(t *testing.T) {
	t.Helper()
	ctx := testkit.Deadline(t)
	server, err := r.mirror.Acknowledge(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var all admission.BucketSet
	all.Add(0, ids.Buckets-1)
	err = r.mirror.Install(ctx, admission.Image{
		Scope: scope, Build: build, Server: server, Window: admission.Window{OpenAtMS: 1, CloseAtMS: 1 << 42},
		Stocks: []admission.StockBase{{SKU: "phone", Available: 100000, Gate: admission.Gate{
			State: cellquotav1.GateState_GATE_STATE_OPEN, Bound: 100000,
		}}},
		Buckets: []admission.DomainBuckets{{Set: all}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.mirror.Expect(scope, build)
}

// admit grants n requests of users PREFIX0 to PREFIXn-1.
func (r *rig) admit(t *testing.T, prefix string, n int) []admission.Granted {
	t.Helper()
	asks := make([]admission.Ask, n)
	for i := range asks {
		user := fmt.Sprintf("%s%d", prefix, i)
		asks[i] = admission.Ask{
			Scope: scope, SKU: "phone", User: ids.UserID(user), Request: "r", Quantity: 1, Nonce: user,
			PermitExpiresAtMS: 1 << 42, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		}
	}
	out := make([]admission.Granted, n)
	for i, res := range r.mirror.Admit(testkit.Deadline(t), asks) {
		if res.Outcome != admission.Accepted {
			t.Fatalf("%s %v", res.Outcome, res.Err)
		}
		out[i] = *res.Granted
	}
	return out
}

// produce waits for every answer and returns the errors.
func (r *rig) produce(t *testing.T, list []admission.Granted) []error {
	t.Helper()
	answers := make(chan error, len(list))
	r.producer.Produce(list, func(_ admission.Granted, err error) { answers <- err })
	var errs []error
	for range list {
		select {
		case err := <-answers:
			if err != nil {
				errs = append(errs, err)
			}
		case <-testkit.Deadline(t).Done():
			t.Fatal("no answer from the producer")
		}
	}
	return errs
}

func (r *rig) run(t *testing.T, loop func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { _ = loop(ctx) })
	t.Cleanup(func() { cancel(); wait.Wait() })
}

// consume reads the topic from its start until every event id of want was seen,
// and returns the number of records.
func (r *rig) consume(t *testing.T, want map[string]bool) int {
	t.Helper()
	client := r.kafka.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, n := testkit.Deadline(t), 0
	for len(want) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%d event ids are not in the log", len(want))
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			n++
			h, err := events.ParseHeaders(rec.Headers)
			if err != nil {
				t.Errorf("headers: %v", err)
			}
			delete(want, h.EventID)
		})
	}
	return n
}

func idsOf(list []admission.Granted) map[string]bool {
	out := map[string]bool{}
	for _, g := range list {
		out[ids.EventID(g.Reservation)] = true
	}
	return out
}

func (r *rig) streamLength(t *testing.T) int64 {
	t.Helper()
	n, err := r.mirror.StreamLength(testkit.Deadline(t), scope)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAcknowledgedAdmissionsLeaveTheStream(t *testing.T) {
	r := newRig(t, relay.Config{})
	r.run(t, r.producer.Run)
	list := r.admit(t, "u", 300)
	if errs := r.produce(t, list); len(errs) != 0 {
		t.Fatal(errs[0])
	}
	if n := r.consume(t, idsOf(list)); n != 300 {
		t.Fatalf("%d records, want 300", n)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := r.streamLength(t); n != 0 {
			return fmt.Errorf("%d entries in the stream", n)
		}
		return nil
	})
	res := r.mirror.Lookup(testkit.Deadline(t), []admission.LookupAsk{{Scope: scope, SKU: "phone", User: "u7", Request: "r"}})[0]
	if res.State != cellquotav1.RequestState_REQUEST_STATE_QUEUED {
		t.Fatalf("request reads %s, want QUEUED", res.State)
	}
	if got := testutil.ToFloat64(counter(t, r.reg, "cellquota_relay_published_total")); got != 300 {
		t.Fatalf("relay_published_total %v, want 300", got)
	}
	if n, _ := testutil.GatherAndCount(r.reg, "cellquota_relay_publish_duration_seconds"); n != 1 {
		t.Fatal("no publish duration was observed")
	}
}

// counter finds a metric by name, as a collector of its own.
func counter(t *testing.T, reg *prometheus.Registry, name string) prometheus.Collector {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name})
			m := f.GetMetric()[0]
			g.Set(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			return g
		}
	}
	t.Fatalf("no metric %s", name)
	return nil
}

// F1: the process died between Redis and Kafka. Nobody produced; the sweeper of any
// process finds the entries.
func TestSweeperBringsWhatNobodyProduced(t *testing.T) {
	r := newRig(t, relay.Config{})
	list := r.admit(t, "u", 1200) // more than one page
	if err := r.sweeper.Sweep(testkit.Deadline(t), scope, 0); err != nil {
		t.Fatal(err)
	}
	if n := r.consume(t, idsOf(list)); n != 1200 {
		t.Fatalf("%d records, want 1200", n)
	}
	if n := r.streamLength(t); n != 0 {
		t.Fatalf("%d entries left", n)
	}
}

func TestSweeperLeavesYoungEntriesAlone(t *testing.T) {
	r := newRig(t, relay.Config{})
	r.admit(t, "u", 3)
	if err := r.sweeper.Sweep(testkit.Deadline(t), scope, time.Hour); err != nil {
		t.Fatal(err)
	}
	if n := r.streamLength(t); n != 3 {
		t.Fatalf("%d entries, want 3", n)
	}
}

// An unreadable entry must not stop what stands behind it.
func TestBrokenEntryStopsNothingElse(t *testing.T) {
	r := newRig(t, relay.Config{})
	before := r.admit(t, "a", 2)
	raw := rawOf(t, r)
	if err := raw.XAdd(testkit.Deadline(t), xadd("cq:{sale:phone}:1.1:stream", "garbage")).Err(); err != nil {
		t.Fatal(err)
	}
	after := r.admit(t, "b", 2)
	if err := r.sweeper.Sweep(testkit.Deadline(t), scope, 0); err != nil {
		t.Fatal(err)
	}
	r.consume(t, idsOf(append(before, after...)))
	if n := r.streamLength(t); n != 1 {
		t.Fatalf("%d entries left, want the broken one", n)
	}
}

// K36: the broker's answers come later than the producer waits. Every event id is
// in the log at least once, and an entry goes only after a real acknowledgement.
func TestLateAnswersLoseNothing(t *testing.T) {
	r := newRig(t, relay.Config{DeliveryTimeout: time.Second})
	r.run(t, r.producer.Run)
	release := make(chan struct{})
	r.kafka.Fake().ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		r.kafka.Fake().KeepControl()
		r.kafka.Fake().SleepControl(func() { <-release })
		return nil, nil, false
	})
	list := r.admit(t, "u", 500)
	answers := make(chan error, len(list))
	r.producer.Produce(list, func(_ admission.Granted, err error) { answers <- err })
	testkit.Hold(t, 2*time.Second, "the broker answers later than the producer's delivery time-out")
	if n := r.streamLength(t); n != 500 {
		t.Fatalf("%d entries while nothing was acknowledged, want 500", n)
	}
	close(release)
	for range list {
		select {
		case <-answers:
		case <-testkit.Deadline(t).Done():
			t.Fatal("a record was never answered")
		}
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		if err := r.sweeper.Sweep(testkit.Deadline(t), scope, 0); err != nil {
			return err
		}
		if n := r.streamLength(t); n != 0 {
			return fmt.Errorf("%d entries left", n)
		}
		return nil
	})
	r.consume(t, idsOf(list))
}

// The log is down: the customer's 202 does not depend on it, the entries stay, and
// the sweeper brings them when it is back.
func TestLogDownThenBack(t *testing.T) {
	r := newRig(t, relay.Config{DeliveryTimeout: time.Second})
	list := r.admit(t, "u", 20)
	r.kafka.Stop(t)
	errs := r.produce(t, list)
	if len(errs) != 20 || !errors.Is(errs[0], relay.ErrNotAcknowledged) {
		t.Fatalf("errors %v", errs)
	}
	if n := r.streamLength(t); n != 20 {
		t.Fatalf("%d entries, want 20", n)
	}
	r.kafka.Start(t)
	testkit.Eventually(t, 20*time.Second, func() error { return r.sweeper.Sweep(testkit.Deadline(t), scope, 0) })
	r.consume(t, idsOf(list))
}

// One admission is on its way once per process, however many wait for its answer.
func TestOneAdmissionOnItsWayOnce(t *testing.T) {
	r := newRig(t, relay.Config{Linger: 200 * time.Millisecond})
	g := r.admit(t, "u", 1)[0]
	if errs := r.produce(t, []admission.Granted{g, g, g}); len(errs) != 0 {
		t.Fatal(errs[0])
	}
	if n := r.consume(t, idsOf([]admission.Granted{g})); n != 1 {
		t.Fatalf("%d records, want 1", n)
	}
}

func TestFullBufferAnswersAtOnce(t *testing.T) {
	r := newRig(t, relay.Config{MaxBuffered: 1, Linger: time.Second})
	list := r.admit(t, "u", 3)
	errs := r.produce(t, list)
	full := 0
	for _, err := range errs {
		if errors.Is(err, relay.ErrBacklog) {
			full++
		}
	}
	if full != 2 {
		t.Fatalf("%d of 3 were refused for the buffer: %v", full, errs)
	}
}

func TestBarrierGoesIntoEveryPartition(t *testing.T) {
	r := newRig(t, relay.Config{})
	next := ids.Build{Fence: 1, Count: 2}
	if err := r.producer.Barrier(testkit.Deadline(t), scope, next); err != nil {
		t.Fatal(err)
	}
	client := r.kafka.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	seen := map[int32]bool{}
	for len(seen) < 2 {
		fetches := client.PollFetches(testkit.Deadline(t))
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			m, err := events.DecodeBarrier(rec.Value)
			if err != nil || m.GetPartition() != rec.Partition || m.GetPartitions() != 2 || m.GetBuild().GetCount() != 2 {
				t.Errorf("barrier %v in partition %d: %v", m, rec.Partition, err)
			}
			seen[rec.Partition] = true
		})
	}
}

func TestSweepLoopSetsPending(t *testing.T) {
	r := newRig(t, relay.Config{})
	manual := clock.NewManual(time.Unix(1_800_000_000, 0))
	r.deps.Clock = manual
	sweeper := relay.NewSweeper(relay.SweepConfig{After: time.Hour, Interval: time.Second}, r.mirror, r.producer,
		func() []admission.Scope { return []admission.Scope{scope} }, r.deps)
	r.admit(t, "u", 4)
	r.run(t, sweeper.Run)
	if err := manual.BlockUntil(testkit.Deadline(t), 1); err != nil {
		t.Fatal(err)
	}
	manual.Advance(time.Second)
	testkit.Eventually(t, 10*time.Second, func() error {
		if got := testutil.ToFloat64(counter(t, r.reg, "cellquota_relay_pending")); got != 4 {
			return fmt.Errorf("relay_pending %v, want 4", got)
		}
		return nil
	})
}

// shardSays answers Decided from a map.
type shardSays map[ids.ReservationID]relay.Decided

func (s shardSays) Decided(_ context.Context, g admission.Granted) (relay.Decided, error) {
	return s[g.Reservation], nil
}

func (r *rig) scanner(clk clock.Clock, shard relay.Shard) *relay.Scanner {
	deps := r.deps
	deps.Clock = clk
	return relay.NewScanner(relay.ScanConfig{After: time.Nanosecond, Interval: time.Second}, r.mirror, shard, r.producer,
		func() []relay.Place { return []relay.Place{{Scope: scope, SKU: "phone"}} }, deps)
}

func (r *rig) found(t *testing.T, finding string) float64 {
	t.Helper()
	families, _ := r.reg.Gather()
	for _, f := range families {
		if f.GetName() != "cellquota_relay_stuck_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == finding {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no finding %s", finding)
	return 0
}

// K18: the broker acknowledged and lost the record, the stream entry is gone. The
// scanner produces it again under its own id, with growing pauses, and gives
// nothing back however old it is.
func TestScannerProducesLostRecordsAgain(t *testing.T) {
	r := newRig(t, relay.Config{})
	list := r.admit(t, "u", 2)
	if err := r.mirror.Acked(testkit.Deadline(t), list); err != nil {
		t.Fatal(err)
	}
	manual := clock.NewManual(time.Unix(1_800_000_000, 0))
	scanner := r.scanner(manual, shardSays{})
	scan := func() {
		t.Helper()
		if err := scanner.Scan(testkit.Deadline(t), relay.Place{Scope: scope, SKU: "phone"}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // at one instant: the pause has not passed
		scan()
	}
	r.consume(t, idsOf(list))
	if got := r.found(t, "unknown"); got != 2 {
		t.Fatalf("%v repeats at one instant, want 2", got)
	}
	testkit.Eventually(t, 10*time.Second, func() error { // the driver must have answered before a repeat counts
		manual.Advance(time.Minute)
		scan()
		if got := r.found(t, "unknown"); got < 4 {
			return fmt.Errorf("%v repeats", got)
		}
		return nil
	})
	f, err := r.mirror.Facts(testkit.Deadline(t), scope, "phone")
	if err != nil || f.Stock != 100000-2 || f.Outstanding != 2 {
		t.Fatalf("stock %d, outstanding %d, %v: age alone returned something", f.Stock, f.Outstanding, err)
	}
}

func TestScannerTellsItsCasesApart(t *testing.T) {
	r := newRig(t, relay.Config{})
	r.admit(t, "stream", 1)
	decided := r.admit(t, "decided", 1)[0]
	pending := r.admit(t, "pending", 1)[0]
	lost := r.admit(t, "lost", 1)[0]
	if err := r.mirror.Acked(testkit.Deadline(t), []admission.Granted{decided, pending, lost}); err != nil {
		t.Fatal(err)
	}
	if err := rawOf(t, r).HDel(testkit.Deadline(t), "cq:{sale:phone}:1.1:pending:phone", string(lost.Reservation)).Err(); err != nil {
		t.Fatal(err)
	}
	rejected := &eventsv1.MirrorEffect{
		EffectId: events.SettleEffectID(string(decided.Reservation)), CampaignId: "sale", SkuId: "phone", StockDelta: 1,
		AdmissionBuild: events.ProtoBuild(build), Settle: true, Mark: eventsv1.MarkAction_MARK_ACTION_DROP_IF_MINE,
		UserId: string(decided.User), RequestId: "r", ReservationId: string(decided.Reservation),
		State: cellquotav1.RequestState_REQUEST_STATE_REJECTED, Reason: cellquotav1.Reason_REASON_SOLD_OUT, AggregateVersion: 1,
	}
	scanner := r.scanner(clock.System(), shardSays{
		decided.Reservation: {Known: true, Build: build, Effects: []*eventsv1.MirrorEffect{rejected}},
		pending.Reservation: {Known: true, Pending: true},
	})
	for range 2 { // twice: the effect counts once
		if err := scanner.Scan(testkit.Deadline(t), relay.Place{Scope: scope, SKU: "phone"}); err != nil {
			t.Fatal(err)
		}
	}
	for finding, want := range map[string]float64{"not_published": 2, "not_written_back": 1, "message_lost": 2, "unknown": 0} {
		if got := r.found(t, finding); got != want {
			t.Errorf("%s found %v times, want %v", finding, got, want)
		}
	}
	f, err := r.mirror.Facts(testkit.Deadline(t), scope, "phone")
	if err != nil || f.Stock != 100000-3 || f.Outstanding != 3 {
		t.Fatalf("stock %d, outstanding %d, %v; want 3 of 4 still waiting", f.Stock, f.Outstanding, err)
	}
}
