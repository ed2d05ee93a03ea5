package store

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
)

// MaxAnswers bounds the answers that are booked by one transaction: each has its own
// audit, and etcd takes 128 operations.
const MaxAnswers = 100

// Answer is a shard's word on one adjustment.
type Answer struct {
	AdjustmentID string
	Outcome      core.Outcome
}

// Settled is what a shard's answer came to.
type Settled struct {
	Book       core.Book // as the transaction left it; zero where no answer changed it
	Adjustment core.Adjustment
	// Changed is false when the answer was known already.
	Changed  bool
	Revision int64
	// Err refuses this one answer: core.ErrContradiction for another one than before,
	// core.ErrUnknownRecord.
	Err error
}

// Settle books a shard's answer to one adjustment of a record: the record's state
// and, where the answer asks for it, the book, in one transaction that compares
// the record's ModRevision and the leader. The same answer again changes nothing;
// core.ErrContradiction for another one; core.ErrUnknownRecord.
//
// The change of the book is explained by the record itself, so no record is
// created: the book's LastRecordID names it.
func (s *Store) Settle(ctx context.Context, leader core.Leader, recordID, adjustmentID string, answer core.Outcome) (Settled, error) {
	out, err := s.SettleAll(ctx, leader, recordID, []Answer{{adjustmentID, answer}})
	if err != nil {
		return Settled{}, err
	}
	if out[0].Err != nil {
		return Settled{}, fmt.Errorf("settle %s: %w", adjustmentID, out[0].Err)
	}
	return out[0], nil
}

// SettleAll is Settle for up to MaxAnswers answers to adjustments of one record, in
// one transaction: a record of a thousand adjustments is read and written once for
// many answers. What one answer came to, its refusal too, is in its place; an error
// means that none was booked.
func (s *Store) SettleAll(ctx context.Context, leader core.Leader, recordID string, answers []Answer) ([]Settled, error) {
	if len(answers) == 0 || len(answers) > MaxAnswers {
		return nil, fmt.Errorf("%w: %d answers at once, from 1 to %d", core.ErrTooLarge, len(answers), MaxAnswers)
	}
	var out []Settled
	revision, err := s.Update(ctx, "settle "+answers[0].AdjustmentID, func(tx *Tx) (err error) {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		out, err = tx.settle(recordID, answers)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].Revision = revision; out[i].Changed {
			s.journal.WithLabelValues(out[i].Adjustment.Kind.String(), answers[i].Outcome.String()).Inc()
		}
	}
	return out, nil
}

// settling is a record and its book while answers are booked.
type settling struct {
	tx     *Tx
	record core.Record
	book   core.Book
	read   bool // the book was
	moved  bool // the book was changed
}

func (tx *Tx) settle(recordID string, answers []Answer) ([]Settled, error) {
	record, found, err := tx.Record(recordID)
	if err != nil {
		return nil, err
	}
	out := make([]Settled, len(answers))
	w := settling{tx: tx, record: record}
	changed := false
	for i, answer := range answers {
		at := record.Find(answer.AdjustmentID)
		if !found || at < 0 {
			out[i].Err = fmt.Errorf("%w: %s in %s", core.ErrUnknownRecord, answer.AdjustmentID, recordID)
			continue
		}
		if out[i], err = w.take(at, answer.Outcome); err != nil {
			return nil, err
		}
		changed = changed || out[i].Changed
	}
	if !changed {
		return out, nil
	}
	if w.moved {
		w.book = w.book.Stamp(recordID)
		for i := range out {
			out[i].Book = w.book
		}
		if err := tx.PutBook(w.book); err != nil {
			return nil, err
		}
	}
	return out, tx.PutRecord(w.record)
}

// take books one answer; the error is of etcd, not of the answer.
func (w *settling) take(at int, answer core.Outcome) (Settled, error) {
	before := w.record.Adjustments[at]
	after, effect, err := before.Settle(answer)
	if err != nil {
		return Settled{Err: err}, nil //nolint:nilerr // it refuses this answer alone
	}
	if !before.Open() {
		return Settled{Adjustment: after}, nil
	}
	if effect != core.EffectNone {
		refused, err := w.apply(after, effect)
		if err != nil || refused != nil {
			return Settled{Err: refused}, err
		}
	}
	w.record.Adjustments[at] = after
	return Settled{Adjustment: after, Changed: true}, w.tx.Audit(core.Audit{
		Actor: after.Actor, Method: "settle", OperationID: after.ID, Subject: "book " + w.record.Key.String(),
		Reason: fmt.Sprintf("%s of %s units answered %s: %s", after.Kind, after.Units, answer, after.Reason),
	})
}

// apply changes the book; refused: the book does not take it.
func (w *settling) apply(a core.Adjustment, effect core.Effect) (refused, err error) {
	if !w.read {
		book, known, err := w.tx.Book(w.record.Key)
		if err != nil {
			return nil, err
		}
		if !known {
			return fmt.Errorf("%w: %s", core.ErrUnknownSKU, w.record.Key), nil
		}
		w.book, w.read = book, true
	}
	book, err := w.book.Apply(a, effect)
	if err != nil {
		return err, nil
	}
	w.book, w.moved = book, true
	return nil, nil
}
