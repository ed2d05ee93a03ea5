package store

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
)

// The standing record that etcd lost its past, and the cluster that the records
// were made in.

// MarkRestored keeps that etcd lost its past; the first word stands. Any replica
// may say so, whether it leads or not: what it saw does not depend on it.
// What was seen of a past that a recovery has given up meanwhile is no loss: it is
// forgotten, and nothing is written.
func (s *Store) MarkRestored(ctx context.Context, r core.Restored) error {
	var present cluster
	_, err := s.Update(ctx, "mark etcd restored", func(tx *Tx) error {
		var err error
		if present, _, err = fetch(tx, s.keys.cluster(), decodeCluster); err != nil || s.past.givenUp(present) {
			return err
		}
		_, stands, err := tx.Restored()
		if err != nil || stands {
			return err
		}
		return tx.putRestored(r)
	})
	if err == nil && s.past.givenUp(present) {
		_ = s.past.recovered(present)
	}
	return err
}

func (tx *Tx) putRestored(r core.Restored) error {
	if r.At.IsZero() {
		r.At = tx.Now()
	}
	if err := r.Check(); err != nil {
		return err
	}
	return errors.Join(tx.put(tx.s.keys.restored(), encodeRestored(r)),
		tx.Audit(core.Audit{Actor: r.FoundBy, Method: "store", Subject: "etcd", Reason: r.Why}))
}

// Restored reads whether etcd is known to have lost its past.
func (tx *Tx) Restored() (core.Restored, bool, error) {
	return fetch(tx, tx.s.keys.restored(), decodeRestored)
}

// DropRestored ends it: an operator confirmed the books.
func (tx *Tx) DropRestored() error { return tx.remove(tx.s.keys.restored()) }

// Recover lets this transaction change books although etcd lost its past, on
// condition that it stands: recovery's own, and nobody else's.
// core.ErrOperationState when it does not.
func (tx *Tx) Recover() error {
	_, stands, err := tx.Restored()
	if err == nil && !stands {
		err = fmt.Errorf("%w: etcd is not RESTORED", core.ErrOperationState)
	}
	tx.recovers = err == nil
	return err
}

// whole refuses a change of a book while etcd is known to have lost its past, and
// makes the commit conditional on that.
func (tx *Tx) whole() error {
	if tx.recovers || tx.checked {
		return nil
	}
	if why := tx.s.past.loss(); why != "" {
		return core.Restored{Why: why, At: tx.Now(), FoundBy: "this replica"}.Refuses()
	}
	tx.cmps = append(tx.cmps, clientv3.Compare(clientv3.CreateRevision(tx.s.keys.restored()), "=", 0))
	tx.checked = true
	return nil
}

// Lost gives why this replica knows that etcd lost its past, or "". The leader
// writes it down with MarkRestored.
func (s *Store) Lost() string { return s.past.loss() }

// SameCluster compares the cluster that answers with the one that the records
// were made in, and keeps it where none is kept. core.ErrRestored.
func (tx *Tx) SameCluster() error {
	kept, known, err := fetch(tx, tx.s.keys.cluster(), decodeCluster)
	if err != nil {
		return err
	}
	answers := tx.s.past.clusterID()
	if !known {
		return tx.put(tx.s.keys.cluster(), cluster{id: answers}.encode())
	}
	if why := kept.otherThan(answers); why != "" {
		return fmt.Errorf("%w: %s", core.ErrRestored, why)
	}
	return nil
}

// PutRecovered keeps the cluster that answers as the one of the records, and the
// term under which they were recovered: it is above that of every recovery before.
func (tx *Tx) PutRecovered(under core.Term) error {
	if _, err := tx.get(tx.s.keys.cluster()); err != nil {
		return err
	}
	return tx.put(tx.s.keys.cluster(), cluster{id: tx.s.past.clusterID(), recovered: under}.encode())
}

// PutCompared keeps that every shard was compared with the books under this
// leader: who sees it come over a watch, and sees that watch run on, need not
// compare again. core.ErrNotLeader.
func (s *Store) PutCompared(ctx context.Context, leader core.Leader) error {
	_, err := s.Update(ctx, "keep that shards were compared", func(tx *Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		key := s.keys.room(KindCompared)
		if _, err := tx.get(key); err != nil {
			return err
		}
		return errors.Join(tx.whole(), tx.put(key, &storev1.TermRecord{Term: convert.Term(leader.Term)}))
	})
	return err
}

// RaiseTermRecord makes the next leader's term greater than count. The present
// leader's stays what it is: it has to step down.
func (tx *Tx) RaiseTermRecord(count int64) error {
	kv, err := tx.get(tx.s.keys.term())
	if err != nil {
		return err
	}
	last := core.Term{}
	if kv != nil {
		if last, err = decodeTerm(kv); err != nil {
			return err
		}
	}
	if last.Count >= count {
		return nil
	}
	return tx.put(tx.s.keys.term(), &storev1.TermRecord{Term: convert.Term(core.Term{Count: count, ID: ids.NewOperationID()})})
}

// refusedAsRestored tells a compare that failed because etcd lost its past from
// one that failed for another reason.
func (s *Store) refusedAsRestored(resp *clientv3.TxnResponse) error {
	if len(resp.Responses) == 0 {
		return nil
	}
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return nil
	}
	r, err := checked(decodeRestored(kvs[0]))
	if err != nil {
		return readError("read "+s.keys.restored(), err)
	}
	return r.Refuses()
}

func encodeRestored(r core.Restored) proto.Message {
	return &storev1.Restored{Why: r.Why, CellId: string(r.Cell), At: convert.Time(r.At), FoundBy: r.FoundBy, TermCount: r.TermCount}
}

func decodeRestored(kv *mvccpb.KeyValue) (core.Restored, error) {
	var m storev1.Restored
	err := decode(kv.Value, &m)
	return core.Restored{
		Why: m.GetWhy(), Cell: ids.CellID(m.GetCellId()), At: convert.FromTime(m.GetAt()), FoundBy: m.GetFoundBy(),
		TermCount: m.GetTermCount(), ModRevision: kv.ModRevision,
	}, err
}
