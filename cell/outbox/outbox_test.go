package outbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/cell/outbox"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// drain publishes until no row leaves any more.
func drain(b *bench, p *outbox.Publisher) error {
	b.t.Helper()
	for {
		n, err := p.Once(b.ctx)
		if n == 0 {
			return err
		}
	}
}

func TestEffectsReachTheMirrorOnce(t *testing.T) {
	b := newBench(t)
	b.adjust(phone, shard.Grant, 100)
	b.raise(phone)
	b.install(phone) // its base has the grant
	b.adjust(phone, shard.Grant, 7)
	b.adjust(phone, shard.Return, 3)
	b.must(drain(b, b.publisher("p")))
	if got := b.mirrorStock(phone); got != 104 {
		t.Fatalf("mirror has %d, want 104", got)
	}
	// The crash between delivery and its record (F5): the rows are delivered again.
	_, err := b.db.Conn(t).Exec(b.ctx, `UPDATE cellquota.outbox SET state = 'PENDING', claimed_until = NULL, published_at = NULL`)
	b.must(err)
	b.must(drain(b, b.publisher("p")))
	if got := b.mirrorStock(phone); got != 104 {
		t.Fatalf("mirror has %d after a repeat, want 104", got)
	}
	if pending, parked := b.waiting("MIRROR"); pending != 0 || parked != 0 {
		t.Fatalf("%d pending, %d parked", pending, parked)
	}
}

// A return debited in the mirror first is not taken twice when its effect comes.
func TestDebitedReturnIsNotTakenTwice(t *testing.T) {
	b := newBench(t)
	b.adjust(phone, shard.Grant, 10)
	b.raise(phone)
	b.install(phone)
	debit(b, "adj-phone-2", 2, 4)
	if id := b.adjust(phone, shard.Return, 4); id != "adj-phone-2" {
		t.Fatalf("id %s", id)
	}
	b.must(drain(b, b.publisher("p")))
	if got := b.mirrorStock(phone); got != 6 {
		t.Fatalf("mirror has %d, want 6", got)
	}
}

// No build was ever raised: there is no mirror, and the first one's snapshot will
// have what is here. Nothing waits.
func TestNoMirrorNothingWaits(t *testing.T) {
	b := newBench(t)
	b.adjust(phone, shard.Grant, 100)
	b.must(drain(b, b.publisher("p")))
	if pending, _ := b.waiting("MIRROR"); pending != 0 {
		t.Fatalf("%d rows wait", pending)
	}
	b.raise(phone)
	b.install(phone)
	if got := b.mirrorStock(phone); got != 100 {
		t.Fatalf("mirror has %d, want 100", got)
	}
}

// One mirror is raised and not installed yet; the other's effects pass it by, and
// its own arrive when it is there.
func TestMirrorUnderConstructionHoldsNobodyElse(t *testing.T) {
	b := newBench(t)
	for _, sku := range []ids.SKUID{phone, tablet} {
		b.adjust(sku, shard.Grant, 10)
		b.raise(sku)
	}
	b.install(tablet)
	b.adjust(phone, shard.Grant, 1)
	b.adjust(tablet, shard.Grant, 1)
	p := outbox.NewMirrorPublisher(outbox.Config{Owner: "p", Batch: 1, Pause: time.Minute}, b.store, b.mirror, b.deps)
	for range 4 { // the phone's rows come first and are set aside, one by one
		_, _ = p.Once(b.ctx)
	}
	if got := b.mirrorStock(tablet); got != 11 {
		t.Fatalf("tablet has %d, want 11", got)
	}
	b.install(phone)
	_, err := b.db.Conn(t).Exec(b.ctx, `UPDATE cellquota.outbox SET claimed_until = NULL WHERE state = 'PENDING'`) // the pause is over
	b.must(err)
	b.must(drain(b, b.publisher("p")))
	if got := b.mirrorStock(phone); got != 11 {
		t.Fatalf("phone has %d, want 11: 10 at the base and 1 by effect", got)
	}
	if pending, _ := b.waiting("MIRROR"); pending != 0 {
		t.Fatalf("%d rows wait", pending)
	}
}

// K83: a row that nobody can read is parked and said to be; the rest flows, also what comes later of its own
// aggregate: receivers judge by version, so a hole harms nobody.
func TestUnreadableRowIsParked(t *testing.T) {
	b := newBench(t)
	b.adjust(phone, shard.Grant, 10)
	b.raise(phone)
	b.install(phone)
	_, err := b.db.Conn(t).Exec(b.ctx, `INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, created_at)
		VALUES ('MIRROR', 'x', 'settle', $1, $2, '\xff', cellquota.now())`, campaign, phone)
	b.must(err)
	b.adjust(phone, shard.Grant, 5)
	later := encode(t, &eventsv1.MirrorEffect{EffectId: "later", CampaignId: string(campaign), SkuId: string(phone), StockDelta: 2, StockVersion: 1_000})
	_, err = b.db.Conn(t).Exec(b.ctx, `INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, created_at)
		VALUES ('MIRROR', 'x', 'settle', $1, $2, $3, cellquota.now())`, campaign, phone, later)
	b.must(err)
	b.must(drain(b, b.publisher("p")))
	if pending, parked := b.waiting("MIRROR"); pending != 0 || parked != 1 {
		t.Fatalf("%d pending, %d parked; want 0 and 1", pending, parked)
	}
	if got := b.mirrorStock(phone); got != 17 {
		t.Fatalf("mirror has %d, want 17", got)
	}
}

func TestRedisDownThenBack(t *testing.T) {
	b := newBench(t)
	b.adjust(phone, shard.Grant, 10)
	b.raise(phone)
	b.install(phone)
	b.adjust(phone, shard.Grant, 5)
	b.redis.Pause(t)
	p := b.publisher("p")
	if _, err := p.Once(b.ctx); err == nil {
		t.Fatal("delivered to a Redis that does not answer")
	}
	b.redis.Resume(t)
	b.must(drain(b, p))
	if got := b.mirrorStock(phone); got != 15 {
		t.Fatalf("mirror has %d, want 15", got)
	}
}

// Several processes publish side by side, with a repeat of everything in between.
func TestPublishersSideBySide(t *testing.T) {
	b := newBench(t)
	b.adjust(phone, shard.Grant, 10)
	b.raise(phone)
	b.install(phone)
	for range 60 {
		b.adjust(phone, shard.Grant, 1)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	var wait sync.WaitGroup
	for i := range 4 {
		p := outbox.NewMirrorPublisher(outbox.Config{Owner: fmt.Sprint("p", i), Batch: 7, Interval: time.Millisecond}, b.store, b.mirror, b.deps)
		wait.Go(func() { _ = p.Run(ctx) })
	}
	defer wait.Wait()
	defer cancel()
	testkit.Eventually(t, 20*time.Second, func() error {
		if pending, parked := b.waiting("MIRROR"); pending != 0 || parked != 0 {
			return fmt.Errorf("%d pending, %d parked", pending, parked)
		}
		return nil
	})
	if got := b.mirrorStock(phone); got != 70 {
		t.Fatalf("mirror has %d, want 70", got)
	}
}

// A process that may not write has nothing to publish, and says so quietly.
func TestWithoutWriterNothingLeaves(t *testing.T) {
	b := newBench(t)
	b.adjust(phone, shard.Grant, 10)
	b.raise(phone)
	_, err := b.db.Conn(t).Exec(b.ctx, `SELECT cellquota.fence_cell('cell-1', 2, 'test', 1000)`)
	b.must(err)
	p := b.publisher("p")
	if _, err := p.Once(b.ctx); err == nil {
		t.Fatal("a fenced writer claimed rows")
	}
	if n, err := p.Once(b.ctx); n != 0 || err != nil {
		t.Fatalf("%d rows, %v; want none: the store dropped its writer", n, err)
	}
}

func TestEventsReachTheLogInOrder(t *testing.T) {
	b := newBench(t)
	kafka := testkit.Kafka(t, 1)
	kafka.CreateTopic(t, events.OrderEventsTopic, 3)
	for i := range 6 {
		payload := encode(t, &eventsv1.OrderEvent{OrderId: fmt.Sprint("o", i%2), Version: int64(i/2 + 1), State: cellquotav1.OrderState_ORDER_STATE_PAID})
		_, err := b.db.Conn(t).Exec(b.ctx, `INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, traceparent, created_at)
			VALUES ('EVENTS', $1, 'order-paid', $2, $3, $4, '00-x', cellquota.now())`, fmt.Sprint("req/", i%2), campaign, phone, payload)
		b.must(err)
	}
	log, err := outbox.NewEventLog("cell-1", kafka.Brokers())
	b.must(err)
	t.Cleanup(log.Close)
	b.must(drain(b, outbox.NewEventPublisher(outbox.Config{Owner: "p"}, b.store, log, b.deps)))
	client := kafka.Client(t, kgo.ConsumeTopics(events.OrderEventsTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	last, seen := map[string]int64{}, map[string]bool{}
	for len(seen) < 6 {
		fetches := client.PollFetches(b.ctx)
		b.must(b.ctx.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			h, err := events.ParseHeaders(r.Headers)
			b.must(err)
			m := &eventsv1.OrderEvent{}
			decode(t, r.Value, m)
			if h.Type != events.TypeOrderPaid || h.FenceVersion != 1 || h.Traceparent != "00-x" {
				t.Errorf("headers %+v", h)
			}
			if m.GetVersion() != last[m.GetOrderId()]+1 {
				t.Errorf("order %s: version %d after %d", m.GetOrderId(), m.GetVersion(), last[m.GetOrderId()])
			}
			last[m.GetOrderId()], seen[h.EventID] = m.GetVersion(), true
		})
	}
	if pending, _ := b.waiting("EVENTS"); pending != 0 {
		t.Fatalf("%d events wait", pending)
	}
}

func TestLagIsMeasured(t *testing.T) {
	b := newBench(t)
	_, err := b.db.Conn(t).Exec(b.ctx, `INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, created_at)
		VALUES ('MIRROR', 'x', 'settle', $1, $2, '\x00', cellquota.now() - interval '90 s')`, campaign, phone)
	b.must(err)
	meter, err := outbox.NewLagMeter(b.store, b.deps)
	b.must(err)
	ctx, cancel := context.WithCancel(b.ctx)
	var wait sync.WaitGroup
	wait.Go(func() { _ = meter.Run(ctx) })
	defer wait.Wait()
	defer cancel()
	testkit.Eventually(t, 10*time.Second, func() error {
		if lag := gauge(t, b.reg, "cellquota_outbox_lag_seconds"); lag < 90 || lag > 150 {
			return fmt.Errorf("outbox_lag_seconds %v, want about 90", lag)
		}
		if n := gauge(t, b.reg, "cellquota_outbox_waiting_rows"); n != 1 {
			return fmt.Errorf("outbox_waiting_rows %v, want 1", n)
		}
		return nil
	})
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
