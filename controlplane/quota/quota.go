package quota

import (
	"context"
	"log/slog"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// Deps are what every driver of this room is given; all are required.
type Deps struct {
	Store *store.Store
	View  *view.View
	Clock clock.Clock
	Log   *slog.Logger
}

// change stores what edit makes of an operation that has not ended, under this
// leader. edit sees it as it is in the transaction; one that leaves it as it is
// writes nothing.
func (d Deps) change(ctx context.Context, leader core.Leader, id string, edit func(tx *store.Tx, op core.Operation) (core.Operation, error)) error {
	_, err := d.Store.Update(ctx, "step "+id, func(tx *store.Tx) error {
		op, err := open(tx, &leader, id)
		if err != nil {
			return err
		}
		next, err := edit(tx, op)
		if err != nil || same(op, next) {
			return err
		}
		return tx.PutOperation(next)
	})
	return err
}

// open reads an operation that may be carried on: this leader leads and it has not
// ended. core.ErrOperationState when it has.
func open(tx *store.Tx, leader *core.Leader, id string) (core.Operation, error) {
	if err := tx.Lead(*leader); err != nil {
		return core.Operation{}, err
	}
	op, found, err := tx.Operation(id)
	switch {
	case err != nil:
		return op, err
	case !found || op.State.Terminal():
		return op, op.Refuses("it has ended")
	}
	return op, nil
}

// same tells whether two versions of an operation show the same to a reader.
func same(a, b core.Operation) bool {
	return a.State == b.State && a.Step == b.Step && a.Detail == b.Detail && len(a.Steps) == len(b.Steps)
}

// waits says why an operation does not get on, once.
func (d Deps) waits(ctx context.Context, leader core.Leader, op core.Operation, step, detail string) error {
	if same(op, op.Waits(step, detail)) {
		return nil
	}
	return d.change(ctx, leader, op.ID, func(_ *store.Tx, op core.Operation) (core.Operation, error) { return op.Waits(step, detail), nil })
}

// ends closes an operation.
func (d Deps) ends(ctx context.Context, leader core.Leader, op core.Operation, state core.OperationState, detail string) error {
	err := d.change(ctx, leader, op.ID, func(tx *store.Tx, op core.Operation) (core.Operation, error) {
		return op.End(state, detail, tx.Now()), nil
	})
	if err == nil {
		d.Log.InfoContext(ctx, "operation ended", telemetry.Event, "quota_operation_ended", "operation_id", op.ID, "kind", op.Kind,
			"subject", op.Subject, telemetry.NewState, state.String(), "detail", detail)
	}
	return err
}
