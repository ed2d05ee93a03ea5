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

// writers are the processes that write the gates.
func writers(all ...*process) (out []*process) {
	for _, p := range all {
		if p.parts.writer.held.Load() {
			out = append(out, p)
		}
	}
	return out
}

// TestGatesHaveOneWriter: of the processes that admit, one writes the gates; when it stops another does,
// and a process without the role never does.
func TestGatesHaveOneWriter(t *testing.T) {
	w := newWorld(t)
	other := w.start("--roles=orders,relay,outbox,closer")
	a, b := w.start("--roles=admission").ready(), w.start("--roles=admission").ready()
	w.install(1)
	w.grant(1, 10)
	oneOf := func(all ...*process) *process {
		t.Helper()
		var led []*process
		testkit.Eventually(t, patience, func() error {
			if led = writers(all...); len(led) != 1 {
				return fmt.Errorf("%d processes write the gates", len(led))
			}
			return nil
		})
		return led[0]
	}
	first := oneOf(a, b)
	first.stocked(10)
	first.end()
	rest := a
	if first == a {
		rest = b
	}
	oneOf(rest)
	if other.parts.writer != nil {
		t.Fatal("a process that does not admit judges gates")
	}
	w.install(2, func(r *pb.CampaignRules) { r.State = pb.CampaignState_CAMPAIGN_STATE_PAUSED })
	rest.paused("bob", "paused by an operator") // by the new writer, in the mirror
}

// TestOneProcessLosesRedis: the process that wrote the gates lost Redis, alone. Another one writes them
// into the mirrors, which the first one closed once.
func TestOneProcessLosesRedis(t *testing.T) {
	w := newWorld(t)
	w.start("--roles=orders,relay,outbox,closer")
	proxy := fault.New(t, w.redis.Addr())
	cut := w.start("--roles=admission", "--redis-addrs="+proxy.Addr(), "--direct-baseline-after=100ms").ready()
	w.install(1, baselineOf(20))
	w.grant(1, 10)
	cut.stocked(10)
	testkit.Eventually(t, patience, func() error {
		if len(writers(cut)) == 0 {
			return errors.New("nobody writes the gates")
		}
		return nil
	})
	well := w.start("--roles=admission").ready()
	proxy.Break()
	const builds = "SELECT coalesce(min(minted_count), 0) FROM cellquota.mirrors"
	testkit.Eventually(t, patience, func() error {
		if n := w.count(builds); n < 3 { // the first, the one of the process that is cut off, and the one above it
			return fmt.Errorf("%d builds", n)
		}
		if led := writers(cut, well); len(led) != 1 || led[0] != well {
			return fmt.Errorf("%d processes write the gates, not the one that has Redis", len(led))
		}
		return nil
	})
	well.stocked(10)
	want(t, well.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
}

// TestProcessesComeAndGo is C-14: three processes that share the roles among them, each stopped and
// started at random during a sale. Everything that was accepted ends as an order, nothing happens twice,
// and the mirror is the shard's in the end.
func TestProcessesComeAndGo(t *testing.T) {
	const users, units, stops = 400, 300, 6
	roles := []string{"--roles=admission,orders", "--roles=admission,relay,outbox", "--roles=orders,outbox,closer,relay"}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed))
	w := newWorld(t)
	var mu sync.RWMutex // of running
	running := make([]*process, len(roles))
	for i, r := range roles {
		running[i] = w.start(r)
	}
	for _, p := range running {
		p.ready()
	}
	w.install(1)
	w.grant(1, units)
	running[0].stocked(units)

	accepted := map[string]bool{} // users, by the asker's goroutine alone
	ctx, stop := context.WithCancel(w.ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			mu.RLock()
			one := running[n%2] // the two that admit
			mu.RUnlock()
			user := fmt.Sprint("user-", n%users)
			if a, err := one.answer(ctx, user, "r1"); err == nil && (a.GetOutcome() == pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED || a.GetOutcome() == pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED) {
				accepted[user] = true
			}
		}
	})
	for range stops {
		i := random.IntN(len(roles))
		mu.Lock()
		running[i].end()
		mu.Unlock()
		testkit.Hold(t, time.Duration(random.IntN(400))*time.Millisecond, "a process less")
		mu.Lock()
		running[i] = w.start(roles[i])
		mu.Unlock()
		testkit.Hold(t, time.Duration(200+random.IntN(400))*time.Millisecond, "all there")
	}
	stop()
	asking.Wait()
	for _, p := range running {
		p.ready()
	}
	testkit.Eventually(t, 2*patience, func() error {
		m, err := running[0].client.Facts.GetMirror(w.ctx, &pb.GetMirrorRequest{CampaignId: campaign, SkuId: phone})
		available := w.count("SELECT available FROM cellquota.stock WHERE sku_id = $1", phone)
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
	for user := range accepted {
		if n := w.count("SELECT count(*) FROM cellquota.orders WHERE user_id = $1", user); n != 1 {
			t.Errorf("%s was accepted and has %d orders", user, n)
		}
	}
	orders, available := w.count("SELECT count(*) FROM cellquota.orders"), w.count("SELECT available FROM cellquota.stock WHERE sku_id = $1", phone)
	if orders+available != units || len(accepted) == 0 || len(writers(running[0], running[1])) > 1 {
		t.Errorf("%d orders and %d left of %d units, %d users accepted, %d writers", orders, available, units, len(accepted), len(writers(running[0], running[1])))
	}
}

// answer sends one ask over a stream of its own; an error means that its outcome is unknown.
func (p *process) answer(ctx context.Context, user, request string) (*pb.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stream, err := p.client.Admissions.Exchange(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&pb.ExchangeRequest{Asks: []*pb.Ask{p.w.ask(user, request)}}); err != nil {
		return nil, err
	}
	m, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	return m.GetAnswers()[0], nil
}
