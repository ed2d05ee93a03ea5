package fault

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Life is a process that dies at its n-th effect: a commit in etcd, a write in a
// shard, an object in the archive. Dead, nothing comes through any more. Tests let
// a driver live such lives one longer than the other, so that it dies on every line.
type Life struct {
	mu    sync.Mutex
	left  int
	after bool
	end   context.CancelFunc
	ended bool
}

// Live makes a life of n effects; end is called when it is over. With after, the
// last effect happened and its answer was lost.
func Live(n int, after bool, end context.CancelFunc) *Life {
	return &Life{left: n, after: after, end: end}
}

// Spend runs one effect, or what is left of it. context.Canceled: the process is dead.
func (l *Life) Spend(effect func() error) error {
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

// Dead tells whether the life is over.
func (l *Life) Dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// KV is etcd as the process sees it: each commit is an effect.
func (l *Life) KV(kv clientv3.KV) clientv3.KV { return mortalKV{kv, l} }

type mortalKV struct {
	clientv3.KV
	life *Life
}

// Get implements clientv3.KV.
func (k mortalKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if k.life.Dead() {
		return nil, context.Canceled
	}
	return k.KV.Get(ctx, key, opts...)
}

// Txn implements clientv3.KV.
func (k mortalKV) Txn(ctx context.Context) clientv3.Txn { return &mortalTxn{k.KV.Txn(ctx), k.life} }

type mortalTxn struct {
	clientv3.Txn
	life *Life
}

// If implements clientv3.Txn.
func (t *mortalTxn) If(c ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(c...); return t }

// Then implements clientv3.Txn.
func (t *mortalTxn) Then(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(o...); return t }

// Else implements clientv3.Txn.
func (t *mortalTxn) Else(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(o...); return t }

// Commit implements clientv3.Txn.
func (t *mortalTxn) Commit() (resp *clientv3.TxnResponse, err error) {
	err = t.life.Spend(func() (err error) {
		resp, err = t.Txn.Commit()
		return err
	})
	return resp, err
}
