package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/rebuild"
	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// everything starts the loops of the first process.
func (b *bench) everything() {
	b.t.Helper()
	b.run(b.one.loop.Run, b.one.producer.Run, b.one.effects.Run, b.one.consumer())
}

func TestFirstBuildNeedsNoBarrier(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	if r := b.one.ask("ann", "r1"); r.Outcome != admission.NotReady {
		t.Fatalf("before the first build: %s", r.Outcome)
	}
	b.must(b.one.loop.Look(b.ctx)) // no orders loop runs: a barrier would never be consumed
	b.must(b.one.loop.Look(b.ctx))
	b.one.accepted("ann", "r1")
	f, err := b.one.mirror.Facts(b.ctx, scope, phone)
	if err != nil || f.Stock != 9 || f.Build != (ids.Build{Fence: 1, Count: 1}) {
		t.Fatalf("%+v %v", f, err)
	}
	if got := metric(t, b.one.reg, "cellquota_mirror_rebuilds_total", "missing"); got != 1 {
		t.Fatalf("mirror_rebuilds_total %v, want 1", got)
	}
}

// A grant to a cell that has a mirror but had no stock row.
func TestMirrorBeforeTheFirstGrant(t *testing.T) {
	b := newBench(t)
	b.everything()
	testkit.Eventually(t, 20*time.Second, func() error {
		if r := b.one.ask("ann", "r1"); r.Outcome != admission.TempSoldOut {
			return fmt.Errorf("%s: %w", r.Outcome, r.Err)
		}
		return nil
	})
	b.grant(5)
	if got := b.quiet(); got != 5 {
		t.Fatalf("mirror has %d, want 5", got)
	}
}

func TestSaleThroughTheWholeCell(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	b.everything()
	b.one.produce(b.one.accepted("ann", "r1"))
	b.eventuallyState("ann", "r1", "ORDEREDPENDING_PAYMENT")
	if got := b.quiet(); got != 9 {
		t.Fatalf("mirror has %d, want 9", got)
	}
	r := b.one.mirror.Lookup(b.ctx, []admission.LookupAsk{{Scope: scope, SKU: phone, User: "ann", Request: "r1"}})[0]
	if r.State != cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT || r.Order == "" || r.ExpiresAtMS == 0 {
		t.Fatalf("%+v", r)
	}
	if r := b.one.ask("ann", "r2"); r.Outcome != admission.AlreadyReserved || r.Request != "r1" {
		t.Fatalf("second request: %s of %s", r.Outcome, r.Request)
	}
}

// K04, K07: Redis comes back empty in the middle. What the log had becomes orders,
// what only Redis had becomes nothing, nobody is told sold out, and those users may
// try again; the count is exact.
func TestRedisLosesEverything(t *testing.T) {
	b := newBench(t)
	b.grant(30)
	b.everything()
	var relayed []admission.Granted
	for i := range 10 {
		relayed = append(relayed, b.one.accepted(fmt.Sprint("relayed", i), "r1"))
	}
	b.one.produce(relayed...)
	var lost []admission.Granted
	for i := range 10 {
		lost = append(lost, b.one.accepted(fmt.Sprint("lost", i), "r1"))
	}
	b.redis.Restart(t)
	for i := range 10 {
		user := fmt.Sprint("lost", i)
		r := b.one.decided(user, "r1") // the same request id: no row was left, a new attempt
		if r.Outcome != admission.Accepted || r.Reservation == lost[i].Reservation {
			t.Fatalf("%s: %s, reservation %s", user, r.Outcome, r.Reservation)
		}
		b.one.produce(*r.Granted)
	}
	for i := range 10 {
		b.eventuallyState(fmt.Sprint("lost", i), "r1", "ORDEREDPENDING_PAYMENT")
		b.eventuallyState(fmt.Sprint("relayed", i), "r1", "ORDEREDPENDING_PAYMENT")
		if r := b.one.decided(fmt.Sprint("relayed", i), "r2"); r.Outcome != admission.AlreadyReserved || r.Request != "r1" {
			t.Fatalf("relayed%d: %s of %s: the mark was not rebuilt", i, r.Outcome, r.Request)
		}
		if r := b.one.decided(fmt.Sprint("relayed", i), "r1"); r.Outcome != admission.Replayed || r.Reservation != relayed[i].Reservation {
			t.Fatalf("relayed%d: %s: the record was not rebuilt", i, r.Outcome)
		}
	}
	if got := b.quiet(); got != 10 {
		t.Fatalf("mirror has %d, want 10", got)
	}
	if got := metric(t, b.one.reg, "cellquota_mirror_rebuilds_total", "missing"); got < 2 {
		t.Fatalf("mirror_rebuilds_total{missing} %v, want 2", got)
	}
}

// K79: an admission of the old mirror that reaches the log behind the barrier is
// rejected as lost and gives nothing to the new mirror, which never took it.
func TestLateMessageOfTheOldMirror(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	b.everything()
	late := b.one.accepted("ann", "r1")
	b.redis.Restart(t)
	b.one.accepted("bob", "r1") // the new mirror serves
	b.one.produce(late)
	b.eventuallyState("ann", "r1", "REJECTEDLOST_ADMISSION")
	testkit.Eventually(t, 20*time.Second, func() error {
		f, err := b.one.mirror.Facts(b.ctx, scope, phone)
		if err != nil || f.Stock != 9 {
			return fmt.Errorf("mirror has %d, want 9: 10 and bob's; %w", f.Stock, err)
		}
		if waiting := b.effectsWaiting(); waiting != 0 {
			return fmt.Errorf("%d effects wait", waiting)
		}
		return nil
	})
	// The rejection has a row: final for this request id, and the mirror shows it.
	if r := b.one.decided("ann", "r1"); r.Outcome != admission.Replayed || r.Reason != cellquotav1.Reason_REASON_LOST_ADMISSION {
		t.Fatalf("ann/r1: %s %s", r.Outcome, r.Reason)
	}
	if r := b.one.decided("ann", "r2"); r.Outcome != admission.Accepted {
		t.Fatalf("ann/r2: %s: a rejected attempt keeps nobody out", r.Outcome)
	}
}

// K04: single keys vanish. Each is NOT_READY at once and rebuilt, and entries that
// were in the stream reach the log in front of the barrier.
func TestSingleKeysVanish(t *testing.T) {
	for _, key := range []string{"meta", "1.1:stock:phone", "1.1:marks", "1.1:applied"} {
		t.Run(key, func(t *testing.T) {
			b := newBench(t)
			b.grant(10)
			b.must(b.one.loop.Look(b.ctx))
			g := b.one.accepted("ann", "r1")
			b.must(b.redis.Client(t).Del(b.ctx, "cq:{sale:phone}:"+key).Err())
			if key != "1.1:applied" { // applied guards effects, not admissions
				if r := b.one.ask("bob", "r1"); r.Outcome != admission.NotReady {
					t.Fatalf("without %s: %s", key, r.Outcome)
				}
			}
			b.everything()
			if key == "meta" {
				b.one.produce(g) // without a meta nobody knows the stream
				b.one.decided("bob", "r1")
			}
			testkit.Eventually(t, 20*time.Second, func() error {
				if build, _ := b.one.mirror.Expected(scope); build.Count < 2 {
					return fmt.Errorf("build %s", build)
				}
				return nil
			})
			if key != "meta" {
				b.eventuallyState("ann", "r1", "ORDEREDPENDING_PAYMENT")
				if got := b.quiet(); got != 9 {
					t.Fatalf("mirror has %d, want 9", got)
				}
			}
		})
	}
}

// Redis restarts with its data (AOF): the run id changed, so the mirror may have
// lost its tail and is not trusted.
func TestRestartWithDataIsRebuilt(t *testing.T) {
	b := newBench(t, "--appendonly", "yes", "--appendfsync", "always")
	b.grant(10)
	b.everything()
	b.one.produce(b.one.accepted("ann", "r1"))
	b.eventuallyState("ann", "r1", "ORDEREDPENDING_PAYMENT")
	b.quiet()
	b.redis.Restart(t)
	if r := b.one.decided("ann", "r2"); r.Outcome != admission.AlreadyReserved || r.Build.Count != 2 {
		t.Fatalf("%s under build %s", r.Outcome, r.Build)
	}
	if got := metric(t, b.one.reg, "cellquota_mirror_rebuilds_total", "other_server"); got != 1 {
		t.Fatalf("rebuilds for another server: %v", got)
	}
}

// K61: functions and scripts are lost under load, twenty times: nothing is not
// ready for long, nothing is taken twice.
func TestFunctionsLostUnderLoad(t *testing.T) {
	b := newBench(t)
	b.grant(1000)
	b.everything()
	b.one.accepted("first", "r1")
	raw := b.redis.Client(t)
	n := 0
	for round := range 20 {
		if round%2 == 0 {
			b.must(raw.FunctionFlush(b.ctx).Err())
		} else {
			b.must(raw.ScriptFlush(b.ctx).Err())
		}
		for i := range 5 {
			if r := b.one.ask(fmt.Sprintf("u%d-%d", round, i), "r1"); r.Outcome != admission.Accepted {
				t.Fatalf("round %d: %s %v", round, r.Outcome, r.Err)
			}
			n++
		}
	}
	f, err := b.one.mirror.Facts(b.ctx, scope, phone)
	if err != nil || f.Stock != int64(1000-1-n) {
		t.Fatalf("stock %d, want %d, %v", f.Stock, 1000-1-n, err)
	}
}

// Two processes: one builds, both expect the same build, and one may lose its claim
// to the other without harm.
func TestTwoProcessesOneMirror(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	two := b.process("two")
	b.everything()
	b.run(two.loop.Run, two.producer.Run)
	b.one.accepted("ann", "r1")
	if r := two.decided("ann", "r1"); r.Outcome != admission.Replayed {
		t.Fatalf("the other process: %s", r.Outcome)
	}
	for range 3 {
		b.redis.FlushAll(t)
		x, y := b.one.decided("ann", "r2"), two.decided("ann", "r2")
		if x.Build != y.Build || x.Reservation != y.Reservation {
			t.Fatalf("one admits into %s, the other into %s", x.Build, y.Build)
		}
	}
}

// A process that looked before another one finished, and got the claim after it,
// leaves the new mirror alone: its admissions would be lost with it.
func TestLateBuilderLeavesACuredMirrorAlone(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	two := b.process("two")
	late := &lateMint{Store: two.store, first: func() { // between the look of two and its claim
		b.must(b.one.loop.Look(b.ctx))
		b.must(b.one.loop.Look(b.ctx))
		b.one.accepted("ann", "r1")
	}}
	loop, err := rebuild.New(rebuild.Config{Owner: "two"}, late, two.mirror, two.producer, two.sweeper, plans(1),
		rebuild.Deps{Clock: clock.System(), Logger: b.log, Registry: prometheus.NewRegistry()})
	b.must(err)
	b.must(loop.Look(b.ctx))
	if late.first != nil {
		t.Fatal("two never asked for a claim")
	}
	if r := b.one.ask("ann", "r1"); r.Outcome != admission.Replayed || r.Build.Count != 1 {
		t.Fatalf("%s under build %s: the mirror of one is gone", r.Outcome, r.Build)
	}
	b.redis.FlushAll(t) // and the claim was given back
	b.everything()
	b.one.accepted("bob", "r1")
}

// lateMint does something in front of the first claim.
type lateMint struct {
	*shard.Store
	first func()
}

func (l *lateMint) MintBuild(ctx context.Context, campaign ids.CampaignID, scope, owner string, lease time.Duration) (shard.Mint, error) {
	if l.first != nil {
		l.first()
		l.first = nil
	}
	return l.Store.MintBuild(ctx, campaign, scope, owner, lease)
}

// A builder that stalls between its mint and its switch is overtaken: the mirror
// takes the newer build only.
func TestStalledBuilderIsOvertaken(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	slow, err := b.one.store.MintBuild(b.ctx, campaign, string(phone), "slow", 50*time.Millisecond)
	b.must(err)
	b.must(b.one.store.RaiseBuild(b.ctx, campaign, string(phone), slow.Build))
	b.everything()
	b.one.accepted("ann", "r1") // waits until the claim of slow has ended
	stock := admission.StockBase{SKU: phone, Available: 99}
	err = b.one.mirror.Install(b.ctx, admission.Image{Scope: scope, Build: slow.Build, Stocks: []admission.StockBase{stock}})
	if !errors.Is(err, admission.ErrOlderBuild) {
		t.Fatalf("the stalled builder installed: %v", err)
	}
}

// The barrier is not consumed: nothing is installed, nothing admitted, and a later
// look with a working consumer starts over.
func TestBarrierNotConsumed(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	b.must(b.one.loop.Look(b.ctx))
	b.one.accepted("ann", "r1")
	b.redis.FlushAll(t)
	loop, err := rebuild.New(rebuild.Config{Owner: "one", Timeout: 300 * time.Millisecond}, b.one.store, b.one.mirror, b.one.producer, b.one.sweeper,
		plans(1), rebuild.Deps{Clock: clock.System(), Logger: b.log, Registry: prometheus.NewRegistry()})
	b.must(err)
	if err := loop.Look(b.ctx); err == nil {
		t.Fatal("rebuilt without a consumed barrier")
	}
	if r := b.one.ask("bob", "r1"); r.Outcome != admission.NotReady {
		t.Fatalf("%s, want NOT_READY", r.Outcome)
	}
	b.everything()
	b.one.accepted("bob", "r1")
}

// A fence: the stale process stops at its next ask, the new one builds its own
// mirror without a barrier (older messages are below messages_from).
func TestFenceAndRestore(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	b.must(b.one.loop.Look(b.ctx))
	b.one.accepted("ann", "r1")
	for _, q := range []string{
		"SELECT cellquota.fence_cell('cell-1', 2, 'test', 1000)",
		"SELECT cellquota.restore_cell('cell-1', 3, 'green', 'test', 1000)",
		"SELECT cellquota.activate_cell('cell-1', 3, 'test', 1000)",
	} {
		_, err := b.admin.Exec(b.ctx, q)
		b.must(err)
	}
	two := b.process("two")
	two.store.SetWriter(shard.Writer{FenceVersion: 3, Group: "green"})
	b.must(two.loop.Look(b.ctx)) // builds; no orders loop: a barrier would hang
	if r := b.one.ask("bob", "r1"); r.Outcome != admission.NotReady && r.Outcome != admission.Fenced {
		t.Fatalf("the fenced process: %s", r.Outcome)
	}
	if err := b.one.loop.Look(b.ctx); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.one.mirror.Expected(scope); ok {
		t.Fatal("the fenced process still expects a mirror")
	}
	f, err := two.mirror.Facts(b.ctx, scope, phone)
	if err != nil || f.Fence != 3 || f.Build.Fence != 3 || f.Stock != 0 {
		t.Fatalf("%+v %v: the seal took everything", f, err)
	}
}

// RaiseFence alone stops a process that did not hear of anything.
func TestRaisedFenceIsToldAtOnce(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	b.must(b.one.loop.Look(b.ctx))
	b.one.accepted("ann", "r1")
	_, err := b.one.mirror.RaiseFence(b.ctx, scope, 2)
	b.must(err)
	if r := b.one.ask("bob", "r1"); r.Outcome != admission.Fenced {
		t.Fatalf("%s, want FENCED", r.Outcome)
	}
}

// K48: the server starts to evict: nothing is admitted, and nothing rebuilt there.
func TestEvictingRedisIsNotReady(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	b.everything()
	b.one.accepted("ann", "r1")
	raw := b.redis.Client(t)
	b.must(raw.ConfigSet(b.ctx, "maxmemory-policy", "allkeys-lru").Err())
	testkit.Eventually(t, 20*time.Second, func() error {
		if r := b.one.ask("ann", "r1"); r.Outcome != admission.NotReady {
			return fmt.Errorf("%s", r.Outcome)
		}
		return nil
	})
	b.must(raw.ConfigSet(b.ctx, "maxmemory-policy", "noeviction").Err())
	b.one.accepted("bob", "r1")
}

func TestRulesReachTheMirror(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	version := int64(1)
	var mu sync.Mutex
	current := plans(1)()[0]
	loop, err := rebuild.New(rebuild.Config{Owner: "one"}, b.one.store, b.one.mirror, b.one.producer, b.one.sweeper, func() []rebuild.Plan {
		mu.Lock()
		defer mu.Unlock()
		p := current
		p.Version = version
		return []rebuild.Plan{p}
	}, rebuild.Deps{Clock: clock.System(), Logger: b.log, Registry: prometheus.NewRegistry()})
	b.must(err)
	b.must(loop.Look(b.ctx))
	b.must(loop.Look(b.ctx))
	b.one.accepted("ann", "r1")
	mu.Lock()
	version, current.Window.CloseAtMS = 2, 2
	mu.Unlock()
	b.must(loop.Look(b.ctx))
	if r := b.one.ask("bob", "r1"); r.Outcome != admission.Ended {
		t.Fatalf("%s, want ENDED", r.Outcome)
	}
	if n := metric(t, b.one.reg, "cellquota_admission_total", "ENDED"); n != 1 {
		t.Fatalf("admission_total{ENDED} %v, want 1", n)
	}
}

// TestBucketsReachTheMirror: a handover moves buckets under rules that do not change.
func TestBucketsReachTheMirror(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	plan := plans(1)()[0]
	loop, err := rebuild.New(rebuild.Config{Owner: "one"}, b.one.store, b.one.mirror, b.one.producer, b.one.sweeper, func() []rebuild.Plan {
		return []rebuild.Plan{plan}
	}, rebuild.Deps{Clock: clock.System(), Logger: b.log, Registry: prometheus.NewRegistry()})
	b.must(err)
	b.must(loop.Look(b.ctx))
	b.must(loop.Look(b.ctx))
	b.one.accepted("ann", "r1")
	owned := plan.Buckets
	plan.Buckets = []admission.DomainBuckets{{Domain: owned[0].Domain}}
	b.must(loop.Look(b.ctx))
	if r := b.one.ask("bob", "r1"); r.Outcome != admission.Moved {
		t.Fatalf("a user of buckets that left: %s, want MOVED", r.Outcome)
	}
	plan.Buckets = owned
	b.must(loop.Look(b.ctx))
	b.one.accepted("bob", "r1")
}

func TestAgeGrowsWhileNotFit(t *testing.T) {
	b := newBench(t)
	b.grant(10)
	manual := clock.NewManual(time.Unix(1_800_000_000, 0))
	reg := prometheus.NewRegistry()
	loop, err := rebuild.New(rebuild.Config{Owner: "one", Timeout: time.Second}, b.one.store, b.one.mirror, b.one.producer, b.one.sweeper,
		plans(1), rebuild.Deps{Clock: manual, Logger: b.log, Registry: reg})
	b.must(err)
	b.must(loop.Look(b.ctx))
	b.must(loop.Look(b.ctx))
	b.one.store.SetWriter(shard.Writer{FenceVersion: 1, Group: "green"})
	if err := b.one.store.Heartbeat(b.ctx); err == nil {
		t.Fatal("the shard took another group")
	}
	manual.Advance(7 * time.Second)
	b.must(loop.Look(b.ctx)) // without a writer nothing is fit
	if got := metric(t, reg, "cellquota_mirror_age_seconds", ""); got != 7 {
		t.Fatalf("mirror_age_seconds %v, want 7", got)
	}
}
