package planner

import (
	"context"
	"errors"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
)

// finishStep records a finished step; next "" ends the operation.
func (p *Planner) finishStep(ctx context.Context, leader core.Leader, id, step, detail, next string) error {
	return p.changeOperation(ctx, leader, id, func(tx *store.Tx, op core.Operation) core.Operation {
		op = op.Finished(step, detail, next, tx.Now())
		if next == "" {
			op = op.End(core.OperationDone, detail, tx.Now())
		}
		return op
	})
}

// endOperation ends an operation.
func (p *Planner) endOperation(ctx context.Context, leader core.Leader, id string, state core.OperationState, detail string) error {
	return p.changeOperation(ctx, leader, id, func(tx *store.Tx, op core.Operation) core.Operation { return op.End(state, detail, tx.Now()) })
}

// say stores why a step waits, when that is news.
func (r publishing) say(ctx context.Context, step, detail string) error {
	if r.op.Step == step && r.op.Detail == detail {
		return nil
	}
	return r.p.changeOperation(ctx, r.leader, r.op.ID, func(_ *store.Tx, op core.Operation) core.Operation { return op.Waits(step, detail) })
}

func (p *Planner) changeOperation(ctx context.Context, leader core.Leader, id string, change func(*store.Tx, core.Operation) core.Operation) error {
	_, err := p.store.Update(ctx, "operation "+id, func(tx *store.Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		op, known, err := tx.Operation(id)
		if err != nil || !known || op.State.Terminal() {
			return err
		}
		next := change(tx, op)
		if !next.State.Terminal() {
			return tx.PutOperation(next)
		}
		return errors.Join(tx.PutOperation(next), tx.Audit(core.Audit{
			Actor: op.Actor, Method: actor, OperationID: id, Subject: "operation " + id, Reason: next.State.String() + ": " + next.Detail,
		}))
	})
	return err
}

// begunGiveUp stores that this publish is given up, and why, before anything is
// taken back: whoever leads next goes on taking back. A campaign that has all its
// books is not given up: cells may have been told.
func (r publishing) begunGiveUp(ctx context.Context, why error) error {
	_, err := r.p.store.Update(ctx, "give up "+r.op.Subject, func(tx *store.Tx) error {
		campaign, op, err := r.begin(tx)
		if err != nil || campaign.FullyBooked() {
			return err
		}
		return tx.PutOperation(op.Waits(core.StepGiveUp, why.Error()))
	})
	return err
}

// giveUp takes back what was written: per SKU the book, its record and the limit,
// then the campaign is a draft again. Nothing was sent to any cell: directives
// wait for all books, and a campaign with all its books is not given up. So these
// are the one kind of record that is deleted; the audit keeps what happened.
func (r publishing) giveUp(ctx context.Context) error {
	for _, sku := range r.campaign.BookedSKUs {
		if err := r.unbook(ctx, sku); err != nil {
			return err
		}
	}
	_, err := r.p.store.Update(ctx, "give up "+r.op.Subject, func(tx *store.Tx) error {
		campaign, op, err := r.begin(tx)
		if err != nil || len(campaign.BookedSKUs) > 0 {
			return err
		}
		_, routed, err := tx.Route(campaign.Spec.ID)
		if err != nil {
			return err
		}
		if routed {
			if err := tx.DropRoute(campaign.Spec.ID); err != nil {
				return err
			}
		}
		why := op.Detail
		next, _, err := campaign.Step(core.EventGiveUp)
		return errors.Join(err, tx.PutCampaign(next), tx.PutOperation(op.End(core.OperationFailed, why, tx.Now())),
			tx.Audit(core.Audit{Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "campaign " + op.Subject, Reason: "given up: " + why}))
	})
	return err
}

func (r publishing) unbook(ctx context.Context, sku ids.SKUID) error {
	key := r.campaign.Key(sku)
	_, err := r.p.store.Update(ctx, "unbook "+key.String(), func(tx *store.Tx) error {
		campaign, _, err := r.begin(tx)
		if err != nil {
			return err
		}
		stock, _, err := tx.Stock(sku)
		if err != nil {
			return err
		}
		if back, held := stock.GiveBack(campaign.Spec.ID); held {
			if err := tx.PutStock(back); err != nil {
				return err
			}
		}
		_, _, e1 := tx.Book(key)
		_, _, e2 := tx.Record(core.PublishRecordID(key))
		return errors.Join(e1, e2, tx.DropBook(key), tx.DropRecord(core.PublishRecordID(key)), tx.PutCampaign(campaign.Unbooked(sku)),
			tx.Audit(core.Audit{Actor: r.op.Actor, Method: actor, OperationID: r.op.ID, Subject: "book " + key.String(), Reason: "taken back: " + r.op.Detail}))
	})
	return err
}
