// Package operation shows long operations: they live in etcd, any replica lists
// them and waits for their end. The leader drives them (planner, reclaim and the
// other drivers, which take their Pace from here); intent aborts them.
//
// Neighbours: view below, api and the drivers above.
package operation

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Reader reads operations off the view.
type Reader struct{ View *view.View }

// Get gives one operation. core.ErrUnknownOperation.
func (r Reader) Get(id string) (core.Operation, error) {
	op, known := r.View.Snapshot().Operation(id)
	if !known {
		return core.Operation{}, unknown(id)
	}
	return op, nil
}

// List gives the operations begun before a revision (0: all), newest first, at
// most bound.
func (r Reader) List(before int64, bound int) []core.Operation {
	return r.View.Snapshot().Operations(before, bound)
}

// Approval gives the second person's word on an operation; false: none is asked for.
func (r Reader) Approval(id string) (core.Approval, bool) { return r.View.Snapshot().Approval(id) }

// Wait gives the operation when it has ended, or ctx's error with the step that
// it is at. core.ErrUnknownOperation.
func (r Reader) Wait(ctx context.Context, id string) (core.Operation, error) {
	for {
		changed := r.View.Changed()
		op, known := r.View.Snapshot().Operation(id)
		switch {
		case !known:
			return core.Operation{}, unknown(id)
		case op.State.Terminal():
			return op, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return core.Operation{}, rpcstatus.With(fmt.Errorf("operation %s is %s at step %s: %s: %w", id, op.State, op.Step, op.Detail, ctx.Err()),
				map[string]string{"operation_id": id, "state": op.State.String(), "step": op.Step}, nil, 0)
		}
	}
}

func unknown(id string) error {
	return rpcstatus.With(fmt.Errorf("%w: %s", core.ErrUnknownOperation, id), map[string]string{"operation_id": id}, nil, 0)
}
