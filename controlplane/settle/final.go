package settle

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// finals declares every SKU of a campaign that is final, one transaction each.
func (d *Driver) finals(ctx context.Context, leader core.Leader, s view.Snapshot, c core.Campaign) error {
	if c.State != core.CampaignPublished && c.State != core.CampaignPaused && c.State != core.CampaignClosed {
		return nil
	}
	var errs []error
	for _, book := range s.Books(c.Spec.ID) {
		if book.Final || !book.Reserve.IsZero() {
			continue // most books, most of the time
		}
		in := d.finalInputs(s, c, book)
		if book.WhyNotFinal(in) == "" {
			errs = append(errs, d.declare(ctx, leader, book, in))
		}
	}
	return errors.Join(errs...)
}

// finalInputs is what is known around a book now: the view's records and the cells'
// words.
func (d *Driver) finalInputs(s view.Snapshot, c core.Campaign, book core.Book) core.FinalInputs {
	in := core.FinalInputs{
		Campaign: c, Ended: c.ReadState(d.Clock.Now()) == core.CampaignClosed,
		Cells: map[ids.CellID]core.Cell{}, Facts: map[ids.CellID]core.HeldFacts{},
	}
	for _, r := range s.OpenRecords() {
		in.Open = in.Open || r.Key == book.Key
	}
	for _, a := range book.Allocations {
		cell, known := s.Cell(a.Cell)
		if !known {
			continue
		}
		cell.State = s.CellState(cell)
		in.Cells[a.Cell] = cell
		if facts, told := d.held(s, cell, book.Key); told {
			in.Facts[a.Cell] = facts
		}
	}
	return in
}

// held is the newest word on a cell's units: of a fenced cell its proof, of any
// other its report under this leader.
func (d *Driver) held(s view.Snapshot, cell core.Cell, key core.BookKey) (core.HeldFacts, bool) {
	if cell.State != core.CellFenced {
		return d.Cells.Held(cell.Spec.ID, key)
	}
	proof, known := s.Proof(cell.Spec.ID, cell.FenceVersion)
	if !known {
		return core.HeldFacts{}, false
	}
	for _, stock := range proof.Stocks {
		if stock.Key == key {
			return core.HeldFacts{FenceVersion: proof.FenceVersion, Granted: stock.Granted, Confirmed: stock.Confirmed}, true
		}
	}
	return core.HeldFacts{}, false
}

// declare writes FINAL_SOLD_OUT into the book and into what cells and edges are
// told, on condition that the book is the one that was looked at and no cell
// changed since: the decision is made again on the transaction's own records.
func (d *Driver) declare(ctx context.Context, leader core.Leader, book core.Book, in core.FinalInputs) error {
	id := core.FinalRecordID(book.Key)
	_, err := d.Store.Move(ctx, store.Move{
		RecordID: id, Parameters: core.Digest("final", book.Key.String()), Key: book.Key, ExpectedVersion: book.Version,
		Actor: actor, Method: actor, Reason: "every unit is sold", Leader: &leader,
		Also: func(tx *store.Tx) error {
			campaign, known, err := tx.Campaign(book.Key.Campaign)
			if err != nil {
				return err
			}
			if !known {
				return fmt.Errorf("%w: %s", core.ErrUnknownCampaign, book.Key.Campaign)
			}
			in.Campaign, in.Ended = campaign, campaign.ReadState(tx.Now()) == core.CampaignClosed // it may close later now
			return tx.PutCampaign(campaign.WithFinal(book.Key.SKU))
		},
		Edit: func(present core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			again := in
			again.Cells = map[ids.CellID]core.Cell{}
			for cell := range in.Cells {
				if now, known := cells[cell]; known {
					again.Cells[cell] = now
				}
			}
			next, err := present.BecomeFinal(again)
			return next, nil, err
		},
	})
	if err != nil {
		return err
	}
	d.Log.InfoContext(ctx, "FINAL_SOLD_OUT", telemetry.Event, "sku_final", telemetry.CampaignID, book.Key.Campaign, telemetry.SKUID, book.Key.SKU)
	return nil
}
