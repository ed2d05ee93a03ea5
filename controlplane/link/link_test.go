package link_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/link"
	"github.com/cellquota/cellquota/controlplane/planner"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

var errNotYet = errors.New("not yet")

func yes(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func (r *replica) state(cell ids.CellID) core.CellState {
	s := r.view.Snapshot()
	c, _ := s.Cell(cell)
	return s.CellState(c)
}

func TestAReplicaThatDoesNotLeadSaysWhoDoes(t *testing.T) {
	r := newReplica(t, link.Options{})
	if got := r.dial(hello("cell-1", "a")).refused(); got.GetCode() != pb.RefusalCode_REFUSAL_CODE_NOT_LEADER || got.GetLeaderAddress() != "" {
		t.Fatalf("%v", got)
	}
	if _, err := r.store.TakeLead(testkit.Deadline(t), r.lease(time.Minute), "there:1", "x"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, wait, func() error {
		got := r.dial(hello("cell-1", "a")).refused()
		return yes(got.GetLeaderAddress() == "there:1", "%v", got)
	})
}

func (r *replica) lease(ttl time.Duration) int64 {
	r.t.Helper()
	id, err := r.store.GrantLease(testkit.Deadline(r.t), ttl)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// K84: a replica that was deposed and does not know it yet registers nobody.
func TestK84ALeaderWithoutItsKeyRegistersNobody(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	if _, err := r.client.Delete(testkit.Deadline(t), "/cellquota/leader"); err != nil {
		t.Fatal(err)
	}
	if got := r.dial(hello("cell-1", "a")).refused(); got.GetCode() != pb.RefusalCode_REFUSAL_CODE_NOT_LEADER {
		t.Fatalf("%v", got)
	}
}

func TestWelcomeLeaseAndGoodbye(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	if got := r.dial(hello("nowhere", "a")).refused(); got.GetCode() != pb.RefusalCode_REFUSAL_CODE_UNKNOWN_CELL {
		t.Fatalf("%v", got)
	}
	p := r.dial(hello("cell-1", "a"))
	w := p.recv().GetWelcome()
	if w.GetFenceVersion() != 1 || w.GetTerm().GetId() != r.leader.Term.ID || w.GetLeaseTtlMs() != 1000 || w.GetCellState() != pb.CellState_CELL_STATE_ACTIVE {
		t.Fatalf("%v", w)
	}
	testkit.Eventually(t, wait, func() error {
		i := r.view.Snapshot().Instances("cell-1")
		return yes(len(i) == 1 && i[0].ID == "a" && i[0].Lease != 0 && r.state("cell-1") == core.CellActive, "%+v", i)
	})
	for range 15 { // 1.5 × the lease's life
		testkit.Hold(t, 100*time.Millisecond, "between keep-alives")
		if a := p.beat(false, "MIRROR_LOST"); a.GetLeaseRemainingMs() < 100 {
			t.Fatalf("%v", a)
		}
	}
	// K78: the lease says that somebody keeps it, the faults that he cannot work.
	if got := r.hub.Processes("cell-1"); len(got) != 1 || len(got[0].Faults) != 1 || got[0].LeaseRemaining <= 0 {
		t.Fatalf("%+v", got)
	}
	if err := p.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 900*time.Millisecond, func() error { // sooner than the lease would lapse
		return yes(r.state("cell-1") == core.CellSuspect, "%s", r.state("cell-1"))
	})
}

// K46: a lease that lapses makes the cell SUSPECT, and nothing else: no unit, no
// version and no state is touched.
func TestK46ALapsedLeaseOnlySuspects(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	before := r.putCell("cell-1", func(*core.Cell) {})
	p := r.join(hello("cell-1", "a"))
	testkit.Eventually(t, wait, func() error { return yes(r.state("cell-1") == core.CellActive, "%s", r.state("cell-1")) })
	p.hangUp()
	testkit.Eventually(t, wait, func() error { return yes(r.state("cell-1") == core.CellSuspect, "%s", r.state("cell-1")) })
	after, err := r.store.Cell(testkit.Deadline(t), "cell-1")
	if err != nil || after.Version != before.Version || after.State != core.CellActive {
		t.Fatalf("%+v, %v", after, err)
	}
	r.join(hello("cell-1", "a"))
	testkit.Eventually(t, wait, func() error { return yes(r.state("cell-1") == core.CellActive, "%s", r.state("cell-1")) })
}

// K39: etcd loses the lease, and then is gone for three lives of it; the process
// is registered again over the same stream.
func TestK39ALostLeaseIsTakenAnew(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	p := r.join(hello("cell-1", "a"))
	first := r.hub.Processes("cell-1")[0].Lease
	if _, err := r.client.Revoke(testkit.Deadline(t), clientv3.LeaseID(first)); err != nil {
		t.Fatal(err)
	}
	p.beat(false)
	second := r.hub.Processes("cell-1")[0].Lease
	if second == first {
		t.Fatal("the lost lease is still held")
	}
	r.etcd.Stop(t, 0)
	if a := p.beat(false); a.GetSequence() == 0 {
		t.Fatalf("%v", a)
	}
	testkit.Hold(t, 3*time.Second, "etcd is down for three lives of the lease")
	if a := p.beat(false); a.GetLeaseRemainingMs() != 0 {
		t.Fatalf("a lease that nobody kept still lives: %v", a)
	}
	r.etcd.Start(t, 0)
	testkit.Eventually(t, wait, func() error {
		if a := p.beat(false); a.GetLeaseRemainingMs() == 0 {
			return errNotYet
		}
		i := r.view.Snapshot().Instances("cell-1")
		return yes(len(i) == 1, "%+v", i)
	})
}

// A fence ordered anywhere ends the streams of its cell, tells why, and gives the
// lease back; the other cell's go on.
func TestAFenceEndsTheStreams(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	p, q := r.join(hello("cell-1", "a")), r.join(hello("cell-2", "b"))
	r.putCell("cell-1", func(c *core.Cell) { c.State, c.FenceVersion = core.CellFencing, 2 })
	if got := p.refused(); got.GetCode() != pb.RefusalCode_REFUSAL_CODE_FENCED {
		t.Fatalf("%v", got)
	}
	testkit.Eventually(t, wait, func() error {
		i := r.view.Snapshot().Instances("cell-1")
		return yes(len(i) == 0, "%+v", i)
	})
	if got := r.dial(hello("cell-1", "a")).refused(); got.GetCode() != pb.RefusalCode_REFUSAL_CODE_FENCED {
		t.Fatalf("%v", got)
	}
	q.beat(false)
	r.putCell("cell-1", func(c *core.Cell) { c.State, c.FenceVersion = core.CellRestoring, 3 })
	back := hello("cell-1", "a")
	back.FenceVersion, back.FenceState = 3, pb.FenceState_FENCE_STATE_SETTLE_ONLY
	if w := r.dial(back).recv().GetWelcome(); w.GetFenceVersion() != 3 || w.GetCellState() != pb.CellState_CELL_STATE_RESTORING {
		t.Fatalf("%v", w)
	}
}

func TestAShardAheadOfEtcdIsReported(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	h := hello("cell-1", "a")
	h.FenceVersion = 7
	if got := r.dial(h).refused(); got.GetCode() != pb.RefusalCode_REFUSAL_CODE_RESTORED {
		t.Fatalf("%v", got)
	}
	if _, _, restored := r.events.count(); restored != 1 {
		t.Fatalf("the planner was told %d times", restored)
	}
	r.events.fail = fmt.Errorf("%w: record r9", core.ErrRestored)
	g := hello("cell-1", "a")
	g.Reporter = true
	p := r.join(g)
	p.raise(r.leader.Term)
	if got := p.refused(); got.GetCode() != pb.RefusalCode_REFUSAL_CODE_RESTORED || !strings.Contains(got.GetDetail(), "r9") {
		t.Fatalf("%v", got)
	}
}

// raise reads RaiseTerm and answers it with one stock row.
func (p *process) raise(term core.Term) {
	p.t.Helper()
	m := p.recv().GetRaiseTerm()
	if m.GetTerm().GetCount() != term.Count || m.GetTerm().GetId() != term.ID {
		p.t.Fatalf("raise %v, want %v", m, term)
	}
	p.send(&pb.LinkRequest{Kind: &pb.LinkRequest_TermRaised{TermRaised: &pb.TermRaised{Term: m.GetTerm(), FenceVersion: 1, Stocks: []*pb.StockFacts{row(5, 10)}}}})
}

func row(version int64, available int32) *pb.StockFacts {
	return &pb.StockFacts{CampaignId: "c", SkuId: "s", Granted: 100, Available: available, Reserved: 100 - available, Version: version}
}

var key = core.BookKey{Campaign: "c", SKU: "s"}

// K57: whatever order, repetition or stream reports come in, usage is the newest.
func TestK57ReportsNeverGoBack(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	h := hello("cell-1", "a")
	h.Reporter = true
	p := r.join(h)
	p.raise(r.leader.Term)
	report := func(fence, version int64, available int32) {
		p.send(&pb.LinkRequest{Kind: &pb.LinkRequest_Report{Report: &pb.Report{FenceVersion: fence, Usages: []*pb.UsageReport{{Stock: row(version, available), Gate: pb.GateState_GATE_STATE_OPEN}}}}})
	}
	known := func() int64 {
		p.beat(true) // answered after what was sent before it
		u, _ := r.hub.UsageOf("cell-1", key)
		return u.Stock.Available.Int64()
	}
	testkit.Eventually(t, wait, func() error { return yes(known() == 10, "facts of the raised term: %d", known()) })
	for range 3 {
		report(1, 9, 60)
	}
	report(1, 8, 70)
	report(1, 5, 90)
	report(2, 99, 1) // a version that nobody was welcomed under
	report(0, 99, 2)
	if got := known(); got != 60 {
		t.Fatalf("usage says %d, the shard 60", got)
	}
	report(1, 10, 55)
	if got := known(); got != 55 {
		t.Fatalf("usage says %d, the shard 55", got)
	}
	for from, want := range map[int64]int64{0: 100, 1: 100, 2: 0} { // of a version before 2 nothing is at risk
		if last, atRisk, ok := r.hub.Reported("cell-1", from); !ok || atRisk != want || last.IsZero() {
			t.Errorf("at risk by reports of version %d and above: %d (%t, %s), want %d", from, atRisk, ok, last, want)
		}
	}
	if _, _, ok := r.hub.Reported("cell-2", 0); ok {
		t.Error("a cell that never reported")
	}
	// The stale process of a cell: it lost the lock, and does not know yet.
	g := hello("cell-1", "b")
	g.Reporter = true
	q := r.join(g)
	q.raise(r.leader.Term)
	q.beat(true)
	report(1, 11, 3)
	p.send(&pb.LinkRequest{Kind: &pb.LinkRequest_KeepAlive{KeepAlive: &pb.KeepAlive{Sequence: 1000, Reporter: true}}})
	for p.recv().GetKeepAliveAck().GetSequence() != 1000 {
	}
	if got, _ := r.hub.UsageOf("cell-1", key); got.Stock.Version != 10 || len(r.hub.Usage("cell-1")) != 1 {
		t.Fatalf("the process that lost the lock still reports: %+v", got)
	}
	reporter, ok := r.hub.Reporter("cell-1")
	if !ok || reporter.Instance != "b" {
		t.Fatalf("%+v", reporter)
	}
}

func TestDirectivesGoToTheReporterOnly(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	ctx := testkit.Deadline(t)
	d := &pb.Directive{DirectiveId: "d1"}
	if err := r.hub.Send(ctx, "cell-1", 1, d); !errors.Is(err, planner.ErrNoReporter) {
		t.Fatalf("%v", err)
	}
	p := r.join(hello("cell-1", "a"))
	p.beat(false)
	if _, ok := r.hub.Reporter("cell-1"); ok {
		t.Fatal("a process that does not hold the lock reports")
	}
	p.send(&pb.LinkRequest{Kind: &pb.LinkRequest_KeepAlive{KeepAlive: &pb.KeepAlive{Sequence: 50, Reporter: true}}})
	p.raise(r.leader.Term)
	first, ok := r.hub.Reporter("cell-1")
	if !ok || first.FenceVersion != 1 {
		t.Fatalf("%+v", first)
	}
	if err := r.hub.Send(ctx, "cell-1", first.Stream, d); err != nil {
		t.Fatal(err)
	}
	for p.recv().GetDirective().GetDirectiveId() != "d1" {
	}
	p.send(&pb.LinkRequest{Kind: &pb.LinkRequest_DirectiveResult{DirectiveResult: &pb.DirectiveResult{DirectiveId: "d1", Done: true}}})
	testkit.Eventually(t, wait, func() error {
		raised, results, _ := r.events.count()
		return yes(raised == 1 && results == 1, "%d raised, %d results", raised, results)
	})
	// The same process again: a new stream, and the old one hears that it is over.
	h := hello("cell-1", "a")
	h.Reporter = true
	q := r.join(h)
	q.raise(r.leader.Term)
	if err := r.hub.Send(ctx, "cell-1", first.Stream, d); !errors.Is(err, planner.ErrNoReporter) {
		t.Fatalf("sent over a stream that was replaced: %v", err)
	}
	if err := p.over(); !errors.Is(err, rpcstatus.ErrConflict) {
		t.Fatalf("%v", err)
	}
}

func TestCampaignReadyNamesWhoIsMissing(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	cells := []ids.CellID{"cell-1", "cell-2"}
	ready := func() string { return strings.Join(r.hub.CampaignReady("c", 3, cells), "; ") }
	if got := ready(); got != "cell-1 has no live process; cell-2 has no live process" {
		t.Fatal(got)
	}
	p, q := r.join(hello("cell-1", "a")), r.join(hello("cell-1", "b"))
	other := r.join(hello("cell-2", "c"))
	acked := func(p *process, version int64, isReady bool, detail string) {
		p.send(&pb.LinkRequest{Kind: &pb.LinkRequest_CampaignAck{CampaignAck: &pb.CampaignAck{CampaignId: "c", Version: version, Ready: isReady, Detail: detail}}})
		p.beat(false)
	}
	acked(p, 3, true, "")
	acked(q, 2, true, "")
	acked(other, 3, false, "no mirror")
	if got := ready(); got != "cell-1/b serves version 2; cell-2/c is not ready for version 3: no mirror" {
		t.Fatal(got)
	}
	acked(q, 4, true, "")
	acked(q, 3, false, "late news")
	acked(other, 3, true, "")
	if got := ready(); got != "" {
		t.Fatal(got)
	}
	// A process whose lease lives, but whose stream went to a leader that is gone.
	if _, err := r.store.Register(testkit.Deadline(t), r.leader, core.Instance{Cell: "cell-2", ID: "z", Group: "blue", Lease: r.lease(time.Minute)}, func(core.Cell) error { return nil }); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, wait, func() error { return yes(ready() == "cell-2/z is not linked to this leader", "%s", ready()) })
}

func TestStreamsEndWithTheLeadership(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	p := r.join(hello("cell-1", "a"))
	r.abdicate()
	if err := p.over(); !errors.Is(err, rpcstatus.ErrUnavailable) {
		t.Fatalf("%v", err)
	}
	if got := r.dial(hello("cell-1", "a")).refused(); got.GetCode() != pb.RefusalCode_REFUSAL_CODE_NOT_LEADER {
		t.Fatalf("%v", got)
	}
	if len(r.hub.Processes("cell-1"))+len(r.hub.CampaignReady("c", 1, nil)) != 0 {
		t.Fatal("a replica that does not lead knows processes")
	}
}

func TestAProcessThatDoesNotReadIsCut(t *testing.T) {
	r := newReplica(t, link.Options{SlowAfter: 50 * time.Millisecond}).lead()
	h := hello("cell-1", "a")
	h.Reporter = true
	r.join(h)
	reporter, _ := r.hub.Reporter("cell-1")
	big := &pb.Directive{DirectiveId: strings.Repeat("x", 64<<10)}
	testkit.Eventually(t, wait, func() error {
		for r.hub.Send(t.Context(), "cell-1", reporter.Stream, big) == nil {
		}
		return yes(len(r.hub.Processes("cell-1")) == 0, "still linked")
	})
}

func TestMoreResultsThanThePlannerTakesCutTheStream(t *testing.T) {
	r := newReplica(t, link.Options{}).lead()
	r.events.block = make(chan struct{})
	p := r.join(hello("cell-1", "a"))
	for range 1100 {
		if p.stream.Send(&pb.LinkRequest{Kind: &pb.LinkRequest_DirectiveResult{DirectiveResult: &pb.DirectiveResult{DirectiveId: "d"}}}) != nil {
			break
		}
	}
	if err := p.over(); !errors.Is(err, rpcstatus.ErrExhausted) {
		t.Fatalf("%v", err)
	}
}

func TestTheFirstMessageMustBeHello(t *testing.T) {
	r := newReplica(t, link.Options{HelloWithin: 50 * time.Millisecond}).lead()
	silent, err := r.conn.Link(testkit.Deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Recv(); !errors.Is(err, rpcstatus.ErrInvalidArgument) {
		t.Fatalf("%v", err)
	}
	p := r.join(hello("cell-1", "a"))
	p.send(&pb.LinkRequest{Kind: &pb.LinkRequest_Hello{Hello: hello("cell-1", "a")}})
	if err := p.over(); !errors.Is(err, rpcstatus.ErrInvalidArgument) {
		t.Fatalf("%v", err)
	}
}

func TestMetricsFollowCellsAndLeases(t *testing.T) {
	r := newReplica(t, link.Options{LeaseTTL: time.Hour}).lead()
	r.join(hello("cell-1", "a"))
	r.putCell("cell-2", func(c *core.Cell) { c.State, c.FenceVersion = core.CellFencing, 4 })
	testkit.Eventually(t, wait, func() error {
		return testutil.GatherAndCompare(r.registry, strings.NewReader(`
# HELP cellquota_fence_version The cell's fence version as etcd has it.
# TYPE cellquota_fence_version gauge
cellquota_fence_version{cell_id="cell-1"} 1
cellquota_fence_version{cell_id="cell-2"} 4
`), "cellquota_fence_version")
	})
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "cellquota_lease_remaining_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			left, alive := m.GetGauge().GetValue(), m.GetLabel()[0].GetValue() == "cell-1"
			if alive != (left > 3500) || !alive && left != 0 {
				t.Errorf("%v", m)
			}
		}
		return
	}
	t.Error("no lease_remaining_seconds")
}
