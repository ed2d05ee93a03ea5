package shard_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// effects reads the pending effects for the mirror, by effect id.
func (b *bench) effects() map[string]*eventsv1.MirrorEffect {
	b.t.Helper()
	rows, err := b.admin.Query(b.ctx, "SELECT payload FROM cellquota.outbox WHERE target = 'MIRROR' ORDER BY outbox_id")
	b.must(err)
	defer rows.Close()
	out := map[string]*eventsv1.MirrorEffect{}
	for rows.Next() {
		var raw []byte
		b.must(rows.Scan(&raw))
		e := &eventsv1.MirrorEffect{}
		b.must(proto.Unmarshal(raw, e))
		if out[e.EffectId] != nil {
			b.t.Errorf("effect %s is in the outbox twice", e.EffectId)
		}
		out[e.EffectId] = e
	}
	return out
}

// TestBatchSellsWhatThereIs: greedy in offset order, skipping what does not fit; a rejected one gives
// back exactly its quantity and leaves no place behind.
func TestBatchSellsWhatThereIs(t *testing.T) {
	b := newBench(t)
	b.sell(3)
	two := func(m *shard.Message) { m.Quantity = 2 }
	msgs := []shard.Message{b.message("a", two), b.message("b", two), b.message("c"), b.message("d")}
	got := b.apply(msgs...)
	want := []shard.InboxOutcome{shard.Ordered, shard.Rejected, shard.Ordered, shard.Rejected}
	for i := range want {
		if got[i].Outcome != want[i] {
			t.Errorf("message %d: %+v, want %s", i, got[i], want[i])
		}
	}
	if got[1].Reason != reservation.SoldOut {
		t.Errorf("reason %s", got[1].Reason)
	}
	if s := b.stock(phone); s.Available != 0 || s.Reserved != 3 {
		t.Errorf("stock %+v", s)
	}
	e := b.effects()["settle-"+string(msgs[1].Reservation)]
	if e.GetStockDelta() != 2 || !e.GetSettle() || e.GetMark() != eventsv1.MarkAction_MARK_ACTION_DROP_IF_MINE ||
		e.GetState() != cellquotav1.RequestState_REQUEST_STATE_REJECTED || e.GetReason() != cellquotav1.Reason_REASON_SOLD_OUT ||
		e.GetAdmissionBuild().GetCount() != b.build.Count {
		t.Errorf("give-back %v", e)
	}
	if e := b.effects()["settle-"+string(msgs[0].Reservation)]; e.GetStockDelta() != 0 || e.GetOrderId() == "" || e.GetExpiresAtMs() == 0 {
		t.Errorf("order's effect %v", e)
	}
	b.invariants()
	// b tries again with a fitting quantity under a new request: the place is free, the stock is not.
	b.grant(phone, 1)
	if d := b.apply(b.message("b", func(m *shard.Message) { m.Request = "second" })); d[0].Outcome != shard.Ordered {
		t.Errorf("second try: %+v", d[0])
	}
	b.invariants()
}

// TestUserWithAPlace is K33 and K53: a reservation that is new, of a user who has an order: rejected
// in the same delivery with the winner named, and the next message is not touched.
func TestUserWithAPlace(t *testing.T) {
	b := newBench(t)
	b.sell(10)
	first := b.message("u")
	b.apply(first)
	again := b.message("u", func(m *shard.Message) { m.Request = "other" })
	got := b.apply(again, b.message("v"))
	if got[0].Outcome != shard.Rejected || got[0].Reason != reservation.AlreadyReserved || got[1].Outcome != shard.Ordered {
		t.Fatalf("%+v", got)
	}
	e := b.effects()["settle-"+string(again.Reservation)]
	if e.GetMark() != eventsv1.MarkAction_MARK_ACTION_SET_WINNER || e.GetWinnerReservationId() != string(first.Reservation) ||
		e.GetWinnerRequestId() != string(first.Request) || e.GetStockDelta() != 1 {
		t.Errorf("effect %v", e)
	}
	b.invariants()
}

// TestAnEarlierRejectionHasNoPlaceToGiveUp: a request that was rejected as sold out comes again under a
// later build, beside others: it is rejected as before, and the batch goes through.
func TestAnEarlierRejectionHasNoPlaceToGiveUp(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	b.order("first")
	if d := b.apply(b.message("late")); d[0].Reason != reservation.SoldOut {
		t.Fatalf("%+v", d)
	}
	b.raiseNext(string(phone))
	b.grant(phone, 1)
	got := b.apply(b.message("late"), b.message("next"))
	if got[0].Reason != reservation.SoldOut || got[1].Outcome != shard.Ordered {
		t.Errorf("%+v", got)
	}
	b.invariants()
}

// TestPurchaseScopeCampaign: one order per user over all SKUs.
func TestPurchaseScopeCampaign(t *testing.T) {
	b := newBench(t)
	b.sell(10, func(r *cellquotav1.CampaignRules) {
		r.Spec.PurchaseScope = cellquotav1.PurchaseScope_PURCHASE_SCOPE_CAMPAIGN
		r.Spec.Skus = append(r.Spec.Skus, rules("case").Spec.Skus...)
	})
	b.grant("case", 5)
	b.apply(b.message("u"))
	got := b.apply(b.message("u", func(m *shard.Message) { m.SKU = "case" }), b.message("w", func(m *shard.Message) { m.SKU = "case" }))
	if got[0].Reason != reservation.AlreadyReserved || got[1].Outcome != shard.Ordered {
		t.Fatalf("%+v", got)
	}
	b.invariants()
}

// TestReplaysChangeNothing is K75: the same messages in any order, at new offsets, from offset 0, in
// another partition: nothing changes, every outcome stays.
func TestReplaysChangeNothing(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	var msgs []shard.Message
	for i := range 8 {
		msgs = append(msgs, b.message(fmt.Sprintf("u%d", i)))
	}
	b.apply(msgs...)
	before := b.fingerprint()
	for i := len(msgs) - 1; i >= 0; i-- { // reversed, as new records
		m := msgs[i]
		m.Offset = b.next
		b.next++
		if d := b.apply(m); !d[0].Duplicate {
			t.Errorf("%s: %+v", m.User, d[0])
		}
	}
	from, _, err := b.store.ReadPosition(b.ctx, topic, 0)
	b.must(err)
	b.must(b.store.ResetPosition(b.ctx, from, shard.Position{Topic: topic, TopicID: topicID, Epoch: -1}))
	for _, d := range b.apply(msgs...) { // from offset 0
		if !d.Duplicate {
			t.Errorf("replay: %+v", d)
		}
	}
	other := shard.Position{Topic: topic, Partition: 1, TopicID: topicID}
	b.must(b.store.StartPosition(b.ctx, other))
	res, err := b.store.ApplyOrders(b.ctx, shard.Batch{From: other, To: msgs[7].Offset + 1, Messages: msgs})
	b.must(err)
	for _, d := range res.Decisions {
		if !d.Duplicate {
			t.Errorf("other partition: %+v", d)
		}
	}
	if after := b.fingerprint(); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
	b.invariants()
}

// fingerprint is everything that orders are made of.
func (b *bench) fingerprint() string {
	return one[string](b, `SELECT md5(string_agg(x, '|' ORDER BY x)) FROM (
		SELECT o::text x FROM cellquota.orders o UNION ALL SELECT r::text FROM cellquota.reservations r UNION ALL SELECT i::text FROM cellquota.inbox i
		UNION ALL SELECT l::text FROM cellquota.ledger l UNION ALL SELECT s::text FROM cellquota.stock s UNION ALL SELECT u::text FROM cellquota.buyers u
		UNION ALL SELECT o::text FROM cellquota.outbox o) t`)
}

// TestConcurrentDeliveries is K14 and K74: the same batch by many consumers at once: one applies it,
// the others learn that the position moved.
func TestConcurrentDeliveries(t *testing.T) {
	b := newBench(t)
	b.sell(100)
	var msgs []shard.Message
	for i := range 20 {
		msgs = append(msgs, b.message(fmt.Sprintf("u%d", i)))
	}
	batch := b.batch(msgs...)
	var wg sync.WaitGroup
	errs := make([]error, 100)
	for i := range errs {
		wg.Go(func() { _, errs[i] = b.store.ApplyOrders(b.ctx, batch) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, shard.ErrPositionLost):
			t.Error(err)
		}
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.orders"); won != 1 || n != 20 {
		t.Errorf("%d consumers won, %d orders", won, n)
	}
	b.invariants()
}

// TestOneUserFromManyPartitions: the same user in many partitions at once gets one order, whoever is
// first, and everybody else learns who it was.
func TestOneUserFromManyPartitions(t *testing.T) {
	b := newBench(t)
	b.sell(100)
	var wg sync.WaitGroup
	outcomes := make([]shard.Decision, 12)
	for i := range outcomes {
		from := shard.Position{Topic: topic, Partition: int32(i + 1), TopicID: topicID}
		b.must(b.store.StartPosition(b.ctx, from))
		m := b.message("u", func(m *shard.Message) { m.Request = ids.RequestID(fmt.Sprintf("r%d", i)) })
		wg.Go(func() {
			res, err := b.store.ApplyOrders(b.ctx, shard.Batch{From: from, To: m.Offset + 1, Messages: []shard.Message{m}})
			if err != nil {
				t.Error(err)
				return
			}
			outcomes[i] = res.Decisions[0]
		})
	}
	wg.Wait()
	orders := 0
	for _, d := range outcomes {
		if d.Outcome == shard.Ordered {
			orders++
		} else if d.Reason != reservation.AlreadyReserved {
			t.Errorf("%+v", d)
		}
	}
	if orders != 1 {
		t.Errorf("%d orders", orders)
	}
	b.invariants()
}

// TestPositionMismatch: another topic id is another log.
func TestPositionMismatch(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	batch := b.batch(b.message("u"))
	batch.From.TopicID = "topic-2"
	if _, err := b.store.ApplyOrders(b.ctx, batch); !errors.Is(err, shard.ErrPositionMismatch) {
		t.Fatal(err)
	}
	if err := b.store.ResetPosition(b.ctx, batch.From, batch.From); !errors.Is(err, shard.ErrPositionLost) {
		t.Fatal(err)
	}
}

// TestJudgedInTheShard: what needs rows, through the real ones.
func TestJudgedInTheShard(t *testing.T) {
	b := newBench(t)
	b.sell(10)
	if _, err := b.admin.Exec(b.ctx, "UPDATE cellquota.buckets SET state = 'CLOSED' WHERE bucket_from = 0"); err != nil {
		t.Fatal(err)
	}
	if d := b.apply(b.message("moved")); d[0].Reason != reservation.Moved {
		t.Errorf("closed bucket: %+v", d[0])
	}
	if _, err := b.admin.Exec(b.ctx, "UPDATE cellquota.buckets SET state = 'OPEN'"); err != nil {
		t.Fatal(err)
	}
	// MOVED is not final: the same request may come again under another build.
	old := b.build
	b.raiseNext(string(phone))
	got := b.apply(
		b.message("moved"),
		b.message("late", func(m *shard.Message) { m.Build = old }),
		b.message("cheap", func(m *shard.Message) { m.Price.Tenthousandths = 1 }),
		b.message("unknown", func(m *shard.Message) { m.SKU = "nothing" }),
		b.message("domain", func(m *shard.Message) { m.Domain = "east" }),
	)
	for i, want := range []reservation.Reason{"", reservation.LostAdmission, reservation.Malformed, reservation.Malformed, reservation.Moved} {
		if got[i].Reason != want {
			t.Errorf("message %d: %+v, want %q", i, got[i], want)
		}
	}
	// A rejection with a row is final for its request.
	if d := b.apply(b.message("late")); d[0].Reason != reservation.LostAdmission {
		t.Errorf("a final rejection was overturned: %+v", d[0])
	}
	for _, ahead := range []ids.Build{{Fence: 2, Count: 1}, {Fence: 1, Count: 99}} {
		m := b.message("future", func(m *shard.Message) { m.Build = ahead })
		if _, err := b.store.ApplyOrders(b.ctx, b.batch(m)); !errors.Is(err, shard.ErrShardBehind) {
			t.Errorf("build %s: %v", ahead, err)
		}
		b.next--
	}
	b.invariants()
}

// raiseNext mints the next build and raises it by a barrier in the only partition.
func (b *bench) raiseNext(scope string) {
	b.t.Helper()
	m, err := b.store.MintBuild(b.ctx, campaign, scope, "test", time.Second)
	b.must(err)
	if !m.NeedsBarrier {
		b.t.Fatal("no barrier needed although a build was raised")
	}
	from, _, err := b.store.ReadPosition(b.ctx, topic, 0)
	b.must(err)
	raised, err := b.store.ApplyBarrier(b.ctx, from, b.next+1, 0, shard.Barrier{Campaign: campaign, ScopeKey: scope, Build: m.Build, Partitions: 1})
	b.must(err)
	if !raised {
		b.t.Fatal("the only barrier did not raise the build")
	}
	b.next++
	b.build = m.Build
}

func TestBatchRefusesWhatItCannotMean(t *testing.T) {
	b := newBench(t)
	b.sell(1)
	m := b.message("u")
	for name, change := range map[string]func(*shard.Batch){
		"user twice":       func(x *shard.Batch) { x.Messages = append(x.Messages, b.message("u")); x.To += 5 },
		"position too low": func(x *shard.Batch) { x.To = m.Offset },
		"offset below":     func(x *shard.Batch) { x.From.Next = m.Offset + 1; x.To += 5 },
	} {
		batch := b.batch(m)
		change(&batch)
		if _, err := b.store.ApplyOrders(b.ctx, batch); !errors.Is(err, shard.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBadDataNamesItself: a batch with a value that PostgreSQL refuses is ErrBadData as a whole and
// nothing of it remains; the single message is then parked, its unit stays taken in the mirror.
func TestBadDataNamesItself(t *testing.T) {
	b := newBench(t)
	b.sell(5)
	bad := b.message("x", func(m *shard.Message) { m.DeviceID = "nul\x00byte" })
	batch := b.batch(bad, b.message("y"))
	if _, err := b.store.ApplyOrders(b.ctx, batch); !errors.Is(err, shard.ErrBadData) {
		t.Fatal(err)
	}
	if n := one[int](b, "SELECT count(*) FROM cellquota.buyers"); n != 0 {
		t.Fatalf("%d places remain of a refused batch", n)
	}
	park := shard.Parking{Offset: bad.Offset, ErrorClass: "22", Value: []byte{1, 0, 2}, Message: &bad}
	b.must(b.store.ApplyParking(b.ctx, batch.From, bad.Offset+1, 0, park))
	e := b.effects()["settle-"+string(bad.Reservation)]
	if e.GetState() != cellquotav1.RequestState_REQUEST_STATE_MANUAL_REVIEW || e.GetStockDelta() != 0 || !e.GetSettle() ||
		e.GetMark() != eventsv1.MarkAction_MARK_ACTION_UNSPECIFIED {
		t.Errorf("parked effect %v", e)
	}
	if err := b.store.ApplyParking(b.ctx, batch.From, bad.Offset+1, 0, park); !errors.Is(err, shard.ErrPositionLost) {
		t.Errorf("parked twice: %v", err)
	}
	worse := b.message("nul\x00user")
	b.must(b.store.ApplyParking(b.ctx, b.batch(worse).From, worse.Offset+1, 0, shard.Parking{Offset: worse.Offset, ErrorClass: "22", Value: []byte{3}, Message: &worse}))
	if n := one[int](b, "SELECT count(*) FROM cellquota.parked"); n != 2 {
		t.Errorf("%d parked", n)
	}
	b.invariants()
}

func BenchmarkOrders(bm *testing.B) {
	b := newBench(bm)
	b.sell(900_000_000)
	const size = 500
	from, _, err := b.store.ReadPosition(b.ctx, topic, 0)
	b.must(err)
	n := 0
	batches := make([]shard.Batch, 0, bm.N)
	for range bm.N {
		batch := shard.Batch{From: from}
		for range size {
			batch.Messages = append(batch.Messages, b.message(fmt.Sprintf("user-%08d", n)))
			n++
		}
		batch.To = b.next
		from.Next = b.next
		batches = append(batches, batch)
	}
	bm.ResetTimer()
	for _, batch := range batches {
		if _, err := b.store.ApplyOrders(b.ctx, batch); err != nil {
			bm.Fatal(err)
		}
	}
	bm.ReportMetric(float64(bm.N*size)/bm.Elapsed().Seconds(), "orders/s")
}
