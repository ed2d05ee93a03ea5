package reclaim_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// life ends at its n-th effect: a commit in etcd or a write in a shard. Dead,
// nothing comes through any more. With after, the last effect happened and its
// answer was lost.
type life struct {
	mu    sync.Mutex
	left  int
	after bool
	end   context.CancelFunc
	ended bool
}

// spend runs one effect, or what is left of it.
func (l *life) spend(effect func() error) error {
	l.mu.Lock()
	l.left--
	last, dead := l.left == 0, l.ended || l.left < 0
	l.mu.Unlock()
	switch {
	case dead:
		return context.Canceled
	case !last:
		return effect()
	}
	if l.after {
		_ = effect()
	}
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.end()
	return context.Canceled
}

func (l *life) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// mortalKV is etcd as a process with a life sees it.
type mortalKV struct {
	clientv3.KV
	life *life
}

func (k mortalKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if k.life.dead() {
		return nil, context.Canceled
	}
	return k.KV.Get(ctx, key, opts...)
}

func (k mortalKV) Txn(ctx context.Context) clientv3.Txn { return &mortalTxn{k.KV.Txn(ctx), k.life} }

type mortalTxn struct {
	clientv3.Txn
	life *life
}

func (t *mortalTxn) If(c ...clientv3.Cmp) clientv3.Txn  { t.Txn = t.Txn.If(c...); return t }
func (t *mortalTxn) Then(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(o...); return t }

func (t *mortalTxn) Commit() (resp *clientv3.TxnResponse, err error) {
	err = t.life.spend(func() (err error) {
		resp, err = t.Txn.Commit()
		return err
	})
	return resp, err
}

// mortalShards are shards as the same process sees them.
type mortalShards struct {
	reclaim.Files
	life *life
}

func (s mortalShards) Open(ctx context.Context, spec core.CellSpec) (reclaim.Shard, error) {
	if s.life.dead() {
		return nil, context.Canceled
	}
	shard, err := s.Files.Open(ctx, spec)
	return mortalShard{shard, s.life}, err
}

type mortalShard struct {
	reclaim.Shard
	life *life
}

func (s mortalShard) Fence(ctx context.Context, cell string, version fencing.Version, reason string) (p fencing.Proof, err error) {
	err = s.life.spend(func() (err error) {
		p, err = s.Shard.Fence(context.WithoutCancel(ctx), cell, version, reason)
		return err
	})
	return p, err
}

func (s mortalShard) Restore(ctx context.Context, cell string, version fencing.Version, group, reason string) error {
	return s.life.spend(func() error { return s.Shard.Restore(context.WithoutCancel(ctx), cell, version, group, reason) })
}

func (s mortalShard) Activate(ctx context.Context, cell string, version fencing.Version, reason string) error {
	return s.life.spend(func() error { return s.Shard.Activate(context.WithoutCancel(ctx), cell, version, reason) })
}

// live drives an operation with a driver that dies at its n-th effect. It tells
// whether the driver died before the operation ended.
func (w *world) live(operation string, n int, after bool) (died bool) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(testkit.Deadline(w.t))
	defer cancel()
	l := &life{left: n, after: after, end: cancel}
	s := w.openStore(func(kv clientv3.KV) clientv3.KV { return mortalKV{kv, l} })
	d := reclaim.New(reclaim.Config{RetryInterval: time.Nanosecond, CloseGrace: time.Millisecond}, s, w.view, mortalShards{reclaim.Files{}, l}, clock.System(), nil)
	for range 100 {
		op, err := w.store.Operation(testkit.Deadline(w.t), operation)
		if err != nil {
			w.t.Fatal(err)
		}
		if op.State.Terminal() {
			return l.dead()
		}
		if err := d.Step(ctx, w.leader, op); err != nil && !l.dead() {
			w.t.Fatalf("effect %d: %v", n, err)
		}
		if l.dead() {
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
