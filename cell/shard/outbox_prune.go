package shard

import (
	"context"
	"fmt"
	"time"
)

// maxPrune bounds one transaction of pruning.
const maxPrune = 5000

// Pruned is one page of the walk that PruneOutbox takes.
type Pruned struct {
	Next    int64 // where the walk goes on; 0: it is over
	Deleted int64
}

// PruneOutbox walks limit rows (1 to 5,000) from the one after the given id, in their order, and deletes
// those that were published longer than keep ago, by the database's clock. Pending and parked rows stay,
// however old. A walk from 0 is over at the first page that reaches rows younger than keep; walks that are
// begun again and again leave none of the others.
func (s *Store) PruneOutbox(ctx context.Context, after int64, limit int, keep time.Duration) (Pruned, error) {
	if limit < 1 || limit > maxPrune || keep <= 0 {
		return Pruned{}, fmt.Errorf("%w: a page of 1 to %d rows, and a time to keep them", ErrInvalid, maxPrune)
	}
	var out Pruned
	err := s.inTx(ctx, "prune_outbox", needSettle, func(ctx context.Context, t tx) error {
		var last, rows int64
		var young bool
		if err := t.QueryRow(ctx, sql("outbox_prune"), after, limit, keep.Seconds()).Scan(&last, &rows, &out.Deleted, &young); err != nil {
			return err
		}
		if out.Next = last; young || rows < int64(limit) {
			out.Next = 0
		}
		return nil
	})
	return out, err
}
