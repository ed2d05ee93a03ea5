package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
)

// How transactions use what this process remembers (past.go).

// remembered is a newest record whose create revision a transaction compares.
type remembered struct {
	key  core.BookKey
	seen newest
}

// follows is nil when a book as just read can follow what was seen of it before
// the read, and makes the commit conditional on the remembered record being there
// still, as it was created.
func (tx *Tx) follows(key core.BookKey, seen newest, book core.Book, found bool) error {
	if tx.recovers {
		return nil
	}
	if err := tx.follow(key, seen, book, found); err != nil {
		return err
	}
	if seen.created != 0 {
		tx.cmps = append(tx.cmps, clientv3.Compare(clientv3.CreateRevision(tx.s.keys.record(seen.record)), "=", seen.created))
		tx.compared = append(tx.compared, remembered{key, seen})
	}
	return nil
}

// follower is follows under one change's context.
func (s *Store) follower(ctx context.Context) func(core.BookKey, newest, core.Book, bool) error {
	return func(key core.BookKey, seen newest, book core.Book, found bool) error {
		return s.follows(ctx, key, seen, book, found)
	}
}

// follows tells a book that etcd lost from one whose deletion this process has
// not heard of yet: it lets the watch catch up before it says so.
func (s *Store) follows(ctx context.Context, key core.BookKey, seen newest, book core.Book, found bool) error {
	why := seen.contradicts(book, found)
	if why == "" {
		return nil
	}
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	if now, known := s.past.of(key); !known || now != seen {
		return fmt.Errorf("%w: %w", errRetry, core.ErrRace)
	}
	return s.past.lose("%s: %s", key, why)
}

// catchUp waits, bounded by the store's timeout, until the watch brought what
// etcd had when it was called. Without a watch there is nothing to wait for.
func (s *Store) catchUp(ctx context.Context) error {
	if s.past.reached() == 0 {
		return nil
	}
	floor := s.past.floor()
	for waited := time.Duration(0); s.past.reached() < floor; waited += catchUpStep {
		if waited >= s.timeout {
			return fmt.Errorf("%w: %w: the watch is behind", errRetry, core.ErrStoreUnavailable)
		}
		if err := s.clock.Sleep(ctx, catchUpStep); err != nil {
			return err
		}
	}
	return nil
}

const catchUpStep = 10 * time.Millisecond

// outrun says why a commit's compares failed: etcd is RESTORED, a remembered
// record is not the one that was seen, or other writers were faster.
func (tx *Tx) outrun(ctx context.Context) error {
	if tx.checked {
		if r, err := lookup(ctx, tx.s, tx.s.keys.restored(), decodeRestored, core.ErrUnknownRecord); err == nil {
			return r.Refuses()
		} else if !errors.Is(err, core.ErrUnknownRecord) {
			return err
		}
	}
	for _, r := range tx.compared {
		resp, err := tx.s.kv.Get(ctx, tx.s.keys.record(r.seen.record), clientv3.WithKeysOnly())
		if err != nil {
			return readError("read "+r.seen.record, err)
		}
		if len(resp.Kvs) > 0 && resp.Kvs[0].CreateRevision == r.seen.created {
			continue
		}
		if err := tx.s.catchUp(ctx); err != nil {
			return err
		}
		if now, known := tx.s.past.of(r.key); known && now == r.seen {
			return tx.s.past.lose("%s: record %s, created at revision %d, is not there as it was", r.key, r.seen.record, r.seen.created)
		}
	}
	return fmt.Errorf("%w: %w", errRetry, core.ErrRace)
}

// remember takes a commit's books over.
func (tx *Tx) remember(revision int64) {
	for _, b := range tx.books {
		b.ModRevision = revision
		created, read := tx.created[tx.s.keys.record(b.LastRecordID)]
		if _, mine := tx.read[tx.s.keys.record(b.LastRecordID)]; mine && !read {
			created = revision // written with it
		}
		tx.s.past.saw(b, created)
	}
	for _, key := range tx.dropped {
		tx.s.past.forget(key)
	}
}

// guarded judges the header of every answer by what was seen before.
type guarded struct {
	clientv3.KV
	past *past
}

// Get implements clientv3.KV.
func (g guarded) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	floor := g.past.floor()
	resp, err := g.KV.Get(ctx, key, opts...)
	if err == nil {
		err = g.past.answered(resp.Header.ClusterId, resp.Header.Revision, floor)
	}
	return resp, err
}

// Txn implements clientv3.KV.
func (g guarded) Txn(ctx context.Context) clientv3.Txn {
	return &guardedTxn{g.KV.Txn(ctx), g.past, g.past.floor()}
}

type guardedTxn struct {
	clientv3.Txn
	past  *past
	floor int64
}

// If implements clientv3.Txn.
func (t *guardedTxn) If(cs ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(cs...); return t }

// Then implements clientv3.Txn.
func (t *guardedTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }

// Else implements clientv3.Txn.
func (t *guardedTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

// Commit implements clientv3.Txn.
func (t *guardedTxn) Commit() (*clientv3.TxnResponse, error) {
	resp, err := t.Txn.Commit()
	if err == nil {
		err = t.past.answered(resp.Header.ClusterId, resp.Header.Revision, t.floor)
	}
	return resp, err
}
