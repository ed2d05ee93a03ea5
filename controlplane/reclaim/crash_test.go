package reclaim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
)

// mortalShards are shards as the same process sees them.
type mortalShards struct {
	reclaim.Files
	life *fault.Life
}

func (s mortalShards) Open(ctx context.Context, spec core.CellSpec) (reclaim.Shard, error) {
	if s.life.Dead() {
		return nil, context.Canceled
	}
	shard, err := s.Files.Open(ctx, spec)
	return mortalShard{shard, s.life}, err
}

type mortalShard struct {
	reclaim.Shard
	life *fault.Life
}

func (s mortalShard) Fence(ctx context.Context, cell string, version fencing.Version, reason string) (p fencing.Proof, err error) {
	err = s.life.Spend(func() (err error) {
		p, err = s.Shard.Fence(context.WithoutCancel(ctx), cell, version, reason)
		return err
	})
	return p, err
}

func (s mortalShard) Restore(ctx context.Context, cell string, version fencing.Version, group, reason string) error {
	return s.life.Spend(func() error { return s.Shard.Restore(context.WithoutCancel(ctx), cell, version, group, reason) })
}

func (s mortalShard) Activate(ctx context.Context, cell string, version fencing.Version, reason string) error {
	return s.life.Spend(func() error { return s.Shard.Activate(context.WithoutCancel(ctx), cell, version, reason) })
}

// live drives an operation with a driver that dies at its n-th effect. It tells
// whether the driver died before the operation ended.
func (w *world) live(operation string, n int, after bool) (died bool) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(testkit.Deadline(w.t))
	defer cancel()
	l := fault.Live(n, after, cancel)
	s := w.openStore(l.KV)
	d := reclaim.New(reclaim.Config{RetryInterval: time.Nanosecond, CloseGrace: time.Millisecond}, s, w.view, mortalShards{reclaim.Files{}, l}, clock.System(), nil)
	for range 100 {
		op, err := w.store.Operation(testkit.Deadline(w.t), operation)
		if err != nil {
			w.t.Fatal(err)
		}
		if op.State.Terminal() {
			return l.Dead()
		}
		if err := d.Step(ctx, w.leader, op); err != nil && !l.Dead() {
			w.t.Fatalf("effect %d: %v", n, err)
		}
		if l.Dead() {
			return true
		}
	}
	w.t.Fatalf("effect %d: the operation neither ended nor died", n)
	return false
}

// K72: a driver that dies at any of its effects, before it or with the answer
// lost, is followed by another leader's, which comes to the very same end.
func TestADriverMayDieAtEveryEffect(t *testing.T) {
	etcd := testkit.Etcd(t, 1)
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			ok := t.Run(fmt.Sprintf("effect %d, answer lost %v", n, after), func(t *testing.T) {
				w := newWorldIn(t, etcd, false).publish()
				busy(w)
				w.fence(reclaim.FenceOrder{Cell: "cell-1", OperationID: "f1", Reclaim: true, TopUp: true})
				died = w.live("f1", n, after)
				w.lead()
				w.done("f1")
				w.sameEnd(t)
				if _, err := w.orders.Restore(testkit.Deadline(t), who, "cell-1", "r1", "", "back", false); err != nil {
					t.Fatal(err)
				}
				diedToo := w.live("r1", n, after)
				w.lead()
				w.done("r1")
				if c := w.cell("cell-1"); c.State != core.CellActive || c.FenceVersion != 3 {
					t.Fatalf("%+v", c)
				}
				w.sameEnd(t)
				died = died || diedToo
			})
			if !ok {
				return
			}
			if !died {
				if n < 6 {
					t.Fatalf("only %d effects were found: the test looks at nothing", n-1)
				}
				break
			}
		}
	}
}

// sameEnd is what TestFenceReclaimTopUpRestore comes to.
func (w *world) sameEnd(t *testing.T) {
	t.Helper()
	w.want(6, 8, 43, 43)
	if got := w.shards["cell-1"].levels(); got != (levels{8, 0, 5, 3}) {
		t.Fatalf("shard %+v", got)
	}
	seals, grants := 0, 0
	for _, r := range w.view.Snapshot().Records("c", 0, 1000) {
		for _, a := range r.Adjustments {
			if a.Kind == core.KindSeal {
				seals++
			}
			if a.Kind == core.KindGrant && a.State == core.StateBooked {
				grants++
			}
		}
	}
	if seals != 1 || grants != 2 {
		t.Fatalf("%d seals and %d grants to others in the journal", seals, grants)
	}
	var rows int
	if err := w.shards["cell-1"].conn.QueryRow(t.Context(), "SELECT count(*) FROM cellquota.ledger WHERE action = 'SEAL'").Scan(&rows); err != nil || rows != 1 {
		t.Fatalf("%d seals in the shard, %v", rows, err)
	}
	w.i1()
}
