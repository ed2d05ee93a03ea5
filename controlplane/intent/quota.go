package intent

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// TopUp asks for units of the reserve for a cell.
type TopUp struct {
	AdjustmentID    string
	Key             core.BookKey
	Cell            ids.CellID
	Units           quantity.Quantity
	ExpectedVersion int64 // of the book; 0: any
	Reason          string
}

// Parameters is the digest that a repeat must match.
func (t TopUp) Parameters() string {
	return core.Digest("top-up", t.Key.String(), string(t.Cell), strconv.FormatInt(t.Units.Int64(), 10))
}

// TopUp books a grant; the leader's planner sends it. The same adjustment_id with
// the same parameters answers the first result, whatever happened since; with
// others it is core.ErrIDReused.
func (s *Service) TopUp(ctx context.Context, who Caller, t TopUp, validateOnly bool) (store.Moved, error) {
	return s.move(ctx, s.topUp(who, t), validateOnly)
}

// move carries one move out, or only tells what it would come to.
func (s *Service) move(ctx context.Context, m store.Move, validateOnly bool) (store.Moved, error) {
	if validateOnly {
		return s.wouldMove(ctx, m)
	}
	moved, err := s.Store.Move(ctx, m)
	if err == nil {
		s.visible(ctx, moved.Revision)
	}
	return moved, err
}

func (s *Service) topUp(who Caller, t TopUp) store.Move {
	return store.Move{
		RecordID: t.AdjustmentID, Parameters: t.Parameters(), Key: t.Key, ExpectedVersion: t.ExpectedVersion,
		Actor: who.Name, Method: who.Method, Reason: t.Reason,
		Also: func(tx *store.Tx) error { return s.mayTopUp(tx, t) },
		Edit: func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			cell, known := cells[t.Cell]
			if !known {
				return core.Book{}, nil, unknownCell(t.Cell)
			}
			next, step, err := book.Grant(cell, t.Units)
			if err != nil {
				return core.Book{}, nil, err
			}
			return next, []core.Adjustment{{
				ID: t.AdjustmentID, Key: t.Key, Cell: t.Cell, Kind: core.KindGrant, Units: t.Units, State: core.StateBooked, Step: step,
				Actor: who.Name, Reason: t.Reason, CreatedAt: s.Clock.Now().UTC(),
			}}, nil
		},
	}
}

func unknownCell(id ids.CellID) error {
	return rpcstatus.With(fmt.Errorf("%w: %s", core.ErrUnknownCell, id), map[string]string{"cell_id": string(id)}, nil, 0)
}

// mayTopUp refuses units that nobody could sell: the campaign is not on sale or
// about to be, or the cell is home to nobody in it, or nobody of it is alive.
func (s *Service) mayTopUp(tx *store.Tx, t TopUp) error {
	if err := s.onSale(tx, t.Key.Campaign); err != nil {
		return err
	}
	return s.mayTake(tx, t.Key.Campaign, t.Cell)
}

// onSale refuses a campaign whose books may not be moved by operators.
func (s *Service) onSale(tx *store.Tx, id ids.CampaignID) error {
	campaign, err := need(tx, id)
	if err != nil {
		return err
	}
	if !campaign.OnSale(s.Clock.Now()) {
		return campaign.Refuses(s.Clock.Now())
	}
	return nil
}

// mayTake refuses a cell that is unknown, home to nobody in the campaign, or
// SUSPECT: by the view, which may be late, so that the units of the rare grant that
// slips through wait for the cell's return or its fence.
func (s *Service) mayTake(tx *store.Tx, campaign ids.CampaignID, id ids.CellID) error {
	cell, known, err := tx.Cell(id)
	if err != nil {
		return err
	}
	if !known {
		return unknownCell(id)
	}
	route, routed, err := tx.Route(campaign)
	if err != nil {
		return err
	}
	if !routed || !route.Owns(id) {
		return core.NoBucket(campaign, id)
	}
	return cell.MayTakeAs(s.View.Snapshot().CellState(cell))
}

// wouldMove decides on what a transaction reads and puts nothing; so the move's
// Also must not put anything.
func (s *Service) wouldMove(ctx context.Context, m store.Move) (store.Moved, error) {
	var out store.Moved
	_, err := s.Store.Update(ctx, "would move "+m.RecordID, func(tx *store.Tx) error {
		record, done, err := tx.Record(m.RecordID)
		if err != nil {
			return err
		}
		book, known, err := tx.Book(m.Key)
		switch {
		case err != nil:
			return err
		case done:
			out = store.Moved{Book: book, Record: record, Replayed: true}
			return record.SameParameters(m.Parameters)
		}
		if err := m.Also(tx); err != nil {
			return err
		}
		switch {
		case !known:
			return fmt.Errorf("%w: %s", core.ErrUnknownSKU, m.Key)
		case m.ExpectedVersion != 0 && m.ExpectedVersion != book.Version:
			return core.VersionConflict(m.ExpectedVersion, book.Version)
		}
		cells, err := tx.Cells()
		if err != nil {
			return err
		}
		next, adjustments, err := m.Edit(book, cells)
		out = store.Moved{Book: next, Record: core.Record{ID: m.RecordID, Key: m.Key, Adjustments: adjustments}}
		return err
	})
	return out, err
}
