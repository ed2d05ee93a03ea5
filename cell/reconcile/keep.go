package reconcile

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// keep writes a finding that was seen twice; a quantity's with the mirror's head beside it. A store that is
// away for longer than an admission may be under way makes every admission differ: what is new beyond the
// bound is put off, and the next comparison, to which these are known, goes on.
func (w *walk) keep(ctx context.Context, f shard.Finding) error {
	if w.fresh[f.Kind.Freezes()] >= w.cfg.Fresh {
		known, err := w.shard.MetFinding(ctx, f.ID)
		switch {
		case err != nil:
			return err
		case known:
			w.found++
		default:
			w.putOff++
		}
		return nil
	}
	var said any
	if head, ok := w.heads[place{f.Campaign, f.SKU}]; ok && f.Kind.Freezes() {
		said = head
	}
	if w.cfg.ProposeOnly && f.State == shard.FindingOpen && f.Action != "" {
		f.State = shard.FindingProposed
	}
	fresh, err := w.shard.RecordFinding(ctx, f, said)
	if err != nil {
		return err
	}
	w.found++
	if fresh {
		w.fresh[f.Kind.Freezes()]++
		w.metrics.found(f.Kind)
	}
	return nil
}

// leftOpen says in words what the comparison did not compare, or did not write.
func (w *walk) leftOpen() []string {
	if w.putOff == 0 {
		return w.unread
	}
	return append(w.unread, fmt.Sprintf("%d more differences are not written yet: one comparison writes %d new ones, and the next goes on", w.putOff, w.cfg.Fresh))
}

// notePutOff logs that a cycle left findings to the next.
func (l *Loop) notePutOff(ctx context.Context, n int) {
	if n > 0 {
		l.log.WarnContext(ctx, "more differences than one comparison writes", telemetry.Event, "reconcile_put_off", "put_off", n)
	}
}
