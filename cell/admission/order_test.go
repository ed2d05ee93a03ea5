package admission

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// K35: the effects of one sale come in any order and any number of times: the stock,
// the record and the mark end as they do in order.
func TestEffectsInAnyOrderEndAlike(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	count := int64(1)
	rapid.Check(t, func(t *rapid.T) {
		count++
		im := image(skuScope, ids.Build{Fence: 1, Count: count})
		if err := m.Install(ctx, im); err != nil {
			t.Fatal(err)
		}
		m.Expect(skuScope, im.Build)
		g := m.one(ctx, ask("ann", "r1")).Granted
		of := func(id string, m *eventsv1.MirrorEffect) Effect {
			m.EffectId, m.CampaignId, m.SkuId = id, string(skuScope.Campaign), string(testSKU)
			return Effect{Scope: skuScope, Build: im.Build, Effect: m}
		}
		mine := func(version int64, state cellquotav1.RequestState) *eventsv1.MirrorEffect {
			return &eventsv1.MirrorEffect{
				UserId: "ann", RequestId: "r1", ReservationId: string(g.Reservation), State: state, AggregateVersion: version,
				OrderId: string(g.Reservation.Order()),
			}
		}
		settle := mine(1, cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT)
		settle.Settle = true
		release := mine(3, cellquotav1.RequestState_REQUEST_STATE_CLOSED)
		release.StockDelta, release.StockVersion = 1, 7
		list := []Effect{
			of(events.SettleEffectID(string(g.Reservation)), settle),
			of(events.ReleaseEffectID(string(g.Reservation)), release),
			of("grant", &eventsv1.MirrorEffect{StockDelta: 5, StockVersion: 6}),
			of("return", &eventsv1.MirrorEffect{StockDelta: -12, StockVersion: 8}),
			of("counted by the base", &eventsv1.MirrorEffect{StockDelta: 100, StockVersion: 5}),
		}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(list)-1), 0, 6).Draw(t, "repeats") {
			list = append(list, list[i])
		}
		for i, r := range m.ApplyEffects(ctx, rapid.Permutation(list).Draw(t, "order")) {
			if r.Err != nil || !r.Change.Done() {
				t.Fatalf("effect %d: %s %v", i, r.Change, r.Err)
			}
		}
		f, err := m.Facts(ctx, skuScope, testSKU)
		if err != nil || f.Stock != 10-1+1+5-12 || f.Outstanding != 0 || f.OutstandingUnits != 0 {
			t.Fatalf("%+v %v", f, err)
		}
		if r := m.one(ctx, ask("ann", "r1")); r.State != cellquotav1.RequestState_REQUEST_STATE_CLOSED {
			t.Fatalf("the request reads %s", r.State)
		}
		if r := m.one(ctx, ask("ann", "r2")); r.Outcome != OrderClosed {
			t.Fatalf("her next request: %s", r.Outcome)
		}
	})
}

// BenchmarkAdmit is what one process gets out of one Redis: arrivals in pipelines of
// a hundred, each accepted.
func BenchmarkAdmit(b *testing.B) {
	im := image(skuScope, build1)
	im.StreamMax, im.Stocks[0].Available, im.Stocks[0].Gate.Bound = 0, 1<<40, 1<<40
	m := newMirror(b, im)
	ctx := b.Context()
	const batch = 100
	asks := make([]Ask, batch)
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		for j := range asks {
			asks[j] = ask(fmt.Sprint("u", i+j), "r1")
		}
		for _, r := range m.Admit(ctx, asks) {
			if r.Outcome != Accepted {
				b.Fatalf("%s %v", r.Outcome, r.Err)
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "asks/s")
}

// BenchmarkSoldOut is the same when there is nothing left.
func BenchmarkSoldOut(b *testing.B) {
	im := image(skuScope, build1)
	im.Stocks[0].Available = 0
	m := newMirror(b, im)
	ctx := b.Context()
	const batch = 100
	asks := make([]Ask, batch)
	for j := range asks {
		asks[j] = ask(fmt.Sprint("u", j), "r1")
	}
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		m.Admit(ctx, asks)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "asks/s")
}
