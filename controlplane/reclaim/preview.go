package reclaim

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
)

// PreviewReclaim computes what a reclaim of a FENCED cell would bring to the
// reserve, from the stored proof; nothing for what is booked already. The error
// of a SKU that does not come out exactly names it.
func (o *Orders) PreviewReclaim(ctx context.Context, id ids.CellID) ([]core.SKUUnits, error) {
	cell, err := o.Store.Cell(ctx, id)
	if err != nil {
		return nil, err
	}
	if cell.State != core.CellFenced {
		return nil, fmt.Errorf("%w: %s is %s; only a FENCED cell is reclaimed", core.ErrCellState, id, cell.State)
	}
	proof, err := o.Store.Proof(ctx, id, cell.FenceVersion)
	if err != nil {
		return nil, err
	}
	snapshot, err := o.View.WaitFor(ctx, cell.ModRevision)
	if err != nil {
		return nil, err
	}
	var out []core.SKUUnits
	var errs []error
	for _, key := range pending(snapshot, id, provenBy(proof)) {
		book, _ := snapshot.Book(key)
		book.Key = key
		open, closed := journal(snapshot, key, id)
		plan, err := planFor(book, append(closed, open...), snapshot, provenBy(proof))
		errs = append(errs, err)
		if q, err := quantity.New(plan.ToReserve()); err == nil && !q.IsZero() {
			out = append(out, core.SKUUnits{Key: key, Units: q})
		}
	}
	return out, errors.Join(errs...)
}

// units turns facts into units per SKU, without those that have none.
func units(facts []fencing.SKUFacts, of func(fencing.SKUFacts) int64) ([]core.SKUUnits, error) {
	var out []core.SKUUnits
	for _, f := range facts {
		q, err := quantity.New(of(f))
		if err != nil {
			return nil, err
		}
		if !q.IsZero() {
			out = append(out, core.SKUUnits{Key: keyOf(f.SKU), Units: q})
		}
	}
	return out, nil
}
