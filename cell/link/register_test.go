package link

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

const (
	grantKind  = pb.AdjustmentKind_ADJUSTMENT_KIND_GRANT
	returnKind = pb.AdjustmentKind_ADJUSTMENT_KIND_RETURN
	goOn       = pb.OnLeaseLoss_ON_LEASE_LOSS_CONTINUE
	pauseIt    = pb.OnLeaseLoss_ON_LEASE_LOSS_PAUSE
)

// TestRegistersWithTheShardsFacts: Hello says what the shard says, Welcome gives the right to write,
// and keep-alives keep the lease.
func TestRegistersWithTheShardsFacts(t *testing.T) {
	p := newProcess(t)
	if v := p.standing.MaySell(goOn, clock.System().Now()); v != Fenced {
		t.Fatalf("an unregistered process: verdict %d", v)
	}
	l, s := p.registered()
	l.mute.Store(true)
	h := s.hello
	identity, err := p.shard.Identity(p.ctx)
	p.must(err)
	if h.GetCellId() != string(cellID) || h.GetInstanceGroup() != group || h.GetFenceVersion() != 1 || h.GetFenceState() != pb.FenceState_FENCE_STATE_ACTIVE ||
		h.GetFenceInstanceGroup() != group || h.GetShardIdentity() != identity || !h.GetReporter() || h.GetAdvertiseAddress() != "10.0.0.1:7443" {
		t.Fatalf("hello %v", h)
	}
	if w, _ := p.shard.Writer(); w.FenceVersion != 1 || w.Group != group {
		t.Fatalf("writer %+v", w)
	}
	if v := p.standing.MaySell(goOn, clock.System().Now()); v != Sells {
		t.Fatalf("verdict %d", v)
	}
	k := expect(s, (*pb.LinkRequest).GetKeepAlive)
	if !k.GetReporter() || !slices.Equal(k.GetFaults(), []string{"kafka"}) {
		t.Fatalf("keep-alive %v", k)
	}
	s.say(kept(k.GetSequence(), 2*time.Minute, pb.CellState_CELL_STATE_DRAINING))
	p.eventually(func() error {
		now := clock.System().Now()
		if left := p.standing.LeaseRemaining(now); left < 90*time.Second {
			return fmt.Errorf("lease: %s left", left)
		}
		if v := p.standing.MaySell(goOn, now); v != Fenced {
			return fmt.Errorf("a draining cell: verdict %d", v)
		}
		return nil
	})
}

// TestRefusals: only what says that another writer may exist takes the right to write away.
func TestRefusals(t *testing.T) {
	for code, drops := range map[pb.RefusalCode]bool{
		pb.RefusalCode_REFUSAL_CODE_FENCED: true, pb.RefusalCode_REFUSAL_CODE_OTHER_GROUP: true, pb.RefusalCode_REFUSAL_CODE_REGRESSED: true,
		pb.RefusalCode_REFUSAL_CODE_RESTORED: false, pb.RefusalCode_REFUSAL_CODE_UNKNOWN_CELL: false,
	} {
		t.Run(code.String(), func(t *testing.T) {
			p := newProcess(t)
			l, s := p.registered()
			s.end <- errors.New("leader changes")
			l.next(t).refuse(code, "")
			again := l.next(t) // it comes back
			if _, holds := p.shard.Writer(); holds == drops {
				t.Fatalf("after %s it holds a writer: %v", code, holds)
			}
			again.end <- errors.New("gone")
			l.next(t)
			if _, holds := p.shard.Writer(); holds == drops {
				t.Fatalf("after %s and an outage it holds a writer: %v (a refused version is not taken from the shard)", code, holds)
			}
		})
	}
}

// TestGoesToTheLeader: a replica that does not lead names the leader.
func TestGoesToTheLeader(t *testing.T) {
	p := newProcess(t)
	a, b := p.replica("a"), p.replica("b")
	p.start()
	a.next(t).refuse(pb.RefusalCode_REFUSAL_CODE_NOT_LEADER, "b")
	b.next(t).welcome(1, time.Second)
	if got := p.dials(); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("dialled %v", got)
	}
}

// TestComesBack is K39: a stream that ends is answered by a new one; nothing is lost meanwhile, and the
// new leader is told everything.
func TestComesBack(t *testing.T) {
	p := newProcess(t)
	reg := prometheus.NewRegistry()
	if err := Metrics(reg, p.standing, p.shard.Writer, clock.System()); err != nil {
		t.Fatal(err)
	}
	metric := func(name string, want float64) {
		t.Helper()
		p.eventually(func() error {
			families, err := reg.Gather()
			for _, f := range families {
				if f.GetName() == name && f.GetMetric()[0].GetGauge().GetValue() == want {
					return err
				}
			}
			return fmt.Errorf("%s is not %v: %v, %w", name, want, families, err)
		})
	}
	l, s := p.registered()
	s.order(rulesDirective(1))
	s.result("rules")
	s.order(adjustment("g1", 1, grantKind, 7))
	s.result("g1")
	metric("cellquota_link_up", 1)
	metric("cellquota_fence_version", 1)
	s.end <- errors.New("leader died")
	again := l.next(t)
	metric("cellquota_link_up", 0) // until the welcome
	if _, ok := p.shard.Writer(); !ok {
		t.Fatal("the end of a stream took the right to write away")
	}
	if v := p.standing.MaySell(goOn, clock.System().Now()); v != Sells {
		t.Fatalf("verdict %d", v)
	}
	again.welcome(1, time.Second)
	metric("cellquota_link_up", 1)
	if r := expect(again, usageReport); r.GetUsages()[0].GetStock().GetGranted() != 7 {
		t.Fatalf("report %v", r)
	}
}

// TestPausesWhenTheLeaseIsInDoubt: on_lease_loss PAUSE stops before the lease ends; CONTINUE goes on.
func TestPausesWhenTheLeaseIsInDoubt(t *testing.T) {
	p := newProcess(t)
	l := p.replica("a")
	p.start()
	l.mute.Store(true)
	s := l.next(t)
	s.welcome(1, 90*time.Second)
	p.eventually(func() error {
		if v := p.standing.MaySell(pauseIt, clock.System().Now()); v != Sells {
			return fmt.Errorf("under its lease: verdict %d", v)
		}
		return nil
	})
	later := clock.System().Now().Add(89*time.Second + 500*time.Millisecond) // within the margin of 1 s
	if v := p.standing.MaySell(pauseIt, later); v != Paused {
		t.Errorf("PAUSE just before the end: verdict %d", v)
	}
	if v := p.standing.MaySell(goOn, later.Add(time.Hour)); v != Sells {
		t.Errorf("CONTINUE after the end: verdict %d", v)
	}
}

// TestSellsWithoutAControlPlane is K71: a process that starts while nobody answers takes its shard's
// ACTIVE row, and no other.
func TestSellsWithoutAControlPlane(t *testing.T) {
	t.Run("active", func(t *testing.T) {
		p := newProcess(t)
		p.start()
		p.eventually(func() error {
			if v := p.standing.MaySell(goOn, clock.System().Now()); v != Sells {
				return fmt.Errorf("verdict %d", v)
			}
			return nil
		})
	})
	for name, prepare := range map[string]func(p *process){
		"other group": func(p *process) { p.cfg.Group = "green" },
		"fenced":      func(p *process) { p.exec(`SELECT cellquota.fence_cell('cell-1', 2, 'test', 1000)`) },
		"settle only": func(p *process) {
			p.exec(`SELECT cellquota.fence_cell('cell-1', 2, 'test', 1000)`)
			p.exec(`SELECT cellquota.restore_cell('cell-1', 3, 'blue', 'test', 1000)`)
		},
		"the mirror has seen a higher version": func(p *process) {
			w := p.shard
			w.SetWriter(writer(1))
			_, err := w.InstallRules(p.ctx, 1, "term-1", rules(1))
			p.must(err)
			w.DropWriter()
			p.must(p.rules.Refresh(p.ctx))
			p.mirrorOf(ids.Build{Fence: 4, Count: 1}, "")
		},
		"the mirror was built from another shard": func(p *process) {
			w := p.shard
			w.SetWriter(writer(1))
			_, err := w.InstallRules(p.ctx, 1, "term-1", rules(1))
			p.must(err)
			w.DropWriter()
			p.must(p.rules.Refresh(p.ctx))
			p.mirrorOf(ids.Build{Fence: 1, Count: 1}, "another/1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t)
			prepare(p)
			p.start()
			p.eventually(func() error {
				if n := len(p.dials()); n < 5 {
					return fmt.Errorf("%d tries", n)
				}
				return nil
			})
			if w, ok := p.shard.Writer(); ok {
				t.Fatalf("it took version %d", w.FenceVersion)
			}
		})
	}
}

// TestRingOfTheBellRegistersAgain: a process that its shard refused does not wait for its stream's end.
func TestRingOfTheBellRegistersAgain(t *testing.T) {
	p := newProcess(t)
	l, _ := p.registered()
	p.bell.Ring()
	l.next(t)
}

// TestSaysGoodbye: a process that stops ends its stream in good order, so that its lease is given back.
func TestSaysGoodbye(t *testing.T) {
	p := newProcess(t)
	l := p.replica("a")
	stop := p.start()
	s := l.next(t)
	s.welcome(1, time.Second)
	expect(s, (*pb.LinkRequest).GetKeepAlive)
	stop()
	<-s.ended
	if !s.goodbye.Load() {
		t.Fatal("the stream was cut")
	}
}

// TestSilentLeader: a leader that says nothing is left for another.
func TestSilentLeader(t *testing.T) {
	p := newProcess(t)
	p.cfg.Timeout = time.Second
	p.cfg.Addrs = []string{"a", "b"}
	a, b := p.replica("a"), p.replica("b")
	b.mute.Store(true)
	p.start()
	a.next(t) // and not a word
	s := b.next(t)
	s.welcome(1, time.Second) // and then no answer to keep-alives
	a.next(t)
}
