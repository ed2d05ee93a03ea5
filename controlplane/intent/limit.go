package intent

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/quota"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
)

// SetLimit asks for another limit of a SKU.
type SetLimit struct {
	OperationID     string
	Key             core.BookKey
	Limit           quantity.Quantity
	ExpectedVersion int64 // of the book; 0: any
	Reason          string
	// Floor is what the shards say is sold and reserved; a limit below it is refused.
	// It is what the caller read a moment ago: a lowering that meets a higher one on
	// its way ends there.
	Floor quantity.Quantity
}

// Parameters is the digest that a repeat must match.
func (l SetLimit) Parameters() string {
	return core.Digest("set-limit", l.Key.String(), l.Limit.String())
}

// SetSaleLimit changes the limit as far as the reserve allows, in one transaction
// with the physical stock and the operation; the leader's driver does the rest. An
// earlier change of the same SKU that is still open ends ABORTED: this one counts.
// The operation is zero where validateOnly. core.ErrBelowFloor, core.ErrStockShort,
// core.ErrFinal, core.ErrCampaignState.
func (s *Service) SetSaleLimit(ctx context.Context, who Caller, l SetLimit, validateOnly bool) (core.Operation, store.Moved, error) {
	m := store.Move{
		RecordID: l.OperationID, Parameters: l.Parameters(), Key: l.Key, ExpectedVersion: l.ExpectedVersion,
		Actor: who.Name, Method: who.Method, Reason: l.Reason, OperationID: l.OperationID,
		Also: func(tx *store.Tx) error { return s.maySetLimit(ctx, tx, l, validateOnly) },
		Edit: func(book core.Book, _ map[ids.CellID]core.Cell) (core.Book, []core.Adjustment, error) {
			next, err := book.SetLimit(l.Limit)
			if err != nil {
				return core.Book{}, nil, err
			}
			return next, []core.Adjustment{quota.LimitAdjustment(l.OperationID, next, who.Name, l.Reason, s.Clock.Now().UTC())}, nil
		},
	}
	return s.begin(ctx, m, core.Operation{
		ID: l.OperationID, Kind: core.OperationSetLimit, Subject: l.Key.String(), State: core.OperationRunning, Step: quota.StepReserve,
		Actor: who.Name, Reason: l.Reason, Parameters: l.Parameters(), SaleLimit: l.Limit,
	}, validateOnly)
}

func (s *Service) maySetLimit(ctx context.Context, tx *store.Tx, l SetLimit, validateOnly bool) error {
	if err := s.onSale(tx, l.Key.Campaign); err != nil {
		return err
	}
	campaign, err := need(tx, l.Key.Campaign)
	if err != nil {
		return err
	}
	if err := campaign.Spec.MayLimit(l.Key.SKU, l.Limit); err != nil {
		return err
	}
	if l.Limit.Cmp(l.Floor) < 0 {
		return core.BelowFloor(l.Limit, l.Floor)
	}
	book, known, err := tx.Book(l.Key)
	if err != nil || !known {
		return err
	}
	next, err := book.SetLimit(l.Limit)
	if err != nil {
		return err
	}
	stock, changed, err := quota.StockOf(tx, next)
	if err != nil || validateOnly {
		return err
	}
	if changed {
		if err := tx.PutStock(stock); err != nil {
			return err
		}
	}
	return s.supersede(ctx, tx, book, l)
}

// supersede ends the changes of this SKU that are open. The view is waited for until
// it holds the book that this transaction compares: every operation on it then shows.
func (s *Service) supersede(ctx context.Context, tx *store.Tx, book core.Book, l SetLimit) error {
	snapshot, err := s.View.WaitFor(ctx, book.ModRevision)
	if err != nil {
		return err
	}
	for _, seen := range snapshot.OpenOperations() {
		if seen.Kind != core.OperationSetLimit || seen.Subject != l.Key.String() {
			continue
		}
		op, found, err := tx.Operation(seen.ID)
		if err != nil {
			return err
		}
		if !found || op.State.Terminal() {
			continue
		}
		why := fmt.Sprintf("operation %s asked for another limit, %s, when this one had reached %s", l.OperationID, l.Limit, book.SaleLimit)
		if err := tx.PutOperation(op.End(core.OperationAborted, why, tx.Now())); err != nil {
			return err
		}
	}
	return nil
}
