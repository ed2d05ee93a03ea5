package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// The audit is two folders whose names sort by time: mutations (KindAudit),
// created in the mutation's own transaction (Tx.Audit), and refusals
// (KindRefusal), counted per minute. Neither is mirrored; these read etcd.

// TrailBefore gives the records of one folder whose names are below before
// (empty: all), newest first, at most bound. One that cannot be read is logged
// and given as a record that says so.
func (s *Store) TrailBefore(ctx context.Context, kind Kind, before string, bound int) ([]core.Trail, error) {
	room := s.keys.room(kind)
	end := clientv3.GetPrefixRangeEnd(room)
	if before != "" {
		end = room + before
	}
	trail, _, err := s.trail(ctx, kind, room, end, bound, clientv3.SortDescend)
	return trail, err
}

// TrailOldest gives the oldest records of one folder whose names are below until,
// oldest first, at most bound, and the revision at which they were read.
func (s *Store) TrailOldest(ctx context.Context, kind Kind, until string, bound int) ([]core.Trail, int64, error) {
	room := s.keys.room(kind)
	return s.trail(ctx, kind, room, room+until, bound, clientv3.SortAscend)
}

func (s *Store) trail(ctx context.Context, kind Kind, from, end string, bound int, order clientv3.SortOrder) ([]core.Trail, int64, error) {
	if from >= end || bound < 1 {
		return nil, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.kv.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(int64(bound)), clientv3.WithSort(clientv3.SortByKey, order))
	if err != nil {
		return nil, 0, readError("read "+kind.String(), err)
	}
	var out []core.Trail
	for _, kv := range resp.Kvs {
		t := core.Trail{Name: strings.TrimPrefix(string(kv.Key), s.keys.room(kind))}
		if t.Audit, err = decodeTrail(kind, kv); err != nil {
			s.log.Warn("audit record cannot be read", telemetry.Event, "record_quarantined", "key", string(kv.Key), telemetry.Error, err)
			t.Audit = core.Audit{Subject: "record " + t.Name, Reason: "cannot be read: " + err.Error()}
			t.Audit.At, _ = core.TrailTime(t.Name)
		}
		out = append(out, t)
	}
	return out, resp.Header.Revision, nil
}

// DropTrail removes the records of one folder from first to last, both included,
// as they were read at a revision, and puts what the archive has of them in the
// same transaction; index nil: nothing was archived. core.ErrRace when one of
// them changed since; core.ErrNotLeader.
func (s *Store) DropTrail(ctx context.Context, leader core.Leader, kind Kind, first, last string, revision int64, index *core.ArchiveIndex) error {
	from, end := s.keys.room(kind)+first, s.keys.room(kind)+last+"\x00"
	_, err := s.Update(ctx, "drop "+kind.String(), func(tx *Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		tx.cmps = append(tx.cmps, clientv3.Compare(clientv3.ModRevision(from), "<", revision+1).WithRange(end))
		tx.ops = append(tx.ops, clientv3.OpDelete(from, clientv3.WithRange(end)))
		if index == nil {
			return nil
		}
		key := s.keys.room(KindArchive) + index.Object.Name
		if _, err := tx.get(key); err != nil {
			return err
		}
		return tx.put(key, encodeArchiveIndex(*index))
	})
	return err
}

// Archived lists the archive's objects that no campaign names, whose names begin
// so, in order of names.
func (s *Store) Archived(ctx context.Context, prefix string) ([]core.ArchiveIndex, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.kv.Get(ctx, s.keys.room(KindArchive)+prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, readError("read archive index", err)
	}
	out := make([]core.ArchiveIndex, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		x, err := decodeArchiveIndex(kv)
		if err != nil {
			return nil, readError("read "+string(kv.Key), err)
		}
		out = append(out, x)
	}
	return out, nil
}

// putsAtOnce bounds the counts of one transaction, below etcd's limit.
const putsAtOnce = 100

// PutRefusals writes counts of refusals, each under a name of its own. After an
// error some of them may be written.
func (s *Store) PutRefusals(ctx context.Context, counts []core.Audit) error {
	var failed error
	for len(counts) > 0 {
		some := counts[:min(len(counts), putsAtOnce)]
		counts = counts[len(some):]
		names := make([]string, len(some)) // once: a retry writes the same keys
		for i, a := range some {
			names[i] = s.keys.room(KindRefusal) + core.TrailName(a.At, ids.NewOperationID())
		}
		_, err := s.Update(ctx, "write refusals", func(tx *Tx) error {
			for i, a := range some {
				value, err := encode(encodeRefusals(a))
				if err != nil {
					return err
				}
				tx.ops = append(tx.ops, clientv3.OpPut(names[i], string(value)))
			}
			return nil
		})
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%d counts: %w", len(some), err))
		}
	}
	return failed
}
