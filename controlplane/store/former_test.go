package store_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/testkit"
)

// sleeper is a process that is stopped right before its n-th transaction is sent, for as long as pause takes.
type sleeper struct {
	clientv3.KV
	mu    sync.Mutex
	left  int // transactions until it sleeps; below 0: never
	pause func()
}

func (s *sleeper) Txn(ctx context.Context) clientv3.Txn {
	return &sleeping{Txn: s.KV.Txn(ctx), s: s}
}

type sleeping struct {
	clientv3.Txn
	s *sleeper
}

func (t *sleeping) If(c ...clientv3.Cmp) clientv3.Txn    { t.Txn = t.Txn.If(c...); return t }
func (t *sleeping) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }
func (t *sleeping) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

func (t *sleeping) Commit() (*clientv3.TxnResponse, error) {
	t.s.mu.Lock()
	pause := t.s.left == 0
	t.s.left--
	t.s.mu.Unlock()
	if pause {
		t.s.pause()
	}
	return t.Txn.Commit()
}

// What a leader does to books, right before which it is stopped while another one is elected: booking an answer,
// a top-up or another move, settling a book, a part of a proof, and the read after which a directive is sent. None of
// it happens, and it hears that it does not lead.
func TestAFormerLeaderMovesNothing(t *testing.T) {
	move := func(leader core.Leader, edit func(core.Book, map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error)) store.Move {
		m := topUp("late", "cell-2", 3)
		m.Leader = &leader
		if edit != nil {
			m.Edit = edit
		}
		return m
	}
	for name, act := range map[string]func(context.Context, *store.Store, core.Leader) error{
		"books an answer": func(ctx context.Context, s *store.Store, l core.Leader) error {
			_, err := s.Settle(ctx, l, "t1", "t1", core.OutcomeVoided)
			return err
		},
		"tops up": func(ctx context.Context, s *store.Store, l core.Leader) error {
			_, err := s.Move(ctx, move(l, nil))
			return err
		},
		"settles a book": func(ctx context.Context, s *store.Store, l core.Leader) error {
			_, err := s.Move(ctx, move(l, func(b core.Book, _ map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
				b, err := b.Settle()
				return b, nil, err
			}))
			return err
		},
		"stores a part of a proof": func(ctx context.Context, s *store.Store, l core.Leader) error {
			_, err := s.StageProof(ctx, l, largest(1_000))
			return err
		},
		"reads to send a directive": func(ctx context.Context, s *store.Store, l core.Leader) error {
			_, err := s.ReadForSending(ctx, l, "t1", key, "cell-1")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := demo(t)
			ctx := testkit.Deadline(t)
			if _, err := p.Move(ctx, topUp("t1", "cell-1", 5)); err != nil {
				t.Fatal(err)
			}
			lease, err := p.GrantLease(ctx, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			former, err := p.TakeLead(ctx, lease, "a:1", "one")
			if err != nil {
				t.Fatal(err)
			}
			sleep := &sleeper{left: -1}
			s, err := store.Open(store.Config{Endpoints: p.etcd.Endpoints(), Prefix: prefix}, store.Deps{
				Clock: clock.System(), KV: func(kv clientv3.KV) clientv3.KV { sleep.KV = kv; return sleep },
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			var before *clientv3.GetResponse
			sleep.pause = func() {
				if err := p.RevokeLease(ctx, lease); err != nil {
					t.Error(err)
				}
				other, err := p.GrantLease(ctx, time.Minute)
				if err == nil {
					_, err = p.TakeLead(ctx, other, "b:1", "two")
				}
				if err != nil {
					t.Error(err)
				}
				if before, err = p.client.Get(ctx, prefix, clientv3.WithPrefix()); err != nil {
					t.Error(err)
				}
			}
			sleep.left = 0
			if err := act(ctx, s, former); !errors.Is(err, core.ErrNotLeader) {
				t.Errorf("the former leader hears %v", err)
			}
			if before == nil {
				t.Fatal("it was never stopped")
			}
			after, err := p.client.Get(ctx, prefix, clientv3.WithPrefix())
			if err != nil || !reflect.DeepEqual(keysOf(before), keysOf(after)) {
				t.Errorf("etcd changed from %v to %v, %v", keysOf(before), keysOf(after), err)
			}
		})
	}
}

// keysOf gives every key with the revision of its last change.
func keysOf(r *clientv3.GetResponse) map[string]int64 {
	out := map[string]int64{}
	for _, kv := range r.Kvs {
		out[string(kv.Key)] = kv.ModRevision
	}
	return out
}
