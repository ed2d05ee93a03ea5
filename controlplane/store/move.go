package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// Move is one change of one book, explained by one journal record.
type Move struct {
	// RecordID is minted by the caller before its first try. The same id again
	// gives the first result; with other Parameters it is core.ErrIDReused.
	RecordID   string
	Parameters string
	Key        core.BookKey
	// ExpectedVersion of the book; 0: any. Another one is core.ErrVersion.
	ExpectedVersion int64
	Actor           string
	Method          string
	Reason          string
	OperationID     string
	// Leader makes the move conditional on leading; nil for intents of any replica.
	Leader *core.Leader
	// Also adds reads, puts and compares of the same transaction (a cell's record,
	// an operation's step), and refuses what is wrong with more than the book; nil:
	// nothing. It runs before Edit, and not for a repeat.
	Also func(tx *Tx) error
	// Edit decides: the changed book and the adjustments that explain it. It sees
	// the cells as they are in this transaction. Pure.
	Edit func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error)
}

// Moved is what a move came to.
type Moved struct {
	Book   core.Book
	Record core.Record
	// Replayed: the record was there already; Book is the present one.
	Replayed bool
	// Revision of the commit, to wait for in the view; the record's own when replayed.
	Revision int64
}

// Move carries out one move: one transaction on the book, the cells' range, the
// journal record and the audit.
func (s *Store) Move(ctx context.Context, m Move) (Moved, error) {
	var out Moved
	revision, err := s.Update(ctx, "move "+m.RecordID, func(tx *Tx) (err error) {
		out, err = tx.move(m)
		return err
	})
	if err != nil {
		if errors.Is(err, core.ErrIDReused) {
			s.journal.WithLabelValues("ANY", "CONFLICT").Inc()
		}
		return Moved{}, err
	}
	if out.Replayed {
		out.Revision = out.Record.ModRevision
		s.count(out.Record.Adjustments, "REPLAYED")
		return out, nil
	}
	out.Revision, out.Book.ModRevision = revision, revision
	out.Record.CreateRevision, out.Record.ModRevision = revision, revision
	s.count(out.Record.Adjustments, "")
	return out, nil
}

func (tx *Tx) move(m Move) (Moved, error) {
	if m.Leader != nil {
		if err := tx.Lead(*m.Leader); err != nil {
			return Moved{}, err
		}
	}
	book, found, err := tx.Book(m.Key)
	if err != nil {
		return Moved{}, err
	}
	record, done, err := tx.Record(m.RecordID)
	if err != nil {
		return Moved{}, err
	}
	if done {
		return Moved{Book: book, Record: record, Replayed: true}, record.SameParameters(m.Parameters)
	}
	if m.Also != nil {
		if err := m.Also(tx); err != nil {
			return Moved{}, err
		}
	}
	if !found {
		return Moved{}, fmt.Errorf("%w: %s", core.ErrUnknownSKU, m.Key)
	}
	if m.ExpectedVersion != 0 && m.ExpectedVersion != book.Version {
		return Moved{}, core.VersionConflict(m.ExpectedVersion, book.Version)
	}
	return tx.edit(m, book)
}

func (tx *Tx) edit(m Move, book core.Book) (Moved, error) {
	cells, err := tx.Cells()
	if err != nil {
		return Moved{}, err
	}
	book, adjustments, err := m.Edit(book, cells)
	if err != nil {
		return Moved{}, err
	}
	book = book.Stamp(m.RecordID)
	record := core.Record{
		ID: m.RecordID, Key: m.Key, Adjustments: adjustments, Actor: m.Actor, Reason: m.Reason,
		OperationID: m.OperationID, BookVersion: book.Version, At: tx.Now(), Parameters: m.Parameters,
	}
	return Moved{Book: book, Record: record}, errors.Join(
		tx.PutBook(book), tx.PutRecord(record),
		tx.Audit(core.Audit{Actor: m.Actor, Method: m.Method, OperationID: m.RecordID, Subject: "book " + m.Key.String(), Reason: m.Reason}))
}

// count moves the journal's metric; outcome "" counts each adjustment's state.
func (s *Store) count(adjustments []core.Adjustment, outcome string) {
	for _, a := range adjustments {
		what := outcome
		if what == "" {
			what = a.State.String()
		}
		s.journal.WithLabelValues(a.Kind.String(), what).Inc()
	}
}

// Count moves the journal's metric for adjustments that a transaction other than
// Move or Settle wrote: a reclaim's seals.
func (s *Store) Count(adjustments []core.Adjustment) { s.count(adjustments, "") }
