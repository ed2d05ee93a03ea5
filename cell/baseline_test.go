package cell

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func baselineOf(rps int32) func(*pb.CampaignRules) {
	return func(r *pb.CampaignRules) { r.Spec.Gate = &pb.GateRules{BaselineRps: rps} } // of two SKUs: half of it each
}

// eventually asks until a first attempt of a new user is answered so.
func (p *process) eventually(name string, outcome pb.AdmitOutcome) (user string, view *pb.RequestView) {
	p.w.t.Helper()
	tries := 0
	testkit.Eventually(p.w.t, patience, func() error {
		tries++
		user = fmt.Sprint(name, tries)
		a := p.exchange(p.w.ask(user, "r1"))[0]
		if view = a.GetRequest(); a.GetOutcome() != outcome {
			return fmt.Errorf("%s is told %v", user, a)
		}
		return nil
	})
	return user, view
}

// TestBaselineWhileRedisIsAway is R-084: without Redis the shard sells on at the campaign's rate, repeats
// have their answers, nobody buys twice, and the mirror that comes back was built from all of it.
func TestBaselineWhileRedisIsAway(t *testing.T) {
	w := newWorld(t)
	p := w.start("--direct-baseline-after=200ms").ready()
	w.install(1, baselineOf(20))
	w.grant(1, 100)
	p.stocked(100)
	before := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	p.reaches("alice", "r1", before.GetReceipt(), pending)

	w.redis.Kill(t)
	user, bought := p.eventually("bob", pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	if bought.GetState() != pending || bought.GetAck() != pb.Ack_ACK_DATABASE || bought.GetReceipt() == "" {
		t.Fatalf("accepted as %v", bought)
	}
	if again := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED).GetRequest(); again.GetReservationId() != before.GetReservationId() {
		t.Fatalf("repeated as %v, first %v", again, before)
	}
	want(t, p.exchange(w.ask("alice", "r2"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED)
	var asks []*pb.Ask
	for i := range 60 {
		asks = append(asks, w.ask(fmt.Sprint("crowd-", i), "r1"))
	}
	throttled := 0
	for _, a := range p.exchange(asks...) {
		if a.GetOutcome() == pb.AdmitOutcome_ADMIT_OUTCOME_THROTTLED {
			throttled++
		}
	}
	if throttled < 40 { // 10 per second and SKU, one second's worth at once
		t.Fatalf("%d of 60 at once were throttled at 20 per second for two SKUs", throttled)
	}

	w.redis.Start(t)
	sold := w.count("SELECT count(*) FROM cellquota.orders")
	p.stocked(100 - sold)
	if again := want(t, p.exchange(w.ask(user, "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED).GetRequest(); again.GetReservationId() != bought.GetReservationId() {
		t.Fatalf("by the mirror: %v, first %v", again, bought)
	}
	want(t, p.exchange(w.ask(user, "r2"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ALREADY_RESERVED)
	if late := want(t, p.exchange(w.ask("late", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest(); late.GetAck() != pb.Ack_ACK_KAFKA {
		t.Fatalf("after Redis is back: %v", late)
	}
}

// TestBaselineBackAndForth is the property: whatever order Redis and the process die and come back in,
// with the same users asking all the time under two request ids, no user has two orders, no unit is sold
// twice, and the last mirror is the shard's.
func TestBaselineBackAndForth(t *testing.T) {
	const users, units, rounds = 500, 350, 5
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed))
	w := newWorld(t)
	p := w.start("--direct-baseline-after=100ms").ready()
	w.install(1, baselineOf(80))
	w.grant(1, units)
	p.stocked(units)
	var mu sync.Mutex // of p
	ctx, stop := context.WithCancel(w.ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			mu.Lock()
			one := p
			mu.Unlock()
			_, _ = one.answer(ctx, fmt.Sprint("user-", n%users), fmt.Sprint("r", n/users%2))
		}
	})
	for range rounds {
		switch random.IntN(3) {
		case 0:
			w.redis.Kill(t)
			testkit.Hold(t, time.Duration(100+random.IntN(900))*time.Millisecond, "Redis is away")
			w.redis.Start(t)
		case 1:
			w.redis.Kill(t)
			testkit.Hold(t, time.Duration(random.IntN(700))*time.Millisecond, "Redis is away when the process stops")
			mu.Lock()
			p.end()
			p = w.start("--direct-baseline-after=100ms")
			mu.Unlock()
			testkit.Hold(t, time.Duration(random.IntN(700))*time.Millisecond, "the new process has no Redis")
			w.redis.Start(t)
		default:
			mu.Lock()
			p.end()
			p = w.start("--direct-baseline-after=100ms")
			mu.Unlock()
		}
		testkit.Hold(t, time.Duration(random.IntN(600))*time.Millisecond, "it sells")
	}
	stop()
	asking.Wait()
	p.ready()
	testkit.Eventually(t, patience, func() error {
		available := w.count("SELECT available FROM cellquota.stock WHERE sku_id = $1", phone)
		m, err := p.client.Facts.GetMirror(w.ctx, &pb.GetMirrorRequest{CampaignId: campaign, SkuId: phone})
		switch {
		case err != nil:
			return err
		case m.GetOutstanding() != 0 || m.GetStreamLength() != 0:
			return errors.New("admissions are on their way")
		case m.GetStock() != available:
			return fmt.Errorf("mirror %d, shard %d", m.GetStock(), available)
		}
		return nil
	})
	if n := w.count("SELECT count(*) FROM (SELECT user_id FROM cellquota.orders GROUP BY user_id HAVING count(*) > 1) x"); n != 0 {
		t.Errorf("%d users have two orders", n)
	}
	orders, available := w.count("SELECT count(*) FROM cellquota.orders"), w.count("SELECT available FROM cellquota.stock WHERE sku_id = $1", phone)
	if orders+available != units {
		t.Errorf("%d orders and %d left of %d units", orders, available, units)
	}
	t.Logf("%d orders, %d of them by the shard alone", orders, w.count("SELECT count(*) FROM cellquota.ledger WHERE source = 'direct'"))
}

// TestWhoAloneLosesRedisLeavesTheOthersAlone: of two processes one is cut off from Redis. It closes the mirror of
// the other once, learns from the newer build that Redis is there, and lets it sell.
func TestWhoAloneLosesRedisLeavesTheOthersAlone(t *testing.T) {
	w := newWorld(t)
	wire := fault.New(t, w.redis.Addr())
	p := w.start("--direct-baseline-after=100ms").ready()
	q := w.start("--direct-baseline-after=100ms", "--redis-addrs="+wire.Addr()).ready()
	w.install(1, baselineOf(20))
	w.grant(1, 1000)
	p.stocked(1000)
	q.stocked(1000)
	minted := func() int64 {
		return w.count("SELECT minted_count FROM cellquota.v_mirrors WHERE scope_key = $1", phone)
	}
	before := minted()
	wire.Break()
	testkit.Eventually(t, patience, func() error {
		if n := minted(); n < before+2 {
			return fmt.Errorf("build %d, from %d: no try and no rebuild", n, before)
		}
		return nil
	})
	p.eventually("after", pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	after := minted()
	testkit.Hold(t, 4*time.Second, "one process has no Redis")
	if n := minted(); n != after {
		t.Errorf("%d more builds", n-after)
	}
	want(t, p.exchange(w.ask("late", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
}
