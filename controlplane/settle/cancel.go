package settle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
)

// Step implements planner.Operations for cancel-campaign. The planner hands it an
// operation only once a second person has approved it.
func (d *Driver) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	if !op.DoneStep(core.StepStopSale) {
		return d.stop(ctx, leader, op)
	}
	return d.follow(ctx, leader, op)
}

// stop closes and marks the campaign, in the transaction that records the step. One
// that can be cancelled no more ends the operation.
func (d *Driver) stop(ctx context.Context, leader core.Leader, op core.Operation) error {
	_, err := d.Store.Update(ctx, "cancel "+op.Subject, func(tx *store.Tx) error {
		present, err := mine(tx, leader, op.ID)
		if err != nil || present.State.Terminal() || present.DoneStep(core.StepStopSale) {
			return err
		}
		campaign, known, err := tx.Campaign(ids.CampaignID(op.Subject))
		if err != nil {
			return err
		}
		if !known {
			return tx.PutOperation(present.End(core.OperationFailed, "the campaign is gone", tx.Now()))
		}
		next, _, err := campaign.Cancel(op.ID)
		if errors.Is(err, core.ErrCampaignState) {
			return tx.PutOperation(present.End(core.OperationFailed, err.Error(), tx.Now()))
		}
		if err != nil {
			return err
		}
		done := present.Finished(core.StepStopSale, fmt.Sprintf("closed with version %d", next.Version), core.StepRefund, tx.Now())
		return errors.Join(tx.PutCampaign(next), tx.PutOperation(done),
			tx.Audit(core.Audit{Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "campaign " + op.Subject, Reason: "cancelled: " + op.Reason}))
	})
	return err
}

func mine(tx *store.Tx, leader core.Leader, id string) (core.Operation, error) {
	if err := tx.Lead(leader); err != nil {
		return core.Operation{}, err
	}
	op, known, err := tx.Operation(id)
	if err == nil && !known {
		err = fmt.Errorf("%w: %s", core.ErrUnknownOperation, id)
	}
	return op, err
}

// follow tells how many orders are left, and ends the operation when the shards of
// all cells say none, after every process has heard and no mirror counts a request
// without an outcome.
func (d *Driver) follow(ctx context.Context, leader core.Leader, op core.Operation) error {
	now := d.Clock.Now()
	if now.Before(d.followed(op.ID)) {
		return nil
	}
	campaign, known := d.View.Snapshot().Campaign(ids.CampaignID(op.Subject))
	if !known {
		return fmt.Errorf("%w: %s", core.ErrUnknownCampaign, op.Subject)
	}
	left := d.left(ctx, campaign)
	d.followAgain(op.ID, d.Clock.Now().Add(max(d.cfg.Interval, rest*d.Clock.Now().Sub(now))))
	if left == op.Detail && left != "" {
		return nil
	}
	_, err := d.Store.Update(ctx, "operation "+op.ID, func(tx *store.Tx) error {
		present, err := mine(tx, leader, op.ID)
		if err != nil || present.State.Terminal() {
			return err
		}
		if left != "" {
			return tx.PutOperation(present.Waits(core.StepRefund, left))
		}
		done := present.Finished(core.StepRefund, "every order is closed or refunded", "", tx.Now())
		return tx.PutOperation(done.End(core.OperationDone, "every order is closed or refunded", tx.Now()))
	})
	return err
}

// left says what a cancelled campaign still has, or "".
func (d *Driver) left(ctx context.Context, c core.Campaign) string {
	s := d.View.Snapshot()
	cells := d.ends(ctx, s, c)
	if text := remaining(cells); text != "" {
		return text
	}
	if late := d.Cells.CampaignReady(c.Spec.ID, c.Version, selling(cells)); len(late) > 0 {
		return "not told yet: " + strings.Join(late[:min(5, len(late))], ", ")
	}
	for _, cell := range cells {
		if !maySell(cell.cell) {
			continue
		}
		if why := d.unread(ctx, s, c, cell.cell.Spec.ID); why != "" {
			return "cell " + string(cell.cell.Spec.ID) + ": " + why
		}
	}
	return remaining(d.ends(ctx, s, c))
}

// remaining counts over all cells, and names those that nobody can ask. Pure.
func remaining(cells []cellEnd) string {
	var unpaid, paid, refunds int64
	var parts, silent []string
	for _, c := range cells {
		if c.err != nil {
			silent = append(silent, string(c.cell.Spec.ID))
			continue
		}
		unpaid, paid, refunds = unpaid+c.said.Unpaid, paid+c.said.PaidKept, refunds+c.said.Refunds
	}
	if unpaid > 0 {
		parts = append(parts, fmt.Sprintf("%d unpaid orders to close", unpaid))
	}
	if paid > 0 {
		parts = append(parts, fmt.Sprintf("%d paid orders to refund", paid))
	}
	if refunds > 0 {
		parts = append(parts, fmt.Sprintf("%d refunds under way", refunds))
	}
	if len(silent) > 0 {
		parts = append(parts, "cells that do not answer: "+strings.Join(silent, ", "))
	}
	return strings.Join(parts, "; ")
}

// Orders counts what a cancelling would close and refund, as the shards have it now.
// The error names a cell that does not answer: its orders are not known.
func (d *Driver) Orders(ctx context.Context, id ids.CampaignID) (unpaid, paid int64, err error) {
	s := d.View.Snapshot()
	campaign, known := s.Campaign(id)
	if !known {
		return 0, 0, fmt.Errorf("%w: %s", core.ErrUnknownCampaign, id)
	}
	for _, c := range d.ends(ctx, s, campaign) {
		if c.err != nil {
			return 0, 0, fmt.Errorf("cell %s: %w", c.cell.Spec.ID, c.err)
		}
		unpaid, paid = unpaid+c.said.Unpaid, paid+c.said.PaidKept
	}
	return unpaid, paid, nil
}

// followed and followAgain keep when the shards are asked again about a cancelling:
// the planner calls Step at every change of its view.
func (d *Driver) followed(operation string) (at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.follows[operation]
}

func (d *Driver) followAgain(operation string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.follows) > maxFollows {
		clear(d.follows)
	}
	d.follows[operation] = at
}
