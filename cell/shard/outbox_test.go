package shard_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrate"
	"github.com/cellquota/cellquota/internal/ids"
)

func metricValue(t testing.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func (b *bench) claim(owner string, limit int, lease time.Duration) []shard.OutboxRow {
	b.t.Helper()
	rows, err := b.store.ClaimOutbox(b.ctx, "MIRROR", limit, owner, lease)
	b.must(err)
	return rows
}

func rowIDs(rows []shard.OutboxRow) []int64 {
	var out []int64
	for _, r := range rows {
		out = append(out, r.ID)
	}
	return out
}

// TestClaims: oldest first, per aggregate in order, by lease, with the build of the moment.
func TestClaims(t *testing.T) {
	b := newBench(t)
	b.ownClock()
	b.sell(5)
	o := b.order("u")
	b.step(shard.Step{Kind: shard.StepCancel, Order: o, User: "u"}) // two effects of one request
	first := b.claim("a", 2, time.Minute)                           // the grant, and the settling
	if len(first) != 2 || first[1].Aggregate != "req/"+string(o.Reservation()) || first[1].MirrorBuild != b.build || first[1].Attempts != 1 {
		t.Fatalf("%+v", first)
	}
	if rows := b.claim("b", 10, time.Minute); len(rows) != 0 {
		t.Fatalf("overtaken: %+v", rows)
	}
	if rows := b.claim("a", 10, time.Minute); len(rows) != 3 || rows[0].Attempts != 2 {
		t.Fatalf("its own unfinished rows and the next: %+v", rows)
	}
	b.advance(2 * time.Minute)
	if rows := b.claim("b", 10, time.Minute); len(rows) != 3 {
		t.Fatalf("after the lease: %+v", rows)
	}
	b.must(b.store.MarkPublished(b.ctx, "a", rowIDs(first))) // too late: they are b's
	if lag, n, err := b.store.OutboxLag(b.ctx); err != nil || n != 5 || lag < 2*time.Minute {
		t.Fatalf("lag %s, %d, %v", lag, n, err)
	}
	b.must(b.store.MarkPublished(b.ctx, "b", rowIDs(first)[:1]))
	b.must(b.store.ReleaseOutbox(b.ctx, "b", rowIDs(first)[1:]))
	b.must(b.store.ParkOutbox(b.ctx, "b", rowIDs(b.claim("b", 10, time.Minute))[1], errors.New("cannot be published")))
	if n := one[int](b, "SELECT count(*) FROM cellquota.outbox WHERE state = 'PARKED'"); n != 1 {
		t.Errorf("%d parked", n)
	}
	if err := b.store.ParkOutbox(b.ctx, "nobody", 1, errors.New("x")); !errors.Is(err, shard.ErrConflict) {
		t.Error(err)
	}
}

// TestALateRowIsNotSkipped is K13: a row whose transaction commits last, but whose number is lower.
func TestALateRowIsNotSkipped(t *testing.T) {
	b := newBench(t)
	b.sell(10)
	w := b.db.ConnAs(t, migrate.RoleApp)
	b.exec(w, "BEGIN")
	b.exec(w, "INSERT INTO cellquota.outbox (target, aggregate, event_type, campaign_id, sku_id, payload, created_at) VALUES ('MIRROR', 'late', 'x', 'c', 's', '', cellquota.now())")
	for i := range 5 {
		b.order(fmt.Sprint("u", i))
	}
	b.must(b.store.MarkPublished(b.ctx, "a", rowIDs(b.claim("a", 100, time.Minute))))
	b.exec(w, "COMMIT")
	if rows := b.claim("a", 100, time.Minute); len(rows) != 1 || rows[0].Aggregate != "late" {
		t.Fatalf("%+v", rows)
	}
}

// TestManyClaimers: each row is one claimer's, and no aggregate is with two.
func TestManyClaimers(t *testing.T) {
	b := newBench(t)
	b.sell(200)
	var msgs []shard.Message
	for i := range 100 {
		msgs = append(msgs, b.message(fmt.Sprint("u", i)))
	}
	b.apply(msgs...)
	for _, m := range msgs {
		b.step(shard.Step{Kind: shard.StepCancel, Order: m.Reservation.Order(), User: m.User})
	}
	var mu sync.Mutex
	holder := map[string]string{}
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for c := range 6 {
		owner := fmt.Sprint("claimer-", c)
		wg.Go(func() {
			for range 20 {
				rows, err := b.store.ClaimOutbox(b.ctx, "MIRROR", 17, owner, time.Minute)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, r := range rows {
					if h, ok := holder[r.Aggregate]; ok && h != owner {
						t.Errorf("aggregate %s is with %s and %s", r.Aggregate, h, owner)
					}
					holder[r.Aggregate] = owner
					seen[r.ID] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) == 0 {
		t.Fatal("nothing was claimed")
	}
}

// TestMirrorLives: one builder at a time, only the newest can be raised, barriers count partitions,
// replays lower nothing.
func TestMirrorLives(t *testing.T) {
	b := newBench(t)
	b.ownClock()
	b.sell(5)
	scope := string(phone)
	mint := func(owner string) (shard.Mint, error) {
		return b.store.MintBuild(b.ctx, campaign, scope, owner, time.Minute)
	}
	first, err := mint("a")
	b.must(err)
	if !first.NeedsBarrier || first.Build != (ids.Build{Fence: 1, Count: 2}) {
		t.Fatalf("%+v", first)
	}
	if _, err := mint("b"); !errors.Is(err, shard.ErrBusy) {
		t.Fatalf("two builders: %v", err)
	}
	if err := b.store.RaiseBuild(b.ctx, campaign, scope, first.Build); !errors.Is(err, shard.ErrConflict) {
		t.Fatalf("raised without its barrier: %v", err)
	}
	b.advance(2 * time.Minute)
	second, err := mint("b")
	b.must(err)
	barrier := func(build ids.Build, partition int32) (bool, error) {
		from, found, err := b.store.ReadPosition(b.ctx, topic, partition)
		b.must(err)
		if !found {
			b.must(b.store.StartPosition(b.ctx, shard.Position{Topic: topic, Partition: partition, TopicID: topicID}))
			from = shard.Position{Topic: topic, Partition: partition, TopicID: topicID}
		}
		return b.store.ApplyBarrier(b.ctx, from, from.Next+1, 0, shard.Barrier{Campaign: campaign, ScopeKey: scope, Build: build, Partition: partition, Partitions: 2})
	}
	for _, c := range []struct {
		build     ids.Build
		partition int32
		raised    bool
	}{{first.Build, 0, false}, {first.Build, 1, false}, {second.Build, 0, false}, {second.Build, 0, false}, {second.Build, 1, true}, {first.Build, 0, false}, {second.Build, 1, false}} {
		if raised, err := barrier(c.build, c.partition); err != nil || raised != c.raised {
			t.Fatalf("barrier of %s in %d: %v, %v", c.build, c.partition, raised, err)
		}
	}
	if raised, err := b.store.RaisedBuild(b.ctx, campaign, scope); err != nil || raised != second.Build {
		t.Fatalf("raised is %s, %v", raised, err)
	}
	if _, err := barrier(ids.Build{Fence: 1, Count: 9}, 0); !errors.Is(err, shard.ErrShardBehind) {
		t.Errorf("a barrier from the future: %v", err)
	}
	b.must(b.store.RaiseBuild(b.ctx, campaign, scope, second.Build)) // a repeat
}

// TestSnapshot: marks and answered requests, rejected and paid ones too, as of one moment.
func TestSnapshot(t *testing.T) {
	b := newBench(t)
	b.sell(2)
	paid, open := b.order("paid"), b.order("open")
	b.apply(b.message("too-late"))
	b.step(shard.Step{Kind: shard.StepSucceeded, Order: paid, Payment: "p"})
	snap, err := b.store.MirrorSnapshot(b.ctx, campaign, string(phone))
	b.must(err)
	defer snap.Close(b.ctx)
	b.step(shard.Step{Kind: shard.StepCancel, Order: open, User: "open"}) // after the snapshot
	if snap.Build != b.build || snap.MessagesFrom != 1 || len(snap.Stocks) != 1 || snap.Stocks[0].Available != 0 || snap.Stocks[0].Version != 4 {
		t.Errorf("%+v", snap)
	}
	var marks []string
	for m, err := range snap.Marks(b.ctx) {
		b.must(err)
		marks = append(marks, string(m.User)+"/"+string(m.Request))
	}
	var requests []string
	for r, err := range snap.Requests(b.ctx) {
		b.must(err)
		requests = append(requests, fmt.Sprintf("%s %s %s %s %d", r.User, r.Outcome, r.OrderState, r.Reason, r.OrderVersion))
	}
	slices.Sort(marks)
	slices.Sort(requests)
	if fmt.Sprint(marks) != "[open/req-open paid/req-paid]" {
		t.Errorf("marks %v", marks)
	}
	if fmt.Sprint(requests) != "[open ORDERED PENDING_PAYMENT  1 paid ORDERED PAID  2 too-late REJECTED  SOLD_OUT 0]" {
		t.Errorf("requests %q", requests)
	}
}

// TestStatusReads: what a status page asks.
func TestStatusReads(t *testing.T) {
	b := newBench(t)
	b.ownClock()
	b.sell(1)
	o := b.order("u")
	b.apply(b.message("w"))
	b.advance(3 * time.Second)
	r, err := b.store.LookupRequest(b.ctx, campaign, phone, "u", "req-u")
	b.must(err)
	if !r.Found || r.Order != o || r.OrderState != "PENDING_PAYMENT" || r.RaisedBuild != b.build || r.MessagesFrom != 1 || r.ExpiresAt.IsZero() || r.Quantity != 1 || r.OutcomeAge != 3*time.Second {
		t.Errorf("%+v", r)
	}
	r, err = b.store.LookupRequest(b.ctx, campaign, phone, "w", "req-w")
	b.must(err)
	if !r.Found || r.Outcome != shard.Rejected || r.Reason != "SOLD_OUT" || r.Order != "" {
		t.Errorf("%+v", r)
	}
	r, err = b.store.LookupRequest(b.ctx, campaign, phone, "nobody", "req")
	b.must(err)
	if r.Found || r.RaisedBuild != b.build || r.OutcomeAge != 0 {
		t.Errorf("%+v", r)
	}
	if list, err := b.store.ListRequests(b.ctx, campaign, "u", 10); err != nil || len(list) != 1 || list[0].Order != o {
		t.Errorf("%+v, %v", list, err)
	}
	got, err := b.store.GetOrder(b.ctx, o, "u")
	b.must(err)
	if got.Amount != "4999.00" || got.State != "PENDING_PAYMENT" || got.PaymentState != "" {
		t.Errorf("%+v", got)
	}
	if _, err := b.store.GetOrder(b.ctx, o, "w"); !errors.Is(err, shard.ErrNotFound) {
		t.Error(err)
	}
	b.step(shard.Step{Kind: shard.StepStart, Order: o, User: "u", Payment: "p"})
	if list, err := b.store.ListOrders(b.ctx, "u", 0); err != nil || len(list) != 1 || list[0].PaymentState != shard.PaymentInitiated {
		t.Errorf("%+v, %v", list, err)
	}
	buyer, err := b.store.BuyerOf(b.ctx, campaign, string(phone), "u")
	b.must(err)
	if buyer.Order != o || buyer.Request != "req-u" || buyer.Carried {
		t.Errorf("%+v", buyer)
	}
	if _, err := b.store.BuyerOf(b.ctx, campaign, string(phone), "w"); !errors.Is(err, shard.ErrNotFound) {
		t.Error(err)
	}
}

// TestMetricsMove: each metric of this room, moved by what it is for.
func TestMetricsMove(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	b.order("u")
	b.apply(b.message("w"))
	b.stock(phone)
	for _, name := range []string{
		"cellquota_order_commit_duration_seconds", "cellquota_lock_wait_seconds", "cellquota_stock_update_failures_total", "cellquota_reservations",
		"cellquota_shard_transactions_total", "cellquota_shard_transaction_duration_seconds",
	} {
		if metricValue(t, b.reg, name) == 0 {
			t.Errorf("%s did not move", name)
		}
	}
	const inUse = "cellquota_shard_connections_in_use"
	before := metricValue(t, b.reg, inUse)
	snap, err := b.store.MirrorSnapshot(b.ctx, campaign, string(phone))
	b.must(err)
	defer snap.Close(b.ctx)
	if during := metricValue(t, b.reg, inUse); during != before+1 {
		t.Errorf("%v connections in use with a snapshot open, %v without", during, before)
	}
}
