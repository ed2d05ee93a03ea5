package handover

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/fencing/fencer"
)

// Shard is one connection to a cell's shard under the fencer's role.
// fencer.Fencer implements it; the errors are its own.
type Shard interface {
	Row(ctx context.Context) (fencer.Row, error)
	SchemaStep(ctx context.Context) (int64, error)
	CloseBuckets(ctx context.Context, cell string, m fencer.Move) (fencer.Closed, error)
	ExportBuyers(ctx context.Context, m fencer.Move, after []string, limit int) (fencer.Page[fencer.Buyer], error)
	ExportRequests(ctx context.Context, m fencer.Move, after []string, limit int) (fencer.Page[fencer.Request], error)
	ImportBuckets(ctx context.Context, cell string, m fencer.Move, what fencer.Closed) (fencer.Import, error)
	ImportBuyers(ctx context.Context, cell string, m fencer.Move, p fencer.Page[fencer.Buyer]) (fencer.Import, error)
	ImportRequests(ctx context.Context, cell string, m fencer.Move, p fencer.Page[fencer.Request]) (fencer.Import, error)
	OpenBuckets(ctx context.Context, cell string, m fencer.Move) (fencer.Import, error)
	Close(ctx context.Context) error
}

// Open connects to the shard of a cell. fencer.ErrUnreachable.
type Open func(ctx context.Context, spec core.CellSpec) (Shard, error)

// errShard: the shard that answers cannot take part. It is asked again.
var errShard = errors.New("the shard cannot take part")

// shard gives the connection to a cell's shard that this step uses, and opens it when
// it is the first to ask: one that is the cell's, and whose schema knows handovers.
func (w *work) shard(ctx context.Context, cell core.Cell) (Shard, error) {
	if have, ok := w.open[cell.Spec.ID]; ok {
		return have, nil
	}
	s, err := w.d.Open(ctx, cell.Spec)
	if err != nil {
		return nil, fmt.Errorf("shard of %s: %w", cell.Spec.ID, err)
	}
	if err := fit(ctx, s, cell); err != nil {
		_ = s.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("shard of %s: %w", cell.Spec.ID, err)
	}
	w.open[cell.Spec.ID] = s
	return s, nil
}

func fit(ctx context.Context, s Shard, cell core.Cell) error {
	row, err := s.Row(ctx)
	if err != nil {
		return err
	}
	if row.Cell != string(cell.Spec.ID) {
		return fmt.Errorf("%w: it is cell %s's", errShard, row.Cell)
	}
	step, err := s.SchemaStep(ctx)
	if err == nil && step < core.HandoverStep {
		err = fmt.Errorf("%w: its schema is at step %d, a handover needs %d: run cellquotad migrate up", errShard, step, core.HandoverStep)
	}
	return err
}

// close ends this step's connections.
func (w *work) close(ctx context.Context) {
	for _, s := range w.open {
		_ = s.Close(context.WithoutCancel(ctx))
	}
}

// moveOf names a move in the shards. Its range is the span of what moves: of that the
// giver owns nothing else.
func moveOf(op core.Operation, m core.BucketMove) fencer.Move {
	from, to := m.Span()
	return fencer.Move{
		Campaign: op.Subject, Domain: op.Handover.Domain, Range: fencer.BucketRange{From: from, To: to}, RouteVersion: m.RouteVersion,
		Handover: op.ID + " to " + string(m.To),
	}
}

func closedOf(ranges []allocator.Range) (out fencer.Closed) {
	for _, r := range ranges {
		out = append(out, fencer.BucketRange{From: r.From, To: r.To})
	}
	return out
}

func rangesOf(closed fencer.Closed, giver string) (out []allocator.Range) {
	for _, r := range closed {
		out = append(out, allocator.Range{From: r.From, To: r.To, Cell: giver})
	}
	return out
}
