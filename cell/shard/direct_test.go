package shard_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// sellDirect is a campaign that has no mirror.
func (b *bench) sellDirect(units int32, change ...func(*cellquotav1.CampaignRules)) {
	b.t.Helper()
	r := rules(phone)
	r.Spec.Admission = cellquotav1.AdmissionMode_ADMISSION_MODE_DATABASE
	for _, f := range change {
		f(r)
	}
	b.install(r)
	b.grant(phone, units)
}

func wish(user string, change ...func(*shard.DirectAsk)) shard.DirectAsk {
	a := shard.DirectAsk{
		Campaign: campaign, SKU: phone, User: ids.UserID(user), Request: ids.RequestID("req-" + user), Quantity: 1,
		PermitExpiresAt: time.Now().Add(time.Hour),
	}
	for _, f := range change {
		f(&a)
	}
	return a
}

func (b *bench) direct(asks ...shard.DirectAsk) []shard.DirectResult {
	b.t.Helper()
	out, err := b.store.ApplyDirect(b.ctx, asks)
	b.must(err)
	return out
}

// A request's life without mirror and log: ordered, replayed under its own id, refused to its user's
// other requests by the order's state, and nothing left behind by what was refused.
func TestDirectOrder(t *testing.T) {
	b := newBench(t)
	b.sellDirect(3)
	first := b.direct(wish("ann"))[0]
	if first.Outcome != shard.DirectOrdered || first.Row.Order == "" || first.Row.ExpiresAt.IsZero() || first.Row.Build != (ids.Build{Fence: 1, Count: 1}) {
		t.Fatalf("%+v", first)
	}
	if again := b.direct(wish("ann"))[0]; again.Outcome != shard.DirectReplayed || again.Row.Reservation != first.Row.Reservation ||
		again.Row.OrderState != reservation.PendingPayment || !again.Row.ExpiresAt.Equal(first.Row.ExpiresAt.Truncate(time.Microsecond)) {
		t.Fatalf("the repeat: %+v, first %+v", again, first)
	}
	if c := b.direct(wish("ann", func(a *shard.DirectAsk) { a.Quantity = 2 }))[0]; c.Outcome != shard.DirectConflict {
		t.Fatalf("other parameters: %+v", c)
	}
	other := wish("ann", func(a *shard.DirectAsk) { a.Request = "other" })
	if h := b.direct(other)[0]; h.Outcome != shard.DirectHeld || h.Reason != reservation.AlreadyReserved || h.Row.Request != "req-ann" {
		t.Fatalf("her other request: %+v", h)
	}
	price, _ := reservation.ParseMoney("4999.00", "CNY")
	steps, err := b.store.StepOrders(b.ctx, time.Minute, []shard.Step{{Kind: shard.StepSucceeded, Order: first.Row.Order, Payment: "p", Amount: price, FromChannel: true}})
	b.must(err)
	b.must(steps[0].Err)
	if h := b.direct(other)[0]; h.Reason != reservation.AlreadyPurchased || h.Row.OrderState != reservation.OrderPaid {
		t.Fatalf("once paid: %+v", h)
	}
	out := b.direct(wish("bob", func(a *shard.DirectAsk) { a.Quantity = 5 }), wish("carl", func(a *shard.DirectAsk) { a.Quantity = 2 }), wish("dan"))
	if out[0].Outcome != shard.DirectSoldOut || out[0].Left != 0 || out[1].Outcome != shard.DirectOrdered || out[2].Outcome != shard.DirectSoldOut {
		t.Fatalf("two units for three: %+v", out)
	}
	pre, err := b.store.PrecheckDirect(b.ctx, []shard.DirectAsk{wish("ann"), wish("bob"), wish("bob", func(a *shard.DirectAsk) { a.Domain = "west" })})
	b.must(err)
	if pre[0].Outcome != shard.DirectHeld || pre[0].Reason != reservation.AlreadyPurchased || pre[1].Outcome != shard.DirectClear || pre[2].Outcome != shard.DirectMoved {
		t.Fatalf("precheck: %+v", pre)
	}
	if n := one[int64](b, "SELECT count(*) FROM cellquota.inbox"); n != 2 {
		t.Fatalf("%d inbox rows of 2 orders", n)
	}
	if n := one[int64](b, "SELECT count(*) FROM cellquota.outbox WHERE target = 'MIRROR' AND event_type IN ('direct', 'settle')"); n != 0 {
		t.Fatalf("%d effects for a mirror that is not there", n)
	}
	b.invariants()
}

// A request that was told MOVED may come again when the bucket came back, but as it was: with other
// parameters its id is used (409), and that is no fault of ours (503).
func TestDirectAfterMoved(t *testing.T) {
	b := newBench(t)
	b.sell(3, func(r *cellquotav1.CampaignRules) { r.Buckets[0].Ranges[0].BucketTo = int32(ids.Bucket("ann")) - 1 })
	asWished := ids.Fingerprint(campaign, phone, "ann", 1)
	if d := b.apply(b.message("ann", func(m *shard.Message) { m.Fingerprint = asWished })); d[0].Reason != reservation.Moved {
		t.Fatalf("%+v", d[0])
	}
	b.exec(b.admin, "UPDATE cellquota.buckets SET bucket_to = $1", ids.Buckets-1) // it came back,
	b.exec(b.admin, "DELETE FROM cellquota.mirrors")                              // and is sold without a mirror
	out, err := b.store.ApplyDirect(b.ctx, []shard.DirectAsk{wish("ann", func(a *shard.DirectAsk) { a.Quantity = 2 })})
	if err != nil || out[0].Outcome != shard.DirectConflict {
		t.Fatalf("changed: %+v, %v", out, err)
	}
	b.invariants()
}

// Everything that is judged in the shard has an outcome of its own and leaves no row.
func TestDirectRefusals(t *testing.T) {
	now := time.Now()
	for name, row := range map[string]struct {
		rules func(*cellquotav1.CampaignRules)
		ask   func(*shard.DirectAsk)
		want  shard.DirectOutcome
	}{
		"not started":      {rules: func(r *cellquotav1.CampaignRules) { r.Spec.OpenAt = timestamppb.New(now.Add(time.Minute)) }, want: shard.DirectNotStarted},
		"ended":            {rules: func(r *cellquotav1.CampaignRules) { r.Spec.CloseAt = timestamppb.New(now.Add(-time.Minute)) }, want: shard.DirectEnded},
		"cancelled":        {rules: func(r *cellquotav1.CampaignRules) { r.Cancelled = true }, want: shard.DirectEnded},
		"not our bucket":   {rules: func(r *cellquotav1.CampaignRules) { r.Buckets[0].Ranges[0].BucketTo = int32(ids.Bucket("ann")) - 1 }, want: shard.DirectMoved},
		"expired permit":   {ask: func(a *shard.DirectAsk) { a.PermitExpiresAt = now.Add(-time.Second) }, want: shard.DirectPermitExpired},
		"unknown SKU":      {ask: func(a *shard.DirectAsk) { a.SKU = "nothing" }, want: shard.DirectUnknown},
		"too many":         {ask: func(a *shard.DirectAsk) { a.Quantity = 6 }, want: shard.DirectUnknown},
		"no mirror's sale": {ask: func(a *shard.DirectAsk) { a.Baseline = 5 }, want: shard.DirectClosed},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.sellDirect(3, func(r *cellquotav1.CampaignRules) {
				if row.rules != nil {
					row.rules(r)
				}
			})
			ask := wish("ann")
			if row.ask != nil {
				row.ask(&ask)
			}
			got := b.direct(ask)[0]
			if got.Outcome != row.want || (row.want == shard.DirectNotStarted) != (got.Opens > 0) {
				t.Fatalf("%+v, want %d", got, row.want)
			}
			if n := one[int64](b, "SELECT (SELECT count(*) FROM cellquota.inbox) + (SELECT count(*) FROM cellquota.buyers)"); n != 0 {
				t.Fatalf("%d rows", n)
			}
		})
	}
}

// Many processes, repeats and second requests of the same users: one order per user, the units and not
// one more, and a request has one reservation however often it is asked.
func TestDirectCrowd(t *testing.T) {
	const users, units, processes = 60, 40, 4
	b := newBench(t)
	b.sellDirect(units)
	var mu sync.Mutex
	made := map[string]map[ids.ReservationID]bool{}
	var wg sync.WaitGroup
	for p := range processes {
		store, _ := b.open(shard.Config{}, nil)
		store.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
		wg.Go(func() {
			for round := range 6 {
				var asks []shard.DirectAsk
				for u := range users {
					if (u+round+p)%3 == 0 {
						asks = append(asks, wish(fmt.Sprint("u", u), func(a *shard.DirectAsk) { a.Request = ids.RequestID(fmt.Sprint("r", (round+p)%2)) }))
					}
				}
				out, err := store.ApplyDirect(b.ctx, asks)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, r := range out {
					if r.Outcome == shard.DirectOrdered || r.Outcome == shard.DirectReplayed {
						key := string(asks[i].User) + "/" + string(asks[i].Request)
						if made[key] == nil {
							made[key] = map[ids.ReservationID]bool{}
						}
						made[key][r.Row.Reservation] = true
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for key, set := range made {
		if len(set) != 1 {
			t.Errorf("%s has %d reservations", key, len(set))
		}
	}
	if n := one[int64](b, "SELECT count(*) FROM cellquota.orders"); n != units {
		t.Errorf("%d orders of %d units", n, units)
	}
	b.invariants()
}

// The shard alone sells what a mirror sold only between the barrier's end and the next build, at its
// rate for the whole cell, and leaves the mirror what it took.
func TestBaseline(t *testing.T) {
	b := newBench(t)
	b.sell(100)
	other, _ := b.open(shard.Config{}, nil)
	other.SetWriter(shard.Writer{FenceVersion: 1, Group: group})
	slow := func(user string) shard.DirectAsk { return wish(user, func(a *shard.DirectAsk) { a.Baseline = 3 }) }
	if got := b.direct(slow("early"))[0]; got.Outcome != shard.DirectClosed {
		t.Fatalf("before it is open: %+v", got)
	}
	if got := b.direct(wish("early"))[0]; got.Outcome != shard.DirectClosed {
		t.Fatalf("as if the campaign had no mirror: %+v", got)
	}
	admitted := b.message("old") // of the build that the mirror had

	m, err := b.store.MintBuild(b.ctx, campaign, string(phone), "p1", time.Minute)
	b.must(err)
	if err := b.store.OpenBaseline(b.ctx, campaign, string(phone), "p1", m.Build); err == nil {
		t.Fatal("opened before the barrier")
	}
	from, _, err := b.store.ReadPosition(b.ctx, topic, 0)
	b.must(err)
	_, err = b.store.ApplyBarrier(b.ctx, from, b.next+1, 0, shard.Barrier{Campaign: campaign, ScopeKey: string(phone), Build: m.Build, Partitions: 1})
	b.must(err)
	b.must(b.store.OpenBaseline(b.ctx, campaign, string(phone), "p1", m.Build))
	if raised, open, err := b.store.Baseline(b.ctx, campaign, string(phone)); err != nil || !open || raised != m.Build {
		t.Fatalf("%v %t %v", raised, open, err)
	}

	var ordered, throttled int
	for i := range 4 {
		store := b.store
		if i%2 == 1 {
			store = other
		}
		out, err := store.ApplyDirect(b.ctx, []shard.DirectAsk{slow(fmt.Sprint("a", i)), slow(fmt.Sprint("b", i))})
		b.must(err)
		for _, r := range out {
			switch r.Outcome {
			case shard.DirectOrdered:
				ordered++
				if r.Row.Build != m.Build {
					t.Fatalf("under %s", r.Row.Build)
				}
			case shard.DirectThrottled:
				throttled++
			default:
				t.Fatalf("%+v", r)
			}
		}
	}
	if ordered < 3 || ordered > 5 || throttled == 0 { // 3 at once, and what a slow machine's second or so brings
		t.Fatalf("%d ordered, %d throttled at 3 per second", ordered, throttled)
	}
	admitted.Offset = b.next + 1
	b.next += 2
	if d := b.apply(admitted); d[0].Reason != reservation.LostAdmission {
		t.Fatalf("an admission of the mirror before: %+v", d[0])
	}
	if n := one[int64](b, "SELECT count(*) FROM cellquota.outbox WHERE event_type = 'direct'"); n != int64(ordered) {
		t.Fatalf("%d effects of %d orders", n, ordered)
	}

	// Redis is back: another process mints although the rate is used up ahead.
	next, err := b.store.MintBuild(b.ctx, campaign, string(phone), "p2", time.Minute)
	b.must(err)
	if got := b.direct(slow("late"))[0]; got.Outcome != shard.DirectClosed {
		t.Fatalf("while the mirror is built: %+v", got)
	}
	if got := b.direct(slow("a0"))[0]; got.Outcome != shard.DirectReplayed {
		t.Fatalf("a repeat meanwhile: %+v", got)
	}
	if !next.NeedsBarrier {
		t.Fatal("no barrier after a baseline")
	}
	b.invariants()
}
