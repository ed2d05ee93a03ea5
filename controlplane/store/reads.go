package store

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// Linearizable reads outside a transaction, for decisions that must not stand on
// the view: sending a directive, comparing a shard with its books.

// Facts is a consistent read of what one directive stands on.
type Facts struct {
	Cell     core.Cell                // the first that was asked for
	Cells    map[ids.CellID]core.Cell // at least those that were asked for, where they exist
	Book     core.Book
	Record   core.Record
	Campaign core.Campaign
	Route    core.Route
	Revision int64
}

// ReadForSending reads record, book, campaign, route and cell in one linearizable
// transaction that also verifies the leader; one that is missing, or whose id is
// empty, has a zero value. core.ErrNotLeader; core.ErrRestored while etcd is known to
// have lost its past. Several cells are read at once, so that what goes to each of a
// thousand does not read a record of a thousand adjustments each time.
func (s *Store) ReadForSending(ctx context.Context, leader core.Leader, recordID string, key core.BookKey, cells ...ids.CellID) (Facts, error) {
	if why := s.past.loss(); why != "" {
		return Facts{}, core.Restored{Why: why, FoundBy: "this replica"}.Refuses()
	}
	seen, known := s.past.of(key)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(s.keys.leader()), "=", leader.CreateRevision),
			clientv3.Compare(clientv3.CreateRevision(s.keys.restored()), "=", 0)).
		Then(append([]clientv3.Op{
			clientv3.OpGet(s.keys.record(recordID)), clientv3.OpGet(s.keys.book(key)), clientv3.OpGet(s.keys.campaign(key.Campaign)), clientv3.OpGet(s.keys.route(key.Campaign)),
		}, s.getCells(cells)...)...).
		Else(clientv3.OpGet(s.keys.restored())).
		Commit()
	if err != nil {
		return Facts{}, readError("read "+recordID, err)
	}
	if !resp.Succeeded {
		if err := s.refusedAsRestored(resp); err != nil {
			return Facts{}, err
		}
	}
	if !resp.Succeeded || leader.CreateRevision == 0 {
		return Facts{}, fmt.Errorf("%w: term %d", core.ErrNotLeader, leader.Term.Count)
	}
	facts := Facts{Revision: resp.Header.Revision}
	at := func(i int) *mvccpb.KeyValue {
		if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
			return kvs[0]
		}
		return nil
	}
	var r reader
	facts.Record = maybe(&r, at(0), decodeRecord)
	facts.Book = maybe(&r, at(1), decodeBook)
	facts.Campaign = maybe(&r, at(2), decodeCampaign)
	facts.Route = maybe(&r, at(3), decodeRoute)
	facts.Cells = map[ids.CellID]core.Cell{}
	for _, answer := range resp.Responses[4:] {
		for _, kv := range answer.GetResponseRange().Kvs {
			cell := maybe(&r, kv, decodeCell)
			facts.Cells[cell.Spec.ID] = cell
		}
	}
	if len(cells) > 0 {
		facts.Cell = facts.Cells[cells[0]]
	}
	if r.err == nil && known {
		r.err = s.follows(ctx, key, seen, facts.Book, at(1) != nil)
	}
	return facts, r.err
}

// fewCells are read one by one; more by one range over all.
const fewCells = 8

func (s *Store) getCells(cells []ids.CellID) (ops []clientv3.Op) {
	if len(cells) > fewCells {
		return []clientv3.Op{clientv3.OpGet(s.keys.room(KindCell), clientv3.WithPrefix())}
	}
	for _, id := range cells {
		ops = append(ops, clientv3.OpGet(s.keys.cell(id)))
	}
	return ops
}

func maybe[T interface{ Check() error }](r *reader, kv *mvccpb.KeyValue, from func(*mvccpb.KeyValue) (T, error)) T {
	var zero T
	if kv == nil {
		return zero
	}
	v, err := checked(from(kv))
	if err != nil {
		r.err = readError("read "+string(kv.Key), err)
		return zero
	}
	return v
}

// Head gives etcd's present revision, linearizably: a view that has reached it is
// as good as a read of etcd at this moment.
func (s *Store) Head(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.kv.Get(ctx, s.keys.term())
	if err != nil {
		return 0, readError("head", err)
	}
	return resp.Header.Revision, nil
}

// Record reads one journal record, linearizably. core.ErrUnknownRecord.
func (s *Store) Record(ctx context.Context, id string) (core.Record, error) {
	return lookup(ctx, s, s.keys.record(id), decodeRecord, core.ErrUnknownRecord)
}

// Book reads one book, linearizably. core.ErrUnknownSKU.
func (s *Store) Book(ctx context.Context, key core.BookKey) (core.Book, error) {
	return lookup(ctx, s, s.keys.book(key), decodeBook, core.ErrUnknownSKU)
}

// Cell reads one cell, linearizably. core.ErrUnknownCell.
func (s *Store) Cell(ctx context.Context, id ids.CellID) (core.Cell, error) {
	return lookup(ctx, s, s.keys.cell(id), decodeCell, core.ErrUnknownCell)
}

// Operation reads one operation, linearizably. core.ErrUnknownOperation.
func (s *Store) Operation(ctx context.Context, id string) (core.Operation, error) {
	return lookup(ctx, s, s.keys.operation(id), decodeOperation, core.ErrUnknownOperation)
}

// Approval reads one approval, linearizably. core.ErrUnknownApproval.
func (s *Store) Approval(ctx context.Context, id string) (core.Approval, error) {
	return lookup(ctx, s, s.keys.approval(id), decodeApproval, core.ErrUnknownApproval)
}

// Proof reads the proof of a cell at a fence version, linearizably.
// core.ErrUnknownRecord.
func (s *Store) Proof(ctx context.Context, cell ids.CellID, version int64) (core.Proof, error) {
	own, err := lookup(ctx, s, s.keys.proof(cell, version), decodeProof, core.ErrUnknownRecord)
	if err != nil || own.Parts == 0 {
		return own, err
	}
	whole, found := own.Join(func(n int) (core.Proof, bool) {
		var part core.Proof
		part, err = lookup(ctx, s, s.keys.room(KindProofPart)+ProofPartName(cell, version, n), decodeProof, core.ErrUnknownRecord)
		return part, err == nil
	})
	switch {
	case err != nil:
		return core.Proof{}, err
	case !found:
		return core.Proof{}, fmt.Errorf("%w: proof %s has parts of another try", core.ErrBroken, core.ProofID(cell, version))
	}
	return whole, nil
}

func lookup[T interface{ Check() error }](ctx context.Context, s *Store, key string, from func(*mvccpb.KeyValue) (T, error), missing error) (T, error) {
	var zero T
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.kv.Get(ctx, key)
	if err != nil {
		return zero, readError("read "+key, err)
	}
	if len(resp.Kvs) == 0 {
		return zero, fmt.Errorf("%w: %s", missing, key)
	}
	v, err := checked(from(resp.Kvs[0]))
	if err != nil {
		return zero, readError("read "+key, err)
	}
	return v, nil
}
