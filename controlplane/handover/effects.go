package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/fencing/fencer"
	"github.com/cellquota/cellquota/internal/ids"
)

// order begins: when nothing is missing, the route says MOVING, and the operation
// which move is its own.
func (w *work) order(ctx context.Context) error {
	s := w.d.View.Snapshot()
	campaign, known := s.Campaign(ids.CampaignID(w.op.Subject))
	if !known {
		return fmt.Errorf("%w: %s", core.ErrUnknownCampaign, w.op.Subject)
	}
	f := facts{campaign: campaign, from: w.from, to: w.to, taker: w.to.State, processes: s.Instances(w.to.Spec.ID)}
	if f.taker == core.CellActive {
		f.taker = s.CellState(w.to)
	}
	if err := f.refusal(); err != nil {
		return err
	}
	f.behind = w.d.Cells.CampaignReady(campaign.Spec.ID, campaign.Version, []ids.CellID{w.to.Spec.ID})
	if missing := f.missing(); missing != "" {
		return fmt.Errorf("%w: %s", errNotYet, missing)
	}
	for _, cell := range []core.Cell{w.from, w.to} {
		if _, err := w.shard(ctx, cell); err != nil {
			return err
		}
	}
	h := w.op.Handover
	detail := fmt.Sprintf("buckets of %d-%d go from %s to %s", h.First, h.Last, h.From, h.To)
	return w.happened(ctx, OrderedEvent, detail, w.writeMoving)
}

// writeMoving decides again on what the transaction reads.
func (w *work) writeMoving(tx *store.Tx, op core.Operation) (core.Operation, error) {
	h, id := op.Handover, ids.CampaignID(op.Subject)
	campaign, _, err := tx.Campaign(id)
	if err != nil {
		return op, err
	}
	if err := campaign.MayHandOver(); err != nil {
		return op, err
	}
	for _, may := range []struct {
		cell  core.Cell
		check func(core.Cell) error
	}{{w.from, core.Cell.MayGive}, {w.to, func(c core.Cell) error { return c.MayTakeBuckets(c.State) }}} {
		cell, _, err := tx.Cell(may.cell.Spec.ID)
		if err == nil {
			err = may.check(cell)
		}
		if err != nil {
			return op, err
		}
	}
	route, known, err := tx.Route(id)
	switch {
	case err != nil:
		return op, err
	case !known:
		return op, fmt.Errorf("%w: %s has no route", core.ErrUnknownCampaign, id)
	case h.ExpectedVersion != 0 && h.ExpectedVersion != route.Version:
		return op, core.VersionConflict(h.ExpectedVersion, route.Version)
	}
	next, move, err := route.Order(h.Domain, h.From, h.To, h.First, h.Last, tx.Now())
	if err != nil {
		return op, err
	}
	op.Handover = h.Ordered(move.RouteVersion)
	return op, errors.Join(tx.PutRoute(next), tx.Audit(core.Audit{
		Actor: op.Actor, Method: op.Kind, OperationID: op.ID, Subject: "campaign " + op.Subject,
		Reason: fmt.Sprintf("%d buckets from %s to %s: %s", move.Buckets(), h.From, h.To, op.Reason),
	}))
}

// move reads this handover's move from a route that has it.
func (w *work) move(ctx context.Context) (core.BucketMove, error) {
	s, err := w.d.View.WaitFor(ctx, w.op.ModRevision)
	if err != nil {
		return core.BucketMove{}, err
	}
	route, _ := s.Route(ids.CampaignID(w.op.Subject))
	_, m, found := route.Move(w.op.Handover.RouteVersion)
	if !found {
		return core.BucketMove{}, fmt.Errorf("%w: %s has no move %d", core.ErrUnknownMove, w.op.Subject, w.op.Handover.RouteVersion)
	}
	return m, nil
}

// giver opens the giver's shard, whose word is good while it did not go back in time.
func (w *work) giver(ctx context.Context) (Shard, error) {
	if err := w.from.MayGive(); err != nil {
		return nil, err
	}
	return w.shard(ctx, w.from)
}

// mayClose waits for a taker that left after the order: what is closed nobody sells to
// until it is carried there. What the giver's shard has closed by then goes on.
func (w *work) mayClose(ctx context.Context, giver Shard, m fencer.Move) error {
	refusal := w.to.MayTakeBuckets(w.to.State)
	if refusal == nil {
		return nil
	}
	_, err := giver.ExportBuyers(ctx, m, nil, 1)
	if errors.Is(err, fencer.ErrBuckets) { // it has closed nothing
		return fmt.Errorf("%w: nothing is closed yet: %w", errNotYet, refusal)
	}
	return err
}

// closes closes the buckets at the giver.
func (w *work) closes(ctx context.Context) error {
	move, err := w.move(ctx)
	if err != nil {
		return err
	}
	giver, err := w.giver(ctx)
	if err != nil {
		return err
	}
	named := moveOf(w.op, move)
	if err := w.mayClose(ctx, giver, named); err != nil {
		return err
	}
	closed, err := giver.CloseBuckets(ctx, string(w.from.Spec.ID), named)
	if err != nil {
		return err
	}
	parts := rangesOf(closed, string(w.from.Spec.ID))
	if !slices.Equal(allocator.MergeRanges(parts), allocator.MergeRanges(move.Ranges)) {
		return fmt.Errorf("%w: the route moves %v, the shard closed %v", errMismatch, move.Ranges, parts)
	}
	return w.happened(ctx, ClosedEvent, fmt.Sprintf("%d buckets are closed in the shard of %s", move.Buckets(), w.from.Spec.ID),
		func(_ *store.Tx, op core.Operation) (core.Operation, error) {
			op.Handover = op.Handover.ClosedAs(parts)
			return op, nil
		})
}

// carry brings places and answered requests to the taker, a bounded number of pages at
// a time. How far it is the taker's shard says.
func (w *work) carry(ctx context.Context) error {
	m, err := w.move(ctx)
	if err != nil {
		return err
	}
	giver, err := w.giver(ctx)
	if err != nil {
		return err
	}
	taker, err := w.shard(ctx, w.to)
	if err != nil {
		return err
	}
	move, to := moveOf(w.op, m), string(w.to.Spec.ID)
	at, err := taker.ImportBuckets(ctx, to, move, closedOf(w.op.Handover.Closed))
	for pages := 0; err == nil && (!at.BuyersDone || !at.RequestsDone); pages++ {
		if pages == w.d.cfg.PagesPerStep {
			return fmt.Errorf("%w: %d places and %d answered requests have arrived", errMore, at.Buyers, at.Requests)
		}
		at, err = w.page(ctx, giver, taker, move, at)
	}
	if err != nil {
		return err
	}
	return w.happened(ctx, CarriedEvent, fmt.Sprintf("%d places and %d answered requests are in the shard of %s", at.Buyers, at.Requests, to), nil)
}

// page brings one page over, places first.
func (w *work) page(ctx context.Context, giver, taker Shard, m fencer.Move, at fencer.Import) (fencer.Import, error) {
	to := string(w.to.Spec.ID)
	if !at.BuyersDone {
		p, err := giver.ExportBuyers(ctx, m, at.BuyersAfter, w.d.cfg.PageRows)
		if err != nil {
			return at, err
		}
		return taker.ImportBuyers(ctx, to, m, p)
	}
	p, err := giver.ExportRequests(ctx, m, at.RequestsAfter, w.d.cfg.PageRows)
	if err != nil {
		return at, err
	}
	return taker.ImportRequests(ctx, to, m, p)
}

// opens lets the taker's shard sell.
func (w *work) opens(ctx context.Context) error {
	m, err := w.move(ctx)
	if err != nil {
		return err
	}
	taker, err := w.shard(ctx, w.to)
	if err != nil {
		return err
	}
	if _, err := taker.OpenBuckets(ctx, string(w.to.Spec.ID), moveOf(w.op, m)); err != nil {
		return err
	}
	return w.happened(ctx, OpenedEvent, "the shard of "+string(w.to.Spec.ID)+" sells to them", nil)
}

// turn makes the map name the taker, and ends the operation.
func (w *work) turn(ctx context.Context) error {
	return w.happened(ctx, TurnedEvent, "the map names "+string(w.to.Spec.ID), func(tx *store.Tx, op core.Operation) (core.Operation, error) {
		route, _, err := tx.Route(ids.CampaignID(op.Subject))
		if err != nil {
			return op, err
		}
		next, err := route.Turn(op.Handover.RouteVersion)
		if err != nil {
			return op, err
		}
		return op, errors.Join(tx.PutRoute(next), tx.Audit(core.Audit{
			Actor: op.Actor, Method: op.Kind, OperationID: op.ID, Subject: "campaign " + op.Subject, Reason: "MOVED to " + string(op.Handover.To) + ": " + op.Reason,
		}))
	})
}
