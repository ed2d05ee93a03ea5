package intent

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/quota"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Return asks a cell for units that it has available.
type Return struct {
	AdjustmentID    string
	Key             core.BookKey
	Cell            ids.CellID
	Units           quantity.Quantity
	ExpectedVersion int64 // of the book; 0: any
	Reason          string
}

// Parameters is the digest that a repeat must match.
func (r Return) Parameters() string {
	return core.Digest("return", r.Key.String(), string(r.Cell), r.Units.String())
}

// ReturnUnits writes the intent, PROPOSED under its number; the leader sends it and
// the shard decides. No unit moves in the book before. The same adjustment_id
// answers the first result, as TopUp's does.
func (s *Service) ReturnUnits(ctx context.Context, who Caller, r Return, validateOnly bool) (store.Moved, error) {
	return s.move(ctx, store.Move{
		RecordID: r.AdjustmentID, Parameters: r.Parameters(), Key: r.Key, ExpectedVersion: r.ExpectedVersion,
		Actor: who.Name, Method: who.Method, Reason: r.Reason,
		Also: func(tx *store.Tx) error { return s.onSale(tx, r.Key.Campaign) },
		Edit: s.proposes(who, r),
	}, validateOnly)
}

// proposes is the edit of a return's intent.
func (s *Service) proposes(who Caller, r Return) func(core.Book, map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
	return func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
		cell, known := cells[r.Cell]
		if !known {
			return core.Book{}, nil, unknownCell(r.Cell)
		}
		next, step, err := book.ProposeReturn(cell, r.Units)
		if err != nil {
			return core.Book{}, nil, err
		}
		return next, []core.Adjustment{{
			ID: r.AdjustmentID, Key: r.Key, Cell: r.Cell, Kind: core.KindReturn, Units: r.Units, State: core.StateProposed, Step: step,
			Actor: who.Name, Reason: r.Reason, CreatedAt: s.Clock.Now().UTC(),
		}}, nil
	}
}

// Transfer asks for units of one cell for another.
type Transfer struct {
	ID              string // of the operation; its adjustments' ids are derived from it
	Key             core.BookKey
	From, To        ids.CellID
	Units           quantity.Quantity
	ExpectedVersion int64 // of the book; 0: any
	Reason          string
}

// Parameters is the digest that a repeat must match.
func (t Transfer) Parameters() string {
	return core.Digest("transfer", t.Key.String(), string(t.From), string(t.To), t.Units.String())
}

// TransferUnits writes the operation and, with it, the giver's return; the leader's
// driver does the rest. The operation is zero where validateOnly.
func (s *Service) TransferUnits(ctx context.Context, who Caller, t Transfer, validateOnly bool) (core.Operation, store.Moved, error) {
	giver := Return{AdjustmentID: quota.ReturnID(t.ID), Key: t.Key, Cell: t.From, Units: t.Units, Reason: t.Reason}
	m := store.Move{
		RecordID: giver.AdjustmentID, Parameters: t.Parameters(), Key: t.Key, ExpectedVersion: t.ExpectedVersion,
		Actor: who.Name, Method: who.Method, Reason: t.Reason, OperationID: t.ID,
		Also: func(tx *store.Tx) error { return s.mayTransfer(tx, t) },
		Edit: s.proposes(who, giver),
	}
	return s.begin(ctx, m, core.Operation{
		ID: t.ID, Kind: core.OperationTransfer, Subject: t.Key.String(), State: core.OperationRunning, Step: quota.StepReturn,
		Actor: who.Name, Reason: t.Reason, Parameters: t.Parameters(),
		Moves: []core.RebalanceMove{{SKU: t.Key.SKU, From: t.From, To: t.To, Units: t.Units}},
	}, validateOnly)
}

func (s *Service) mayTransfer(tx *store.Tx, t Transfer) error {
	if t.From == t.To {
		return rpcstatus.Invalid(rpcstatus.Violation{Field: "to_cell_id", Rule: "must be another cell than from_cell_id"})
	}
	if err := s.onSale(tx, t.Key.Campaign); err != nil {
		return err
	}
	book, known, err := tx.Book(t.Key)
	switch {
	case err != nil:
		return err
	case known && !book.LimitTarget.IsZero():
		return core.Lowering(book)
	}
	return s.mayTake(tx, t.Key.Campaign, t.To)
}

// begin writes an operation in the transaction of its first move. A repeat answers
// the operation as it stands; an operation of other parameters under the id is
// core.ErrIDReused.
func (s *Service) begin(ctx context.Context, m store.Move, op core.Operation, validateOnly bool) (core.Operation, store.Moved, error) {
	may := m.Also
	m.Also = func(tx *store.Tx) error {
		other, taken, err := tx.Operation(op.ID)
		switch {
		case err != nil:
			return err
		case taken && other.SameParameters(op.Parameters) != nil:
			return other.SameParameters(op.Parameters)
		case taken:
			return fmt.Errorf("%w: operation %s stands without the record of its first move", core.ErrBroken, op.ID)
		}
		if err := may(tx); err != nil || validateOnly {
			return err
		}
		op := op
		op.StartedAt = tx.Now()
		return errors.Join(tx.PutOperation(op))
	}
	moved, err := s.move(ctx, m, validateOnly)
	if err != nil || validateOnly {
		return core.Operation{}, moved, err
	}
	stands, err := s.Store.Operation(ctx, op.ID)
	if moved.Replayed && errors.Is(err, core.ErrUnknownOperation) {
		return forgotten(op, moved.Record), moved, nil
	}
	return stands, moved, err
}

// forgotten is what a repeat is told of an operation that is gone, by the record of
// its first move: only ended ones go. hygiene keeps an operation as long as its
// journal, so this is for one that an earlier release removed.
func forgotten(op core.Operation, first core.Record) core.Operation {
	op.StartedAt = first.At
	for _, a := range first.Adjustments {
		if a.Outcome != core.OutcomeApplied {
			return op.End(core.OperationFailed, fmt.Sprintf("it ended long ago: its first move, %s, is %s", a.ID, a.State), first.At)
		}
	}
	return op.End(core.OperationDone, "it ended long ago and its steps were forgotten; the journal has its moves", first.At)
}
