package reconcile

import (
	"context"
)

// openAtOnce bounds the open findings that one cycle looks at again.
const openAtOnce = 200

// lookAfter counts what is open.
func (l *Loop) lookAfter(ctx context.Context) error {
	counts, err := l.shard.FindingCounts(ctx)
	if err != nil {
		return err
	}
	l.metrics.counts(counts)
	return nil
}
