package quota

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
)

// Shards reads what a cell's shard says of one SKU, as cellquota_reader, whether or
// not the cell's processes are alive.
type Shards interface {
	// Stock gives the row; zero facts where the shard has none. An error means that
	// the shard could not be read.
	Stock(ctx context.Context, spec core.CellSpec, key core.BookKey) (core.StockFacts, error)
}

// shardsAtOnce bounds the shards that one look reads at the same time.
const shardsAtOnce = 8

// Look asks the shard of every cell that the book allocates to, a few at once. A
// cell that cannot be asked for units although it may have some is Unknown; one
// that is fenced or written off has none to ask for.
func Look(ctx context.Context, s view.Snapshot, shards Shards, book core.Book) []Standing {
	out := make([]Standing, len(book.Allocations))
	var mu sync.Mutex
	var readers errgroup.Group
	readers.SetLimit(shardsAtOnce)
	for i, a := range book.Allocations {
		readers.Go(func() error {
			standing := look(ctx, s, shards, book.Key, a)
			mu.Lock()
			defer mu.Unlock()
			out[i] = standing
			return nil
		})
	}
	_ = readers.Wait() // a shard that cannot be read is in the result
	return out
}

func look(ctx context.Context, s view.Snapshot, shards Shards, key core.BookKey, a core.Allocation) Standing {
	out := Standing{Cell: a.Cell}
	cell, known := s.Cell(a.Cell)
	switch {
	case !known || a.Granted.IsZero():
		return out
	case !a.WrittenOff.IsZero(): // the shard is gone; the units may have been sold
		out.Sold = a.WrittenOff
		return out
	}
	facts, err := shards.Stock(ctx, cell.Spec, key)
	if err != nil {
		out.Unknown = "cannot be asked: its shard does not answer"
		return out
	}
	if out.Sold, err = facts.Reserved.Add(facts.Confirmed); err != nil {
		out.Unknown = fmt.Sprintf("reports %s reserved and %s confirmed", facts.Reserved, facts.Confirmed)
		return out
	}
	switch state := s.CellState(cell); state {
	case core.CellActive, core.CellDraining:
		out.Available = facts.Available
	case core.CellFenced, core.CellRetired: // sealed: reclaim brings the units, no return
	default:
		if !facts.Available.IsZero() {
			out.Unknown = fmt.Sprintf("is %s and has %s units available", state, facts.Available)
		}
	}
	return out
}

// Floor is what a book's shards say is sold and reserved: no lowering goes below.
// Units of a shard that cannot be read do not count; a lowering that meets them on
// its way ends there.
func Floor(ctx context.Context, s view.Snapshot, shards Shards, key core.BookKey) (quantity.Quantity, error) {
	book, known := s.Book(key)
	if !known {
		return quantity.Quantity{}, nil // refused by the transaction, with its name
	}
	var floor quantity.Quantity
	for _, c := range Look(ctx, s, shards, book) {
		var err error
		if floor, err = floor.Add(c.Sold); err != nil {
			return quantity.Quantity{}, fmt.Errorf("%w: %s: %w", core.ErrBroken, key, err)
		}
	}
	return floor, nil
}
