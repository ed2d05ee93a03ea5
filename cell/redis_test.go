package cell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// redisKinds are the ways in which a cell's Redis can be run. start makes the world's processes use it,
// before any is started, and gives the way in which its mirrors are lost.
var redisKinds = []struct {
	name  string
	start func(t *testing.T, w *world) (lose func())
}{
	{"standalone", func(t *testing.T, w *world) func() {
		t.Helper()
		return func() { w.redis.Restart(t) }
	}},
	{"sentinel", func(t *testing.T, w *world) func() {
		t.Helper()
		g := w.sentinels(1)
		return func() { g.Primary.Kill(t); g.AwaitPromoted(t) }
	}},
	{"cluster", func(t *testing.T, w *world) func() {
		t.Helper()
		n := testkit.RedisCluster(t, 1, 0)
		w.store = []string{"--redis-mode=cluster", "--redis-addrs=" + n.Addrs()[0]}
		return func() { n.Masters[0].Restart(t) }
	}},
}

// sentinels makes the world's Redis a primary and a replica behind so many sentinels.
func (w *world) sentinels(n int) *testkit.RedisGroup {
	w.t.Helper()
	g := testkit.RedisReplicated(w.t, n)
	password := filepath.Join(w.t.TempDir(), "redis-password")
	w.must(os.WriteFile(password, []byte(testkit.RedisPassword+"\n"), 0o600))
	w.store = []string{"--redis-mode=sentinel", "--redis-master-name=" + testkit.RedisMaster, "--redis-password-file=" + password}
	for _, addr := range g.Addrs() {
		w.store = append(w.store, "--redis-addrs="+addr)
	}
	return g
}

// admitOnly admits as a process that dies before it produces: Redis has it and nobody else. The
// receipt is what its customer holds.
func (p *process) admitOnly(user string) (receipt string) {
	p.w.t.Helper()
	r := p.parts.mirror.Admit(p.w.ctx, []admission.Ask{{
		Scope: admission.Scope{Campaign: campaign, SKU: phone}, SKU: phone, User: ids.UserID(user), Request: "r1", Quantity: 1,
		Nonce: signed.NewNonce(), PermitExpiresAtMS: clock.System().Now().Add(time.Minute).UnixMilli(),
		Price: &pb.Money{Amount: "4999.00", Currency: "CNY"}, CampaignVersion: 1,
	}})[0]
	if r.Outcome != admission.Accepted {
		p.w.t.Fatalf("%s: %s %v", user, r.Outcome, r.Err)
	}
	keys, err := signed.LoadKeys(p.w.keys, signed.UseReceipt)
	p.w.must(err)
	receipt, err = signed.Receipt{
		User: ids.UserID(user), Request: "r1", Campaign: campaign, SKU: phone, Cell: "cell-1", Build: r.Build, At: time.UnixMilli(r.AdmittedAtMS),
	}.Sign(keys, "k1")
	p.w.must(err)
	return receipt
}

// sellsAgain waits until a new customer is accepted; on the way nobody is told "sold out" (K04).
func (p *process) sellsAgain(user string) *pb.RequestView {
	p.w.t.Helper()
	var got *pb.RequestView
	testkit.Eventually(p.w.t, patience, func() error {
		a := p.exchange(p.w.ask(user, "r1"))[0]
		switch a.GetOutcome() {
		case pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED, pb.AdmitOutcome_ADMIT_OUTCOME_REPLAYED:
			got = a.GetRequest()
			return nil
		case pb.AdmitOutcome_ADMIT_OUTCOME_TEMP_SOLD_OUT, pb.AdmitOutcome_ADMIT_OUTCOME_FINAL_SOLD_OUT:
			p.w.t.Fatalf("a lost mirror answers %v", a)
		}
		return fmt.Errorf("answer %v", a)
	})
	return got
}

// TestRedisLosesExactlyN is K07, C-12 and fault 5: Redis loses exactly N admissions: the replica's link is cut, N are admitted, the primary
// dies, the replica is promoted. What the replica had reaches the log in front of the barrier and is
// ordered once; what the log had is ordered although the new primary never heard of it; the N end
// named, LOST_ADMISSION, and may be tried again. No unit is lost or given twice, and the mirror has
// what the shard has (I9).
func TestRedisLosesExactlyN(t *testing.T) {
	const units, replicated, logged, lost = 20, 3, 2, 4
	w := newWorld(t)
	g := w.sentinels(1)
	p := w.sell(units, "--relay-sweep-after=10m") // nobody but the rebuild brings to the log what was not produced
	users := func(kind string, n int, do func(user string)) {
		for i := range n {
			do(fmt.Sprint(kind, "-", i))
		}
	}
	receipts := map[string]string{}
	users("replicated", replicated, func(u string) { receipts[u] = p.admitOnly(u) })
	g.CutReplica(t) // it has caught up
	users("lost", lost, func(u string) { receipts[u] = p.admitOnly(u) })
	users("logged", logged, func(u string) {
		receipts[u] = want(t, p.exchange(w.ask(u, "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest().GetReceipt()
		p.reaches(u, "r1", receipts[u], pending)
	})
	g.Primary.Kill(t)
	g.AwaitPromoted(t)
	p.sellsAgain("new")
	p.reaches("new", "r1", "", pending)

	users("replicated", replicated, func(u string) { p.reaches(u, "r1", receipts[u], pending) })
	users("logged", logged, func(u string) { p.reaches(u, "r1", receipts[u], pending) })
	users("lost", lost, func(u string) {
		v := p.reaches(u, "r1", receipts[u], pb.RequestState_REQUEST_STATE_REJECTED)
		if v.GetReason() != pb.Reason_REASON_LOST_ADMISSION {
			t.Fatalf("%s: %v", u, v)
		}
	})
	const sold = replicated + logged + 1
	p.balanced(units, sold)
	users("lost", lost, func(u string) { // no row was left: the same request is a new attempt
		got := want(t, p.exchange(w.ask(u, "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
		p.reaches(u, "r1", got.GetReceipt(), pending)
	})
	p.balanced(units, sold+lost)
}

// balanced waits for quiet and then wants so many orders of so many users, the shard's sum, and the same
// stock in the mirror (I2, I4, I9).
func (p *process) balanced(units, sold int64) {
	p.w.t.Helper()
	if n := p.w.count("SELECT count(*) FROM cellquota.orders"); n != sold {
		p.w.t.Fatalf("%d orders, want %d", n, sold)
	}
	if n := p.w.count("SELECT count(DISTINCT user_id) FROM cellquota.orders"); n != sold {
		p.w.t.Fatalf("orders of %d users, want %d", n, sold)
	}
	if n := p.w.count("SELECT available FROM cellquota.stock WHERE sku_id = $1", phone); n != units-sold {
		p.w.t.Fatalf("%d available, want %d", n, units-sold)
	}
	if n := p.w.count("SELECT reserved FROM cellquota.stock WHERE sku_id = $1", phone); n != sold {
		p.w.t.Fatalf("%d reserved, want %d", n, sold)
	}
	testkit.Eventually(p.w.t, patience, func() error { // effects are on their way
		m, err := p.client.Facts.GetMirror(p.w.ctx, &pb.GetMirrorRequest{CampaignId: campaign, SkuId: phone})
		if err == nil && (m.GetStock() != units-sold || m.GetOutstanding() != 0) {
			err = fmt.Errorf("mirror %v", m)
		}
		return err
	})
}

// K50 with the whole cell: the sentinels promote the replica while the old primary stays reachable for
// the cell. Two processes leave it, neither admits on both, and after the rebuild every customer who
// was accepted is ordered or named.
func TestPromotedBehindTheCellsBack(t *testing.T) {
	const units = 30
	w := newWorld(t)
	g := w.sentinels(3)
	p := w.sell(units)
	second := w.start().ready()
	p.admitOnly("early")
	g.CaughtUp(t)
	g.HidePrimary(t)
	g.AwaitPromoted(t)
	receipts := map[string]string{}
	for i, from := range []*process{p, second, p, second} {
		user := fmt.Sprint("between-", i)
		if a := from.exchange(w.ask(user, "r1"))[0]; a.GetRequest() != nil {
			receipts[user] = a.GetRequest().GetReceipt()
		}
	}
	p.sellsAgain("after-1")
	second.sellsAgain("after-2")
	old := g.Primary.Client(t)
	before, err := old.Info(w.ctx, "commandstats").Result()
	w.must(err)
	for i := range 6 {
		user := fmt.Sprint("late-", i)
		from := []*process{p, second}[i%2]
		receipts[user] = want(t, from.exchange(w.ask(user, "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest().GetReceipt()
	}
	after, err := old.Info(w.ctx, "commandstats").Result()
	w.must(err)
	if calls(before) != calls(after) {
		t.Fatalf("the old primary was called: %s, then %s", calls(before), calls(after))
	}
	for user, receipt := range receipts {
		v := p.reaches(user, "r1", receipt, pending, pb.RequestState_REQUEST_STATE_REJECTED)
		if v.GetState() != pending && v.GetReason() != pb.Reason_REASON_LOST_ADMISSION {
			t.Fatalf("%s: %v", user, v)
		}
	}
	p.reaches("early", "r1", "", pending)
	sold := w.count("SELECT count(*) FROM cellquota.orders")
	p.balanced(units, sold)
}

// calls is how often functions were called, from INFO commandstats.
func calls(info string) string {
	for row := range strings.Lines(info) {
		if n, ok := strings.CutPrefix(row, "cmdstat_fcall:calls="); ok {
			n, _, _ = strings.Cut(n, ",")
			return n
		}
	}
	return "0"
}

// K48: the policy becomes an evicting one while the cell sells. It says so and admits nobody, and when
// the policy is cured it sells on.
func TestEvictingPolicyAtRuntime(t *testing.T) {
	w, p := selling(t, 5)
	raw := w.redis.Client(t)
	want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED)
	w.must(raw.ConfigSet(w.ctx, "maxmemory-policy", "allkeys-lru").Err())
	testkit.Eventually(t, patience, func() error {
		if ok, why := p.parts.health.ready(); ok || why["redis"] == "" {
			return fmt.Errorf("ready %t: %v", ok, why)
		}
		return nil
	})
	testkit.Eventually(t, patience, func() error {
		if a := p.exchange(w.ask("bob", "r1"))[0]; a.GetOutcome() != pb.AdmitOutcome_ADMIT_OUTCOME_NOT_READY {
			return errors.New(a.GetOutcome().String())
		}
		return nil
	})
	w.must(raw.ConfigSet(w.ctx, "maxmemory-policy", "noeviction").Err())
	p.sellsAgain("bob")
	p.reaches("bob", "r1", "", pending)
}

// K48: Redis is at maxmemory while the cell sells: PAUSED, not sold out; nothing half done; it goes on by
// itself when there is room again.
func TestFullMemoryPausesTheCell(t *testing.T) {
	w, p := selling(t, 5)
	raw := w.redis.Client(t)
	first := want(t, p.exchange(w.ask("alice", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_ACCEPTED).GetRequest()
	w.must(raw.ConfigSet(w.ctx, "maxmemory", "1").Err())
	want(t, p.exchange(w.ask("bob", "r1"))[0], pb.AdmitOutcome_ADMIT_OUTCOME_PAUSED)
	p.reaches("alice", "r1", first.GetReceipt(), pending) // what was admitted goes its way
	w.must(raw.ConfigSet(w.ctx, "maxmemory", "0").Err())
	p.sellsAgain("bob")
	p.reaches("bob", "r1", "", pending)
	p.balanced(5, 2)
}
