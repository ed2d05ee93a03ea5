package oracle

import (
	"context"
	"iter"
	"time"

	"github.com/cellquota/cellquota/edge/load/history"
	"github.com/cellquota/cellquota/internal/clock"
)

// settleEvery is the pause between two looks at what has no outcome yet.
const settleEvery = 500 * time.Millisecond

// promise is where an accepted request may have its outcome.
type promise struct {
	cell  string
	fence int64
}

// Settle waits until every request that some answer accepted has an outcome, or limit is over. It
// answers how many have none; that is no error here.
func Settle(ctx context.Context, records iter.Seq2[history.Record, error], r *Resolver, clk clock.Clock, limit time.Duration) (undecided int, err error) {
	open := map[history.Key]promise{}
	for record, err := range records {
		if err != nil {
			return 0, err
		}
		if record.Op == history.OpRequest && record.Status == 202 {
			open[record.RequestKey()] = promise{record.Cell, record.Fence}
		}
	}
	deadline := clk.Now().Add(limit)
	for {
		if err := r.decide(ctx, open); err != nil {
			return 0, err
		}
		if len(open) == 0 || !clk.Now().Add(settleEvery).Before(deadline) {
			return len(open), nil
		}
		if err := clk.Sleep(ctx, settleEvery); err != nil {
			return 0, err
		}
	}
}

// decide removes from open what has an outcome, what a fence has decided, and what cannot be asked.
func (r *Resolver) decide(ctx context.Context, open map[history.Key]promise) error {
	keys := make([]history.Key, 0, len(open))
	for k := range open {
		keys = append(keys, k)
	}
	rows, unreachable, err := r.Resolve(ctx, keys)
	if err != nil {
		return err
	}
	for i, k := range keys {
		p := open[k]
		if decided(rows[i]) || unreachable[p.cell] != "" || p.fence > 0 && p.fence < r.MessagesFrom(p.cell) {
			delete(open, k)
		}
	}
	return nil
}

func decided(rows []history.Row) bool {
	for _, w := range rows {
		if w.Outcome != "" || w.Order != "" {
			return true
		}
	}
	return false
}
