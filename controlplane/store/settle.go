package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
)

// Settled is what a shard's answer came to.
type Settled struct {
	Book       core.Book
	Adjustment core.Adjustment
	// Changed is false when the answer was known already.
	Changed  bool
	Revision int64
}

// Settle books a shard's answer to one adjustment of a record: the record's state
// and, where the answer asks for it, the book, in one transaction that compares
// the record's ModRevision and the leader. The same answer again changes nothing;
// core.ErrContradiction for another one; core.ErrUnknownRecord.
//
// The change of the book is explained by the record itself, so no record is
// created: the book's LastRecordID names it.
func (s *Store) Settle(ctx context.Context, leader core.Leader, recordID, adjustmentID string, answer core.Outcome) (Settled, error) {
	var out Settled
	revision, err := s.Update(ctx, "settle "+adjustmentID, func(tx *Tx) (err error) {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		out, err = tx.settle(recordID, adjustmentID, answer)
		return err
	})
	if err != nil {
		return Settled{}, err
	}
	out.Revision = revision
	if out.Changed {
		s.journal.WithLabelValues(out.Adjustment.Kind.String(), answer.String()).Inc()
	}
	return out, nil
}

func (tx *Tx) settle(recordID, adjustmentID string, answer core.Outcome) (Settled, error) {
	record, found, err := tx.Record(recordID)
	if err != nil {
		return Settled{}, err
	}
	at := record.Find(adjustmentID)
	if !found || at < 0 {
		return Settled{}, fmt.Errorf("%w: %s in %s", core.ErrUnknownRecord, adjustmentID, recordID)
	}
	after, effect, err := record.Adjustments[at].Settle(answer)
	if err != nil {
		return Settled{}, err
	}
	if !record.Adjustments[at].Open() {
		return Settled{Adjustment: after}, nil
	}
	record.Adjustments[at] = after
	out := Settled{Adjustment: after, Changed: true}
	if effect != core.EffectNone {
		book, known, err := tx.Book(record.Key)
		if err != nil {
			return Settled{}, err
		}
		if !known {
			return Settled{}, fmt.Errorf("%w: %s", core.ErrUnknownSKU, record.Key)
		}
		if book, err = book.Apply(after, effect); err != nil {
			return Settled{}, err
		}
		out.Book = book.Stamp(recordID)
		if err := tx.PutBook(out.Book); err != nil {
			return Settled{}, err
		}
	}
	return out, errors.Join(tx.PutRecord(record), tx.Audit(core.Audit{
		Actor: after.Actor, Method: "settle", OperationID: adjustmentID, Subject: "book " + record.Key.String(),
		Reason: fmt.Sprintf("%s of %s units answered %s: %s", after.Kind, after.Units, answer, after.Reason),
	}))
}
