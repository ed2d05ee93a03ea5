package deletion

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
)

// batch is the keys of one transaction: each is a compare and a delete, and etcd
// takes 128 of both.
const batch = 50

// Driver is a planner's driver of operations of kind delete-campaign.
type Driver struct {
	Store *store.Store
	View  *view.View
}

// Step removes at most a batch and stores how far it got.
func (d Driver) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	campaign, s := ids.CampaignID(op.Subject), d.View.Snapshot()
	switch op.Step {
	case core.StepDropRecords:
		records := s.Records(campaign, 0, batch)
		for _, r := range records {
			if r.Open() {
				return d.say(ctx, leader, op, fmt.Sprintf("record %s waits for a shard's answer", r.ID))
			}
		}
		return d.drop(ctx, leader, op, core.StepDropBooks, len(records), func(tx *store.Tx, i int) error {
			_, found, err := tx.Record(records[i].ID)
			if err != nil || !found {
				return err
			}
			return tx.DropRecord(records[i].ID)
		})
	case core.StepDropBooks:
		books := s.Books(campaign)
		books = books[:min(len(books), batch)]
		return d.drop(ctx, leader, op, core.StepDropRoute, len(books), func(tx *store.Tx, i int) error {
			_, found, err := tx.Book(books[i].Key)
			if err != nil || !found {
				return err
			}
			return tx.DropBook(books[i].Key)
		})
	default:
		routes := 0
		if _, known := s.Route(campaign); known {
			routes = 1
		}
		return d.drop(ctx, leader, op, "", routes, func(tx *store.Tx, _ int) error {
			_, found, err := tx.Route(campaign)
			if err != nil || !found {
				return err
			}
			return tx.DropRoute(campaign)
		})
	}
}

// drop removes n keys in one transaction; with none left it finishes the step, and
// with no next step the operation.
func (d Driver) drop(ctx context.Context, leader core.Leader, op core.Operation, next string, n int, remove func(tx *store.Tx, i int) error) error {
	return d.change(ctx, leader, op, func(tx *store.Tx, present core.Operation) (core.Operation, error) {
		for i := range n {
			if err := remove(tx, i); err != nil {
				return core.Operation{}, err
			}
		}
		switch {
		case n > 0:
			return present.Waits(op.Step, "being removed"), nil
		case next == "":
			return present.Finished(op.Step, "", "", tx.Now()).End(core.OperationDone, "removed; the tombstone stays", tx.Now()), nil
		}
		return present.Finished(op.Step, "", next, tx.Now()), nil
	})
}

// say stores why the step waits, when that is news.
func (d Driver) say(ctx context.Context, leader core.Leader, op core.Operation, why string) error {
	if op.Detail == why {
		return nil
	}
	return d.change(ctx, leader, op, func(_ *store.Tx, present core.Operation) (core.Operation, error) {
		return present.Waits(op.Step, why), nil
	})
}

// change is one transaction on the operation as this step found it; one that has
// moved on meanwhile is left alone.
func (d Driver) change(ctx context.Context, leader core.Leader, op core.Operation, edit func(*store.Tx, core.Operation) (core.Operation, error)) error {
	_, err := d.Store.Update(ctx, "delete "+op.Subject, func(tx *store.Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		present, known, err := tx.Operation(op.ID)
		if err != nil || !known || present.State.Terminal() || present.Step != op.Step {
			return err
		}
		next, err := edit(tx, present)
		if err != nil {
			return err
		}
		return tx.PutOperation(next)
	})
	return err
}
