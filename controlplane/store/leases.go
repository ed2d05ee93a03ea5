package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// ErrLeaseGone: the lease has ended; whoever held it must begin again.
var ErrLeaseGone = errors.New("the lease has ended")

// GrantLease makes a lease of ttl, in whole seconds and at least 1. etcd may
// give a longer one.
func (s *Store) GrantLease(ctx context.Context, ttl time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	seconds := max(1, int64((ttl+time.Second-1)/time.Second))
	resp, err := s.client.Grant(ctx, seconds)
	if err != nil {
		return 0, readError("grant a lease", err)
	}
	return int64(resp.ID), nil
}

// KeepLease keeps a lease once and gives its remaining life. ErrLeaseGone.
func (s *Store) KeepLease(ctx context.Context, lease int64) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.client.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return 0, ErrLeaseGone
	}
	if err != nil {
		return 0, readError("keep a lease", err)
	}
	return time.Duration(resp.TTL) * time.Second, nil
}

// RevokeLease ends a lease and deletes its keys; one that has ended is no error.
func (s *Store) RevokeLease(ctx context.Context, lease int64) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.client.Revoke(ctx, clientv3.LeaseID(lease))
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return readError("revoke a lease", err)
}

// Register puts a process under its lease, on condition that the leader leads
// and the cell's record is the one on which decide agreed. It gives that record.
// core.ErrUnknownCell, core.ErrNotLeader, core.ErrRestored while etcd is known to
// have lost its past, or what decide says.
func (s *Store) Register(ctx context.Context, leader core.Leader, in core.Instance, decide func(core.Cell) error) (core.Cell, error) {
	var cell core.Cell
	_, err := s.Update(ctx, "register "+in.ID, func(tx *Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		var found bool
		var err error
		if cell, found, err = tx.Cell(in.Cell); err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%w: %s", core.ErrUnknownCell, in.Cell)
		}
		if r, stands, err := tx.Restored(); err != nil {
			return err
		} else if stands {
			return r.Refuses()
		}
		if err := decide(cell); err != nil {
			return err
		}
		if _, _, err := tx.Instance(in.Cell, in.ID); err != nil {
			return err
		}
		in.FenceVersion, in.RegisteredAt = cell.FenceVersion, tx.Now()
		return tx.put(tx.s.keys.instance(in.Cell, in.ID), encodeInstance(in), clientv3.WithLease(clientv3.LeaseID(in.Lease)))
	})
	return cell, err
}

// Leads is nil while the leader leads, by a linearizable read. core.ErrNotLeader.
func (s *Store) Leads(ctx context.Context, leader core.Leader) error {
	tx := &Tx{s: s, ask: s.asker(ctx, s.timeout), read: map[string]int64{}, created: map[string]int64{}}
	return tx.Lead(leader)
}

// TakeLead makes this replica the leader under its lease and mints the next term,
// in one transaction. core.ErrNotLeader while somebody leads. Records that were
// made in another etcd cluster are marked restored with it.
func (s *Store) TakeLead(ctx context.Context, lease int64, address, termID string) (core.Leader, error) {
	var out core.Leader
	revision, err := s.Update(ctx, "take the lead", func(tx *Tx) error {
		kv, err := tx.get(s.keys.leader())
		if err != nil {
			return err
		}
		if kv != nil {
			present, err := decodeLeader(kv)
			if err == nil && kv.Lease == lease && present.Term.ID == termID {
				out = present // the answer to our own commit was lost
				return nil
			}
			return fmt.Errorf("%w: %s leads", core.ErrNotLeader, present.Address)
		}
		last := core.Term{}
		if kv, err = tx.get(s.keys.term()); err != nil {
			return err
		}
		if kv != nil {
			if last, err = decodeTerm(kv); err != nil {
				return err
			}
		}
		out = core.Leader{Address: address, Term: core.Term{Count: last.Count + 1, ID: termID}}
		term := &pb.Term{Count: out.Term.Count, Id: out.Term.ID}
		lost := tx.SameCluster()
		if errors.Is(lost, core.ErrRestored) {
			_, stands, err := tx.Restored()
			if err == nil && !stands {
				err = tx.putRestored(core.Restored{Why: lost.Error(), FoundBy: address})
			}
			lost = err
		}
		return errors.Join(lost,
			tx.put(s.keys.leader(), &storev1.Leader{Address: address, Term: term}, clientv3.WithLease(clientv3.LeaseID(lease))),
			tx.put(s.keys.term(), &storev1.TermRecord{Term: term}))
	})
	if err == nil && revision != 0 {
		out.CreateRevision = revision
	}
	return out, err
}
