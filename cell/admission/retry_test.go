package admission

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cellquota/cellquota/internal/testkit"
	eventsv1 "github.com/cellquota/cellquota/proto/cellquota/events/v1"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// cutter is a proxy that delivers requests and, while armed, cuts the answers: the
// call was made and nobody knows (K59).
type cutter struct {
	addr string
	arm  atomic.Int64 // answers still to be cut
	cuts atomic.Int64
}

func newCutter(t *testing.T, upstream string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: l.Addr().String()}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", upstream)
			if err != nil {
				_ = down.Close()
				continue
			}
			wait.Go(func() { _, _ = io.Copy(up, down); _ = up.Close() })
			wait.Go(func() { c.answers(down, up) })
		}
	})
	t.Cleanup(func() { _ = l.Close() })
	return c
}

func (c *cutter) answers(down, up net.Conn) {
	defer func() { _, _ = down.Close(), up.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := up.Read(buf)
		if err != nil {
			return
		}
		if c.arm.Load() > 0 && c.arm.Add(-1) >= 0 {
			c.cuts.Add(1)
			return
		}
		if _, err := down.Write(buf[:n]); err != nil {
			return
		}
	}
}

// K59: the answer is cut, the driver calls again. The stock goes down once, the
// customer is told ACCEPTED with one reservation, and the relay gets the message.
func TestDriverRetryIsAcceptedOnce(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	proxy := newCutter(t, m.server.Addr())
	c, _ := openClient(t, proxy.addr, Standalone)
	ctx := testkit.Deadline(t)
	if _, err := c.Acknowledge(ctx); err != nil {
		t.Fatal(err)
	}
	c.Expect(skuScope, build1)
	if r := c.Admit(ctx, []Ask{ask("warm", "r1")})[0]; r.Outcome != Accepted { // the connection is there
		t.Fatalf("%s %v", r.Outcome, r.Err)
	}
	proxy.arm.Store(1)
	r := c.Admit(ctx, []Ask{ask("ann", "r1")})[0]
	if proxy.cuts.Load() != 1 {
		t.Fatalf("%d answers were cut", proxy.cuts.Load())
	}
	if r.Outcome != Accepted || r.Granted == nil || r.Err != nil {
		t.Fatalf("%s %v, want ACCEPTED", r.Outcome, r.Err)
	}
	page, err := m.Unpublished(ctx, skuScope, 0, "", 10)
	if err != nil || len(page.Entries) != 2 || string(page.Entries[1].Message) != string(r.Granted.Message) {
		t.Fatalf("%d stream entries, %v", len(page.Entries), err)
	}
	if s := m.stock(t, skuScope, testSKU); s != 8 {
		t.Fatalf("stock %d, want 8: two customers", s)
	}
	again := c.Admit(ctx, []Ask{ask("ann", "r1")})[0] // the customer's own repeat is one
	if again.Outcome != Replayed || again.Reservation != r.Reservation {
		t.Fatalf("%s %s", again.Outcome, again.Reservation)
	}
}

// Every answer is cut: the outcome is unknown and said to be, never "sold out".
func TestUnknownOutcomeIsPaused(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	m.server.Pause(t)
	r := m.one(testkit.Deadline(t), ask("ann", "r1"))
	if r.Outcome != Paused || !errors.Is(r.Err, ErrUnavailable) {
		t.Fatalf("%s %v", r.Outcome, r.Err)
	}
	m.server.Resume(t)
	want(t, m.one(testkit.Deadline(t), ask("bob", "r1")), Accepted)
}

// K62: 200 at once, two processes, one request: one reservation, every answer has it.
func TestTwoHundredAtOnce(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	other, _ := openClient(t, m.server.Addr(), Standalone)
	ctx := testkit.Deadline(t)
	if _, err := other.Acknowledge(ctx); err != nil {
		t.Fatal(err)
	}
	other.Expect(skuScope, build1)
	var wait sync.WaitGroup
	results := make([]Result, 200)
	for i := range results {
		c := m.Client
		if i%2 == 1 {
			c = other
		}
		wait.Go(func() { results[i] = c.Admit(ctx, []Ask{ask("ann", "r1")})[0] })
	}
	wait.Wait()
	accepted := 0
	for i, r := range results {
		if r.Outcome == Accepted {
			accepted++
		} else {
			want(t, r, Replayed)
		}
		if r.Reservation == "" || r.Reservation != results[0].Reservation {
			t.Fatalf("answer %d has reservation %q", i, r.Reservation)
		}
	}
	if s := m.stock(t, skuScope, testSKU); accepted != 1 || s != 9 {
		t.Fatalf("%d accepted, stock %d", accepted, s)
	}
}

// K55: a permit is good for one reservation, and only an acceptance burns it.
func TestPermitIsBurntByAcceptanceOnly(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	if _, err := m.SetGate(ctx, skuScope, build1, Gate{SKU: testSKU, State: cellquotav1.GateState_GATE_STATE_PAUSED, Bound: 5}); err != nil {
		t.Fatal(err)
	}
	shared := func(user, request string) Ask {
		a := ask(user, request)
		a.Nonce = "one permit"
		return a
	}
	want(t, m.one(ctx, shared("ann", "r1")), Paused)
	if _, err := m.SetGate(ctx, skuScope, build1, Gate{SKU: testSKU, State: cellquotav1.GateState_GATE_STATE_OPEN, Bound: 5}); err != nil {
		t.Fatal(err)
	}
	want(t, m.one(ctx, shared("ann", "r1")), Accepted)
	want(t, m.one(ctx, shared("ann", "r1")), Replayed)
	want(t, m.one(ctx, shared("ann", "r2")), AlreadyReserved)
	want(t, m.one(ctx, shared("bob", "r1")), PermitInvalid)
}

// K48: at maxmemory the script is refused as a whole: PAUSED, and nothing half done. What drains the
// mirror and what stops it still work: a full mirror that could not even shrink would stay full.
func TestFullMemoryLeavesNothingHalfDone(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	held := want(t, m.one(ctx, ask("old", "r1")), Accepted).Granted
	if err := m.raw.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	r := m.one(ctx, ask("ann", "r1"))
	if r.Outcome != Paused || !errors.Is(r.Err, ErrUnavailable) {
		t.Fatalf("%s %v", r.Outcome, r.Err)
	}
	if err := m.Acked(ctx, []Granted{*held}); err != nil {
		t.Errorf("the log's acknowledgement: %v", err)
	}
	ordered := Effect{Scope: skuScope, Build: build1, Effect: &eventsv1.MirrorEffect{
		EffectId: "e1", CampaignId: string(skuScope.Campaign), SkuId: string(testSKU), UserId: "old", RequestId: "r1", ReservationId: string(held.Reservation),
		Settle: true, State: cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT, AggregateVersion: 1,
	}}
	if got := m.ApplyEffects(ctx, []Effect{ordered})[0]; got.Err != nil || got.Change != Applied {
		t.Errorf("an order's effect: %s %v", got.Change, got.Err)
	}
	if change, err := m.Pause(ctx, skuScope, build1); err != nil || change != Applied {
		t.Errorf("pausing: %s %v", change, err)
	}
	if err := m.raw.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	f, err := m.Facts(ctx, skuScope, testSKU)
	if err != nil || f.Stock != 9 || f.Outstanding != 0 || f.StreamLength != 0 || f.State != Building {
		t.Fatalf("%+v %v", f, err)
	}
	m.install(t, image(skuScope, build2))
	want(t, m.one(ctx, ask("ann", "r1")), Accepted)
}

// K28: the stream is never trimmed; at its bound new asks are QUEUE_FULL.
func TestFullStreamIsQueueFull(t *testing.T) {
	im := image(skuScope, build1)
	im.StreamMax = 3
	m := newMirror(t, im)
	ctx := testkit.Deadline(t)
	for i := range 3 {
		want(t, m.one(ctx, ask(fmt.Sprint("u", i), "r1")), Accepted)
	}
	want(t, m.one(ctx, ask("late", "r1")), QueueFull)
	page, err := m.Unpublished(ctx, skuScope, 0, "", 1)
	if err != nil || page.Next == "" {
		t.Fatalf("%+v %v", page, err)
	}
	if err := m.Acked(ctx, page.Entries); err != nil {
		t.Fatal(err)
	}
	want(t, m.one(ctx, ask("late", "r1")), Accepted)
}

// K64: the request's record is gone: the same reservation, no second unit.
func TestLostRecordMakesNoSecondReservation(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	first := want(t, m.one(ctx, ask("ann", "r1")), Accepted)
	if err := m.raw.Del(ctx, skuScope.at(build1).record(testSKU, "r1", "ann")).Err(); err != nil {
		t.Fatal(err)
	}
	if r := want(t, m.one(ctx, ask("ann", "r1")), Replayed); r.Reservation != first.Reservation {
		t.Fatalf("reservation %s", r.Reservation)
	}
	other := ask("ann", "r1")
	other.Quantity = 2
	want(t, m.one(ctx, other), Conflict)
	if s := m.stock(t, skuScope, testSKU); s != 9 {
		t.Fatalf("stock %d", s)
	}
}

// K47: Redis as a cluster of one node: every call is in one slot, whatever the ids.
func TestClusterOfOneNode(t *testing.T) {
	s := testkit.Redis(t, "--cluster-enabled", "yes")
	ctx := testkit.Deadline(t)
	raw := s.Client(t)
	if err := raw.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, func() error { return raw.Set(ctx, "probe", "1", 0).Err() })
	c, reg := openClient(t, s.Addr(), Cluster)
	m := &mirror{t: t, Client: c, server: s, raw: raw, reg: reg}
	m.install(t, image(wideScope, build1))
	for i, user := range oddUsers {
		a := ask(user, "r1")
		a.Scope, a.Nonce = wideScope, "}{"+user
		if i%2 == 1 {
			a.SKU = otherSKU
		}
		want(t, m.one(ctx, a), Accepted)
		want(t, m.one(ctx, a), Replayed)
	}
	if f, err := m.Facts(ctx, wideScope, testSKU); err != nil || f.Stock != 7 {
		t.Fatalf("%+v %v", f, err)
	}
	if n, err := m.Sweep(ctx, wideScope, build2); err != nil || n == 0 {
		t.Fatalf("%d keys swept, %v", n, err)
	}
}

// Numbers beyond 1e14 come out as they went in: no script makes text of them.
func TestLargeNumbersSurvive(t *testing.T) {
	const large = int64(1)<<53 - 1
	im := image(skuScope, build1)
	im.Window.KeepUntilMS = 0
	im.Stocks[0].Version, im.Stocks[0].LastNumber, im.Stocks[0].Gate.Bound = large-1, large-1, large
	m := newMirror(t, im)
	ctx := testkit.Deadline(t)
	f, err := m.Facts(ctx, skuScope, testSKU)
	if err != nil || f.BaseVersion != large-1 || f.LastNumber != large-1 || f.Bound != large {
		t.Fatalf("%+v %v", f, err)
	}
	r, err := m.DebitReturn(ctx, Return{Scope: skuScope, SKU: testSKU, AdjustmentID: "a", Number: large, Units: 1})
	if err != nil || r.Change != Applied {
		t.Fatalf("%s %v", r.Change, err)
	}
	a := ask("ann", "r1")
	a.PermitExpiresAtMS = large
	want(t, m.one(ctx, a), Accepted)
	if f, err = m.Facts(ctx, skuScope, testSKU); err != nil || f.LastNumber != large {
		t.Fatalf("%+v %v", f, err)
	}
}

func TestInvalidAsksAreSentNowhere(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	bad := map[string]func(*Ask){
		"quantity 0":  func(a *Ask) { a.Quantity = 0 },
		"quantity -1": func(a *Ask) { a.Quantity = -1 },
		"huge":        func(a *Ask) { a.Quantity = 1001 },
		"no nonce":    func(a *Ask) { a.Nonce = "" },
		"no user":     func(a *Ask) { a.User = "" },
		"other SKU":   func(a *Ask) { a.SKU = otherSKU },
	}
	for name, f := range bad {
		a := ask("ann", "r1")
		f(&a)
		if r := m.one(testkit.Deadline(t), a); r.Outcome != Undecided || !errors.Is(r.Err, ErrInvalidAsk) {
			t.Errorf("%s: %s %v", name, r.Outcome, r.Err)
		}
	}
	if s := m.stock(t, skuScope, testSKU); s != 10 {
		t.Fatalf("stock %d", s)
	}
}
