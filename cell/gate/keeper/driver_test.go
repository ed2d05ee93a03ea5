package keeper_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/cell/admission"
	"github.com/cellquota/cellquota/cell/gate"
	"github.com/cellquota/cellquota/cell/gate/keeper"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

var (
	scope = admission.Scope{Campaign: "sale", SKU: "phone"}
	build = ids.Build{Fence: 1, Count: 1}
)

// rig is a driver over a mirror on a real Redis.
type rig struct {
	t      *testing.T
	ctx    context.Context
	redis  *testkit.RedisServer
	mirror *admission.Client
	driver *keeper.Driver
	reg    *prometheus.Registry
	place  keeper.Place
	signal keeper.Signals
	leads  bool
}

func newRig(t *testing.T, stock int64) *rig {
	t.Helper()
	r := &rig{t: t, ctx: testkit.Deadline(t), redis: testkit.Redis(t), reg: prometheus.NewRegistry(), leads: true}
	log := slog.New(slog.DiscardHandler)
	var err error
	r.mirror, err = admission.Open(admission.Config{Cell: "cell-1", Addrs: []string{r.redis.Addr()}, Timeout: time.Second},
		admission.Deps{Clock: clock.System(), Logger: log, Registry: r.reg})
	r.must(err)
	t.Cleanup(func() { _ = r.mirror.Close() })
	server, err := r.mirror.Acknowledge(r.ctx)
	r.must(err)
	var all admission.BucketSet
	all.Add(0, ids.Buckets-1)
	r.must(r.mirror.Install(r.ctx, admission.Image{
		Scope: scope, Build: build, Server: server, Window: admission.Window{OpenAtMS: 1, CloseAtMS: 1 << 42},
		Stocks:  []admission.StockBase{{SKU: "phone", Available: stock, Gate: admission.Gate{State: cellquotav1.GateState_GATE_STATE_OPEN, Bound: 1}}},
		Buckets: []admission.DomainBuckets{{Set: all}},
	}))
	r.mirror.Expect(scope, build)
	r.place = keeper.Place{Scope: scope, SKU: "phone", Rules: gate.Rules{
		MaxWait: time.Minute, MinRate: 1, PauseAfter: time.Hour, MaxFailure: 0.2,
	}}
	r.driver, err = keeper.New(0, r.mirror, keeper.Deps{
		Clock: clock.System(), Logger: log, Registry: r.reg,
		Places:  func() []keeper.Place { return []keeper.Place{r.place} },
		Signals: func() keeper.Signals { return r.signal },
		Leads:   func() bool { return r.leads },
	})
	r.must(err)
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) look(times int) keeper.View {
	r.t.Helper()
	for range times {
		r.driver.Look(r.ctx)
	}
	v, ok := r.driver.View(scope, "phone")
	if !ok {
		r.t.Fatal("no view")
	}
	return v
}

func (r *rig) ask(user string) admission.Outcome {
	r.t.Helper()
	return r.mirror.Admit(r.ctx, []admission.Ask{{
		Scope: scope, SKU: "phone", User: ids.UserID(user), Request: "r", Quantity: 1, Nonce: user, PermitExpiresAtMS: 1 << 42,
	}})[0].Outcome
}

// gaugeOf is a series by its state label ("" when it has none).
func (r *rig) gaugeOf(name, state string) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	r.must(err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if state == "" || m.GetLabel()[2].GetValue() == state {
				return m.GetGauge().GetValue()
			}
		}
	}
	r.t.Fatalf("no series %s %s", name, state)
	return 0
}

// The bound that the driver writes is the bound that the script keeps, and the
// metrics show both.
func TestBoundReachesTheScript(t *testing.T) {
	r := newRig(t, 1000)
	if v := r.look(gate.Steps + 1); v.Gate.State != gate.Open || v.Gate.Bound != 60 {
		t.Fatalf("%+v", v.Gate)
	}
	for i := range 60 {
		if o := r.ask(fmt.Sprint("u", i)); o != admission.Accepted {
			t.Fatalf("ask %d: %s", i, o)
		}
	}
	if o := r.ask("late"); o != admission.QueueFull {
		t.Fatalf("beyond the bound: %s", o)
	}
	v := r.look(1)
	if v.Gate.State != gate.QueueFull || v.Facts.Outstanding != 60 {
		t.Fatalf("%+v", v)
	}
	for name, want := range map[string]float64{"cellquota_admission_outstanding": 60, "cellquota_gate_bound_admissions": 60} {
		if got := r.gaugeOf(name, ""); got != want {
			t.Errorf("%s %v, want %v", name, got, want)
		}
	}
	if r.gaugeOf("cellquota_gate_state", "QUEUE_FULL") != 1 || r.gaugeOf("cellquota_gate_state", "OPEN") != 0 {
		t.Error("gate_state does not show QUEUE_FULL alone")
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		r.look(1)
		if r.gaugeOf("cellquota_oldest_unsettled_age_seconds", "") <= 0 {
			return fmt.Errorf("the oldest admission has no age")
		}
		return nil
	})
}

func TestOperatorsPauseAndFinality(t *testing.T) {
	r := newRig(t, 10)
	r.place.Paused = true
	r.look(1)
	if o := r.ask("ann"); o != admission.Paused {
		t.Fatalf("paused by an operator: %s", o)
	}
	r.place.Paused = false
	r.look(1)
	if o := r.ask("ann"); o != admission.Accepted {
		t.Fatalf("resumed: %s", o)
	}
	r.place.Final = true
	r.look(1)
	if o := r.ask("bob"); o != admission.FinalSoldOut {
		t.Fatalf("declared final: %s", o)
	}
}

// A fault of this process is shown and not written: the others may be well.
func TestOwnFaultIsNotWritten(t *testing.T) {
	r := newRig(t, 10)
	r.look(gate.Steps + 1)
	r.signal.Halt = "the shard does not answer"
	if v := r.look(1); v.Gate.State != gate.Paused || v.Gate.Cause != "the shard does not answer" {
		t.Fatalf("%+v", v.Gate)
	}
	if o := r.ask("ann"); o != admission.Accepted {
		t.Fatalf("another process's ask: %s", o)
	}
}

func TestOnlyTheLeaderWrites(t *testing.T) {
	r := newRig(t, 10)
	r.leads = false
	r.place.Paused = true
	r.look(1)
	if o := r.ask("ann"); o != admission.Accepted {
		t.Fatalf("a process that does not lead wrote the gate: %s", o)
	}
}

// K04: an empty or silent Redis is PAUSED, never sold out.
func TestLostMirrorIsPaused(t *testing.T) {
	r := newRig(t, 10)
	r.look(gate.Steps + 1)
	r.redis.FlushAll(t)
	if v := r.look(1); v.Gate.State != gate.Paused {
		t.Fatalf("%s after a flush", v.Gate.State)
	}
	r.redis.Kill(t)
	if v := r.look(1); v.Gate.State != gate.Paused {
		t.Fatalf("%s without Redis", v.Gate.State)
	}
	r.redis.Start(t)
}

func TestSoldOutComesBack(t *testing.T) {
	r := newRig(t, 1)
	r.look(gate.Steps + 1)
	r.ask("ann")
	if v := r.look(1); v.Gate.State != gate.TempSoldOut {
		t.Fatalf("%s, want TEMP_SOLD_OUT", v.Gate.State)
	}
	if o := r.ask("bob"); o != admission.TempSoldOut {
		t.Fatalf("%s", o)
	}
	r.must(r.redis.Client(t).IncrBy(r.ctx, "cq:{sale:phone}:1.1:stock:phone", 1).Err())
	if v := r.look(1); v.Gate.State != gate.Open {
		t.Fatalf("%s, want OPEN again", v.Gate.State)
	}
}

// A SKU that is not sold here any more leaves no series behind.
func TestDroppedPlaceIsForgotten(t *testing.T) {
	r := newRig(t, 1)
	r.look(1)
	gone := r.place
	r.place = keeper.Place{Scope: admission.Scope{Campaign: "other"}, SKU: "x", Rules: gone.Rules}
	r.driver.Look(r.ctx)
	if _, ok := r.driver.View(scope, "phone"); ok {
		t.Fatal("the view is still there")
	}
	families, err := r.reg.Gather()
	r.must(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "phone" {
					t.Fatalf("%s still has a series of it", f.GetName())
				}
			}
		}
	}
}

// Every input moves the gate that the script keeps: what this process measures, the age, the payment
// window, the capacity, and the campaign's own wait.
func TestEachInputMovesTheMirrorsGate(t *testing.T) {
	throttled, open := gate.Throttled, gate.Open
	for name, row := range map[string]struct {
		change func(*rig)
		state  gate.State
		bound  int64 // 0: below the whole
	}{
		"nothing":        {func(*rig) {}, open, 60},
		"failure rate":   {func(r *rig) { r.signal.FailureRate = 0.5 }, throttled, 0},
		"calm failures":  {func(r *rig) { r.signal.FailureRate = 0.2 }, open, 60},
		"lock wait":      {func(r *rig) { r.signal.LockWait = 31 * time.Second }, throttled, 0},
		"payment window": {func(r *rig) { r.place.Rules.PaymentWindow = 8 * time.Second; r.signal.LockWait = time.Second }, throttled, 0},
		"oldest age": {func(r *rig) {
			r.ask("ann")
			r.place.Rules.MaxWait = 2 * time.Millisecond
			r.place.Rules.MinRate = 30_000
		}, throttled, 0},
		"capacity":          {func(r *rig) { r.place.Rules.Capacity = 7 }, open, 7},
		"max wait":          {func(r *rig) { r.place.Rules.MaxWait = 2 * time.Minute }, open, 120},
		"floor of the rate": {func(r *rig) { r.place.Rules.MinRate = 3 }, open, 180},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1000)
			r.look(gate.Steps + 1)
			row.change(r)
			testkit.Eventually(t, 10*time.Second, func() error {
				v := r.look(1)
				f, err := r.mirror.Facts(r.ctx, scope, "phone")
				r.must(err)
				if v.Gate.State != row.state || f.Gate != cellquotav1.GateState(row.state) || f.Bound != v.Gate.Bound {
					return fmt.Errorf("gate %+v, mirror %s %d", v.Gate, f.Gate, f.Bound)
				}
				if row.bound != 0 && f.Bound != row.bound || row.bound == 0 && f.Bound >= 60 {
					return fmt.Errorf("bound %d", f.Bound)
				}
				return nil
			})
		})
	}
}
