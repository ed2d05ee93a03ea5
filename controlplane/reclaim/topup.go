package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
)

// TopUpRecordID names the record by which an operation gives one SKU's units away that
// were reclaimed under a fence version, and each grant inside it. The version tells
// two fences under one id apart: an operation is forgotten after operations.keep, its
// journal is not. Digests keep the ids within what shards take as an adjustment id,
// however long the names are.
func TopUpRecordID(operation string, fenceVersion int64, key core.BookKey) string {
	return "topup." + core.Digest(operation, strconv.FormatInt(fenceVersion, 10), key.String())
}

func topUpGrantID(operation string, fenceVersion int64, key core.BookKey, cell ids.CellID) string {
	return "topup." + core.Digest(operation, strconv.FormatInt(fenceVersion, 10), key.String(), string(cell))
}

// errKept: the units stay in the reserve, for a reason that is told.
var errKept = errors.New("stays in the reserve")

// topUpOthers gives what each SKU's reclaim brought to the reserve to the other
// live cells that own buckets of its campaign, by their weights.
func (d *Driver) topUpOthers(ctx context.Context, w *work) error {
	snapshot, err := d.view.WaitFor(ctx, w.cell.ModRevision)
	if err != nil {
		return err
	}
	given, kept := int64(0), []string{}
	for _, reclaim := range w.reclaims(snapshot) {
		units, err := quantityOf(freed(reclaim))
		if err != nil {
			return err
		}
		if units.IsZero() {
			continue
		}
		moved, err := d.store.Move(ctx, w.topUp(snapshot, reclaim.Key, units, d))
		switch {
		case errors.Is(err, errKept), errors.Is(err, core.ErrFinal), errors.Is(err, core.ErrLowering):
			kept = append(kept, err.Error())
			continue
		case err != nil:
			return err
		}
		for _, a := range moved.Record.Adjustments {
			given += a.Units.Int64()
		}
	}
	detail := fmt.Sprintf("granted %d units to others", given)
	if len(kept) > 0 {
		detail += "; " + strings.Join(kept[:min(len(kept), 8)], "; ")
	}
	return d.move(ctx, w, "topped up", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		return cell, op.Finished(stepTopUp, detail, fencing.Reclaimed.String(), tx.Now()), nil
	})
}

// topUp is the move for one SKU. Its record exists once, whatever cells were
// there at the first try.
func (w *work) topUp(s view.Snapshot, key core.BookKey, units quantity.Quantity, d *Driver) store.Move {
	return store.Move{
		RecordID: TopUpRecordID(w.op.ID, w.proof.Version.Int64(), key), Parameters: core.Digest("reclaimed", w.op.ID, key.String(), units.String()), Key: key,
		Actor: w.op.Actor, Method: "top-up of reclaimed units", Reason: w.op.Reason, OperationID: w.op.ID, Leader: &w.leader,
		Also: func(tx *store.Tx) error {
			campaign, known, err := tx.Campaign(key.Campaign)
			if err != nil {
				return err
			}
			if state := campaign.ReadState(tx.Now()); !known || state != core.CampaignPublished && state != core.CampaignOpen && state != core.CampaignPaused {
				return fmt.Errorf("%s %w: its campaign is %s", key, errKept, campaign.ReadState(tx.Now()))
			}
			return nil
		},
		Edit: func(book core.Book, cells map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			return w.share(s, book, cells, units, d)
		},
	}
}

// share grants units, or what the reserve still has of them, by weight.
func (w *work) share(s view.Snapshot, book core.Book, cells map[ids.CellID]core.Cell, units quantity.Quantity, d *Driver) (core.Book, []core.Adjustment, error) {
	takers := w.takers(s, book.Key, cells)
	units = quantity.Min(units, book.Reserve)
	if len(takers) == 0 || units.IsZero() {
		return core.Book{}, nil, fmt.Errorf("%s %w: %d cells may take units, the reserve is %s", book.Key, errKept, len(takers), book.Reserve)
	}
	plan, err := allocator.Redistribute(units, takers)
	if err != nil {
		return core.Book{}, nil, err
	}
	var adjustments []core.Adjustment
	for _, g := range plan.Grants {
		if g.Units.IsZero() {
			continue
		}
		cell := cells[ids.CellID(g.Cell)]
		var step core.Step
		if book, step, err = book.Grant(cell, g.Units); err != nil {
			return core.Book{}, nil, err
		}
		adjustments = append(adjustments, core.Adjustment{
			ID: topUpGrantID(w.op.ID, w.proof.Version.Int64(), book.Key, cell.Spec.ID), Key: book.Key, Cell: cell.Spec.ID, Kind: core.KindGrant, Units: g.Units,
			State: core.StateBooked, Step: step, Actor: w.op.Actor, Reason: w.op.Reason, CreatedAt: d.clock.Now().UTC(),
		})
	}
	return book, adjustments, nil
}

// takers lists the cells that may be granted reclaimed units: ACTIVE, alive,
// reclaimed, and home to somebody in the campaign.
func (w *work) takers(s view.Snapshot, key core.BookKey, cells map[ids.CellID]core.Cell) []allocator.CellWeight {
	route, _ := s.Route(key.Campaign)
	var out []allocator.CellWeight
	for id, c := range cells {
		if id == w.cell.Spec.ID || s.CellState(c) != core.CellActive || c.ProofID != "" && !c.Reclaimed || !route.Owns(id) {
			continue
		}
		out = append(out, allocator.CellWeight{Cell: string(id), Weight: c.Spec.Weight})
	}
	slices.SortFunc(out, func(a, b allocator.CellWeight) int { return strings.Compare(a.Cell, b.Cell) })
	return out
}
