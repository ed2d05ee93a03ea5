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
	if validateOnly {
		return s.wouldTopUp(ctx, who, t)
	}
	moved, err := s.Store.Move(ctx, s.move(who, t))
	if err == nil {
		s.visible(ctx, moved.Revision)
	}
	return moved, err
}

func (s *Service) move(who Caller, t TopUp) store.Move {
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
// about to be, or the cell is home to nobody in it.
func (s *Service) mayTopUp(tx *store.Tx, t TopUp) error {
	campaign, err := need(tx, t.Key.Campaign)
	if err != nil {
		return err
	}
	if state := campaign.ReadState(s.Clock.Now()); state != core.CampaignPublished && state != core.CampaignOpen && state != core.CampaignPaused {
		return rpcstatus.With(fmt.Errorf("%w: %s is %s", core.ErrCampaignState, t.Key.Campaign, state),
			map[string]string{"campaign_id": string(t.Key.Campaign), "state": state.String()}, nil, 0)
	}
	_, known, err := tx.Cell(t.Cell)
	if err != nil {
		return err
	}
	if !known {
		return unknownCell(t.Cell)
	}
	route, routed, err := tx.Route(t.Key.Campaign)
	if err != nil {
		return err
	}
	if !routed || !route.Owns(t.Cell) {
		return rpcstatus.With(fmt.Errorf("%w: %s in %s", core.ErrNoBucket, t.Cell, t.Key.Campaign), map[string]string{"cell_id": string(t.Cell)}, nil, 0)
	}
	return nil
}

// wouldTopUp decides on what a transaction reads and puts nothing.
func (s *Service) wouldTopUp(ctx context.Context, who Caller, t TopUp) (store.Moved, error) {
	m := s.move(who, t)
	var out store.Moved
	_, err := s.Store.Update(ctx, "would move "+t.AdjustmentID, func(tx *store.Tx) error {
		record, done, err := tx.Record(t.AdjustmentID)
		if err != nil {
			return err
		}
		book, known, err := tx.Book(t.Key)
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
			return fmt.Errorf("%w: %s", core.ErrUnknownSKU, t.Key)
		case t.ExpectedVersion != 0 && t.ExpectedVersion != book.Version:
			return core.VersionConflict(t.ExpectedVersion, book.Version)
		}
		cells, err := tx.Cells()
		if err != nil {
			return err
		}
		next, adjustments, err := m.Edit(book, cells)
		out = store.Moved{Book: next, Record: core.Record{ID: t.AdjustmentID, Key: t.Key, Adjustments: adjustments}}
		return err
	})
	return out, err
}
