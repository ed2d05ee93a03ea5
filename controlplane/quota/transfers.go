package quota

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
)

// Transfers drives operations of kind transfer-units. It implements
// planner.Operations.
type Transfers struct{ Deps }

// Step takes one transfer as far as it gets now. The facts come from one snapshot:
// what it shows as decided is so for good, and what it does not show yet is found by
// the transactions, which look for their own records first.
func (d Transfers) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	s := d.View.Snapshot()
	facts, err := transferFacts(s, op)
	if err != nil {
		return err
	}
	next := StepTransfer(facts)
	if next.Do == DoGrant {
		err := d.grant(ctx, leader, op, facts.Move)
		if !refusesGrant(err) {
			return err
		}
		next = Kept(facts.Move, err.Error())
	}
	if next.Do == DoEnd {
		return ended(d.ends(ctx, leader, op, next.State, next.Detail))
	}
	return ended(d.waits(ctx, leader, op, next.Step, next.Detail))
}

// ended: an operation that somebody else has ended needs nothing more.
func ended(err error) error {
	if errors.Is(err, core.ErrOperationState) {
		return nil
	}
	return err
}

func transferFacts(s view.Snapshot, op core.Operation) (TransferFacts, error) {
	if len(op.Moves) != 1 {
		return TransferFacts{}, fmt.Errorf("%w: transfer %s has %d moves", core.ErrBroken, op.ID, len(op.Moves))
	}
	f := TransferFacts{Move: op.Moves[0]}
	var found bool
	if f.Return, found = adjustment(s, ReturnID(op.ID)); !found {
		return f, fmt.Errorf("%w: %s", core.ErrUnknownRecord, ReturnID(op.ID))
	}
	f.Grant, f.Granted = adjustment(s, GrantID(op.ID))
	if record, _ := s.Record(GrantID(op.ID)); f.Granted && record.OperationID != op.ID {
		f.Granted = false // somebody else's, under that id: the grant's transaction says so
	}
	return f, nil
}

func adjustment(s view.Snapshot, id string) (core.Adjustment, bool) {
	record, found := s.Record(id)
	if at := record.Find(id); found && at >= 0 {
		return record.Adjustments[at], true
	}
	return core.Adjustment{}, false
}

// grant moves the book: the taker's grant gets its number, and the operation its
// finished step, in one transaction.
func (d Transfers) grant(ctx context.Context, leader core.Leader, op core.Operation, m core.RebalanceMove) error {
	key := keyOf(op)
	_, err := d.Store.Move(ctx, store.Move{
		RecordID: GrantID(op.ID), Parameters: core.Digest("transfer-grant", op.Parameters), Key: key,
		Actor: op.Actor, Method: op.Kind, Reason: op.Reason, OperationID: op.ID, Leader: &leader,
		Also: func(tx *store.Tx) error {
			op, err := open(tx, &leader, op.ID)
			if err != nil {
				return err
			}
			if err := d.mayTake(tx, key.Campaign, m.To); err != nil {
				return err
			}
			return tx.PutOperation(op.Finished(StepReturn, fmt.Sprintf("cell %s gave up %s units", m.From, m.Units), StepGrant, tx.Now()))
		},
		Edit: func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			book, step, err := book.Grant(cells[m.To], m.Units)
			return book, []core.Adjustment{{
				ID: GrantID(op.ID), Key: key, Cell: m.To, Kind: core.KindGrant, Units: m.Units, State: core.StateBooked, Step: step,
				Actor: op.Actor, Reason: op.Reason, CreatedAt: d.Clock.Now().UTC(),
			}}, err
		},
	})
	return ended(err)
}

// mayTake: the campaign is still on sale, and the taker is alive and home to
// somebody in it.
func (d Deps) mayTake(tx *store.Tx, campaign ids.CampaignID, id ids.CellID) error {
	c, known, err := tx.Campaign(campaign)
	if err != nil {
		return err
	}
	if !known || !c.OnSale(tx.Now()) {
		return c.Refuses(tx.Now())
	}
	cell, known, err := tx.Cell(id)
	switch {
	case err != nil:
		return err
	case !known:
		return fmt.Errorf("%w: %s", core.ErrUnknownCell, id)
	}
	if err := cell.MayTakeAs(d.View.Snapshot().CellState(cell)); err != nil {
		return err
	}
	route, routed, err := tx.Route(campaign)
	if err == nil && (!routed || !route.Owns(id)) {
		err = core.NoBucket(campaign, id)
	}
	return err
}

// refusesGrant tells the refusals that leave the units in the reserve from the
// failures that the next tick tries again.
func refusesGrant(err error) bool {
	for _, refusal := range []error{
		core.ErrCellState, core.ErrNotReclaimed, core.ErrUnknownCell, core.ErrNoBucket, core.ErrCampaignState,
		core.ErrReserveShort, core.ErrFinal, core.ErrSettled, core.ErrLowering, core.ErrIDReused,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}
