package intent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Rebalance asks for a plan of moves to be carried out.
type Rebalance struct {
	OperationID string
	Campaign    ids.CampaignID
	Moves       []core.RebalanceMove
	// Versions of the books that the plan was made from; a SKU without one is not
	// compared.
	Versions map[ids.SKUID]int64
	Reason   string
	// Parameters is the digest that a repeat must match: of what the caller asked
	// for, which may be a plan that is made anew each time.
	Parameters string
	// Empty says why a plan without moves has none.
	Empty string
}

// RebalanceParameters is the digest of a request that brings its moves (sku is then
// empty), or asks for whatever is to be moved of a SKU, or of all.
func RebalanceParameters(campaign ids.CampaignID, sku ids.SKUID, moves []core.RebalanceMove) string {
	parts := []string{"rebalance", string(campaign), string(sku)}
	for _, m := range moves {
		parts = append(parts, string(m.SKU), string(m.From), string(m.To), strconv.FormatInt(m.Units.Int64(), 10))
	}
	return core.Digest(parts...)
}

// AcceptedRebalance gives the operation that an earlier call of the same id and
// parameters made; false where there is none. core.ErrIDReused.
func (s *Service) AcceptedRebalance(ctx context.Context, id, parameters string) (core.Operation, bool, error) {
	op, err := s.Store.Operation(ctx, id)
	switch {
	case errors.Is(err, core.ErrUnknownOperation):
		return core.Operation{}, false, nil
	case err != nil:
		return core.Operation{}, false, err
	}
	return op, true, op.SameParameters(parameters)
}

// ApplyRebalance stores the plan as an operation, which the leader's driver carries
// out. A plan without moves is an operation that is DONE. The operation is zero where
// validateOnly. core.ErrVersion where a book is not the one that was planned on.
func (s *Service) ApplyRebalance(ctx context.Context, who Caller, in Rebalance, validateOnly bool) (core.Operation, error) {
	var out core.Operation
	revision, err := s.Store.Update(ctx, "rebalance "+string(in.Campaign), func(tx *store.Tx) error {
		stands, taken, err := tx.Operation(in.OperationID)
		if err != nil {
			return err
		}
		if taken {
			out = stands
			return stands.SameParameters(in.Parameters)
		}
		if err := s.mayRebalance(tx, in); err != nil || validateOnly {
			out = core.Operation{}
			return err
		}
		out = core.Operation{
			ID: in.OperationID, Kind: core.OperationRebalance, Subject: string(in.Campaign), State: core.OperationPending, Actor: who.Name, Reason: in.Reason,
			StartedAt: tx.Now(), Moves: in.Moves, Parameters: in.Parameters,
		}
		if len(in.Moves) == 0 {
			out = out.End(core.OperationDone, in.Empty, tx.Now())
		}
		return errors.Join(tx.PutOperation(out), tx.Audit(who.audit(in.OperationID, "campaign "+string(in.Campaign), in.Reason)))
	})
	if err != nil || validateOnly {
		return core.Operation{}, err
	}
	s.visible(ctx, revision)
	return out, nil
}

// mayRebalance: the campaign is on sale, its books are those of the plan, and the
// cells are known. What each move meets on its way decides later.
func (s *Service) mayRebalance(tx *store.Tx, in Rebalance) error {
	if err := s.onSale(tx, in.Campaign); err != nil {
		return err
	}
	cells, err := tx.Cells()
	if err != nil {
		return err
	}
	var skus []ids.SKUID
	for _, m := range in.Moves {
		for _, id := range []ids.CellID{m.From, m.To} {
			if _, known := cells[id]; !known && id != "" {
				return unknownCell(id)
			}
		}
		if !slices.Contains(skus, m.SKU) {
			skus = append(skus, m.SKU)
		}
	}
	if len(skus) > core.MaxRebalanceSKUs {
		return rpcstatus.Invalid(rpcstatus.Violation{Field: "moves", Rule: fmt.Sprintf("must be of at most %d SKUs", core.MaxRebalanceSKUs)})
	}
	for _, sku := range skus {
		book, known, err := tx.Book(core.BookKey{Campaign: in.Campaign, SKU: sku})
		switch want := in.Versions[sku]; {
		case err != nil:
			return err
		case !known:
			return rpcstatus.With(fmt.Errorf("%w: %s/%s", core.ErrUnknownSKU, in.Campaign, sku), map[string]string{"sku_id": string(sku)}, nil, 0)
		case want != 0 && want != book.Version:
			return core.VersionConflict(want, book.Version)
		}
	}
	return nil
}
