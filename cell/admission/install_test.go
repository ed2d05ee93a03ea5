package admission

import (
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

func seqOf[T any](list ...T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// A rebuilt mirror knows everybody it must know; more marks than one pipeline.
func TestInstalledMirrorKnowsItsUsers(t *testing.T) {
	im := image(skuScope, build1)
	var marks []Mark
	for i := range 1234 {
		marks = append(marks, Mark{
			User: ids.UserID(fmt.Sprint("u", i)), State: cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT, SKU: testSKU,
			Request: "r1", Reservation: "cell-1.rx", Quantity: 1,
		})
	}
	marks[1].State = cellquotav1.RequestState_REQUEST_STATE_PAID
	marks[2].State = cellquotav1.RequestState_REQUEST_STATE_CLOSED
	rejected := Record{
		SKU: testSKU, User: "rex", Request: "r1", Reservation: "cell-1.ry", State: cellquotav1.RequestState_REQUEST_STATE_REJECTED,
		Reason: cellquotav1.Reason_REASON_SOLD_OUT, Quantity: 1, Version: 1,
		Fingerprint: ids.Fingerprint(skuScope.Campaign, testSKU, "rex", 1),
	}
	im.Marks, im.Records = seqOf(marks...), seqOf(rejected)
	m := newMirror(t, im)
	ctx := testkit.Deadline(t)
	want(t, m.one(ctx, ask("u0", "r2")), AlreadyReserved)
	want(t, m.one(ctx, ask("u1", "r2")), AlreadyPurchased)
	if r := want(t, m.one(ctx, ask("u2", "r2")), OrderClosed); r.Order == "" || r.Request != "r1" {
		t.Fatalf("%+v", r)
	}
	want(t, m.one(ctx, ask("u1233", "r1")), Replayed)
	if r := want(t, m.one(ctx, ask("rex", "r1")), Replayed); r.Reason != cellquotav1.Reason_REASON_SOLD_OUT {
		t.Fatalf("%+v", r)
	}
	want(t, m.one(ctx, ask("new", "r1")), Accepted)
}

// A build is staged beside the running one: until the switch nobody sees it, and an
// older one never gets in.
func TestOnlyTheNewestBuildIsSwitchedIn(t *testing.T) {
	m := newMirror(t, image(skuScope, build2))
	ctx := testkit.Deadline(t)
	want(t, m.one(ctx, ask("ann", "r1")), Accepted)
	if err := m.Install(ctx, image(skuScope, build1)); !errors.Is(err, ErrOlderBuild) {
		t.Fatalf("an older build: %v", err)
	}
	if err := m.Install(ctx, image(skuScope, build2)); err != nil {
		t.Fatalf("a repeat: %v", err)
	}
	if s := m.stock(t, skuScope, testSKU); s != 9 {
		t.Fatalf("stock %d after a repeat, want 9", s)
	}
	next := image(skuScope, ids.Build{Fence: 1, Count: 3})
	next.Marks = func(yield func(Mark, error) bool) { yield(Mark{}, errors.New("the shard went away")) }
	if err := m.Install(ctx, next); err == nil {
		t.Fatal("half a snapshot was installed")
	}
	if r := want(t, m.one(ctx, ask("ann", "r1")), Replayed); r.Build != build2 {
		t.Fatalf("build %s", r.Build)
	}
}

func TestSweepLeavesThePresentAndTheComing(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	want(t, m.one(ctx, ask("ann", "r1")), Accepted)
	m.install(t, image(skuScope, build2))
	coming := skuScope.at(ids.Build{Fence: 2, Count: 1}).marks()
	if err := m.raw.HSet(ctx, coming, guard, "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Sweep(ctx, skuScope, build2); err != nil {
		t.Fatal(err)
	}
	old, err := m.raw.Keys(ctx, string(skuScope.at(build1))+"*").Result()
	if err != nil || len(old) != 0 {
		t.Fatalf("left behind: %v %v", old, err)
	}
	if n := m.raw.Exists(ctx, coming, skuScope.at(build2).marks(), skuScope.metaKey()).Val(); n != 3 {
		t.Fatalf("%d of 3 keys that must stay", n)
	}
	want(t, m.one(ctx, ask("ann", "r1")), Accepted) // of the new build: the old admission is no more
}

// The admitting pool refuses a server that was not acknowledged, and acknowledging
// another one forgets every expectation.
func TestAnotherServerIsMetAtTheDoor(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	want(t, m.one(ctx, ask("ann", "r1")), Accepted)
	m.server.Restart(t)
	r := m.one(ctx, ask("bob", "r1"))
	if r.Outcome == Accepted || r.Err == nil {
		t.Fatalf("%s %v", r.Outcome, r.Err)
	}
	testkit.Eventually(t, waitFor, func() error { // a dead connection may have to be noticed first
		if r := m.one(ctx, ask("bob", "r1")); r.Outcome != NotReady || !errors.Is(r.Err, ErrRunChanged) {
			return fmt.Errorf("%s %w", r.Outcome, r.Err)
		}
		return nil
	})
	select {
	case <-m.Changed():
	default:
		t.Fatal("nobody was told")
	}
	if _, err := m.Acknowledge(ctx); err != nil {
		t.Fatal(err)
	}
	if r := m.one(ctx, ask("bob", "r1")); r.Outcome != NotReady || r.Err != nil {
		t.Fatalf("%s %v: it still expects the lost mirror", r.Outcome, r.Err)
	}
}

func TestMetricsMove(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	m.Admit(ctx, []Ask{ask("ann", "r1"), ask("ann", "r1"), ask("ann", "r2"), {}})
	for outcome, n := range map[string]float64{"ACCEPTED": 1, "REPLAYED": 1, "ALREADY_RESERVED": 1, "NOT_READY": 1, "CONFLICT": 0} {
		if got := testutil.ToFloat64(m.metrics.total.WithLabelValues(outcome)); got != n {
			t.Errorf("admission_total{%s} %v, want %v", outcome, got, n)
		}
	}
	if n, err := testutil.GatherAndCount(m.reg, "cellquota_admission_script_duration_seconds"); err != nil || n != 1 {
		t.Fatalf("%d series %v", n, err)
	}
	if got := testutil.CollectAndCount(m.metrics.script); got != 1 {
		t.Fatalf("script durations %d", got)
	}
}

func TestBucketSetIsRedisBitmap(t *testing.T) {
	m := newMirror(t, image(skuScope, build1))
	ctx := testkit.Deadline(t)
	var set BucketSet
	set.Add(7, 9)
	set.Add(4095, 5000)
	if _, err := m.SetBuckets(ctx, skuScope, build1, "east", set); err != nil {
		t.Fatal(err)
	}
	for _, b := range []int64{0, 6, 7, 8, 9, 10, 4094, 4095} {
		bit, err := m.raw.GetBit(ctx, skuScope.at(build1).buckets("east"), b).Result()
		if err != nil || (bit == 1) != set.Has(int(b)) {
			t.Errorf("bucket %d: bit %d, Has %t, %v", b, bit, set.Has(int(b)), err)
		}
	}
	if set.Has(-1) || set.Has(4096) {
		t.Error("a bucket that is none is in")
	}
}
