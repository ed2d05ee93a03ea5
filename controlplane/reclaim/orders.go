package reclaim

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Orders accepts fences, reclaims, restores, write-offs, drains and retirements. Safe for concurrent use,
// on any replica.
type Orders struct {
	Store  *store.Store
	View   *view.View
	Shards Shards
	// Intent asks the second person of a write-off.
	Intent *intent.Service
}

// FenceOrder asks to take the right to write from a cell.
type FenceOrder struct {
	Cell            ids.CellID
	OperationID     string
	ExpectedVersion int64 // of the cell's record; 0: any
	Force           bool  // although it is alive
	Reclaim, TopUp  bool  // and go on
	Reason          string
}

// Fence writes the operation, and the cell as FENCING under the next version, in
// one transaction. The same operation id answers the operation as it is. A cell
// that is FENCED already is only reclaimed, where that is asked for.
//
// Errors: core.ErrUnknownCell, core.ErrVersion, core.ErrIDReused,
// core.ErrCellState where another operation has the cell, and
// fencing.ErrTransition with its reason: fencing.ErrHealthy without force,
// fencing.ErrLastLiveCell, and what the cell's state says.
func (o *Orders) Fence(ctx context.Context, who intent.Caller, f FenceOrder, validateOnly bool) (core.Operation, error) {
	if err := f.check(); err != nil {
		return core.Operation{}, err
	}
	parameters := core.Digest("fence", string(f.Cell), strconv.FormatBool(f.Force), strconv.FormatBool(f.Reclaim), strconv.FormatBool(f.TopUp))
	return o.accept(ctx, who, order{
		kind: core.OperationFence, cell: f.Cell, id: f.OperationID, parameters: parameters, expected: f.ExpectedVersion, reason: f.Reason, validateOnly: validateOnly,
		event: fencing.CellEvent{Kind: fencing.Fence, Force: f.Force},
		edit: func(op core.Operation, cell core.Cell) (core.Operation, core.Cell) {
			op.Reclaim, op.TopUp = f.Reclaim, f.TopUp
			return op, cell
		},
	})
}

func (f FenceOrder) check() error {
	var v []rpcstatus.Violation
	if f.Reason == "" {
		v = append(v, rpcstatus.Violation{Field: "reason", Rule: "must say why"})
	}
	if f.TopUp && !f.Reclaim {
		v = append(v, rpcstatus.Violation{Field: "top_up", Rule: "needs reclaim: only what was reclaimed can be given away"})
	}
	return rpcstatus.Invalid(v...)
}

// Reclaim asks to book what the proof of a FENCED cell names, and with topUp to
// give it to the others.
func (o *Orders) Reclaim(ctx context.Context, who intent.Caller, cell ids.CellID, operationID string, topUp bool, reason string) (core.Operation, error) {
	if reason == "" {
		return core.Operation{}, rpcstatus.Invalid(rpcstatus.Violation{Field: "reason", Rule: "must say why"})
	}
	return o.accept(ctx, who, order{
		kind: core.OperationReclaim, cell: cell, id: operationID, parameters: core.Digest("reclaim", string(cell), strconv.FormatBool(topUp)), reason: reason,
		edit: func(op core.Operation, c core.Cell) (core.Operation, core.Cell) {
			op.TopUp = topUp
			return op, c
		},
	})
}

// Restore asks to give a FENCED cell's shard the next version for a group; ""
// stays with the cell's.
func (o *Orders) Restore(ctx context.Context, who intent.Caller, cell ids.CellID, operationID, group, reason string, validateOnly bool) (core.Operation, error) {
	if reason == "" {
		return core.Operation{}, rpcstatus.Invalid(rpcstatus.Violation{Field: "reason", Rule: "must say why"})
	}
	return o.accept(ctx, who, order{
		kind: core.OperationRestore, cell: cell, id: operationID, parameters: core.Digest("restore", string(cell), group), reason: reason, validateOnly: validateOnly,
		event: fencing.CellEvent{Kind: fencing.Restore, Group: group},
		edit: func(op core.Operation, c core.Cell) (core.Operation, core.Cell) {
			op.InstanceGroup = group
			if group == "" {
				op.InstanceGroup = c.InstanceGroup
			}
			return op, c
		},
	})
}

// order is what they have in common.
type order struct {
	kind, id, parameters, reason string
	cell                         ids.CellID
	expected                     int64
	validateOnly                 bool
	may                          func(core.Cell) error // refuses the caller the cell; nil: nobody
	event                        fencing.CellEvent     // zero kind: the cell must be FENCED
	edit                         func(core.Operation, core.Cell) (core.Operation, core.Cell)
}

func (o *Orders) accept(ctx context.Context, who intent.Caller, in order) (core.Operation, error) {
	var out core.Operation
	revision, err := o.Store.Update(ctx, in.kind+" "+string(in.cell), func(tx *store.Tx) (err error) {
		out, err = o.try(tx, who, in)
		return err
	})
	if err == nil && revision > 0 {
		_, _ = o.View.WaitFor(ctx, revision) // so that the caller's next read sees it; a late view does not undo it
	}
	return out, err
}

func (o *Orders) try(tx *store.Tx, who intent.Caller, in order) (core.Operation, error) {
	op, begun, err := tx.Operation(in.id)
	if err != nil || begun {
		return op, errors.Join(err, same(op, begun, in.parameters))
	}
	cells, err := tx.Cells() // also the compare that keeps the count of live cells true
	if err != nil {
		return core.Operation{}, err
	}
	cell, known, err := tx.Cell(in.cell)
	if err != nil {
		return core.Operation{}, err
	}
	if !known {
		return core.Operation{}, orUnknown(nil, in.cell)
	}
	if in.may != nil {
		if err := in.may(cell); err != nil {
			return core.Operation{}, err
		}
	}
	if in.expected != 0 && in.expected != cell.Version {
		return core.Operation{}, core.VersionConflict(in.expected, cell.Version)
	}
	next, err := o.judge(cell, cells, in)
	if err != nil {
		return core.Operation{}, err
	}
	if err := free(tx, cell, in.kind); err != nil {
		return core.Operation{}, err
	}
	op, next = in.edit(core.Operation{
		ID: in.id, Kind: in.kind, Subject: string(in.cell), State: core.OperationPending, Step: next.State.String(),
		Actor: who.Name, Reason: in.reason, StartedAt: tx.Now(), Parameters: in.parameters, FenceVersion: next.FenceVersion,
	}, next)
	if in.validateOnly {
		return op, nil
	}
	next.OperationID = op.ID
	next.Version = cell.Version + 1
	return op, errors.Join(tx.PutCell(next), tx.PutOperation(op), tx.Audit(core.Audit{
		Actor: who.Name, Method: who.Method, OperationID: op.ID, Subject: "cell " + string(in.cell), Reason: in.reason,
	}))
}

// orUnknown is an error, or that nobody knows the cell.
func orUnknown(err error, cell ids.CellID) error {
	if err != nil {
		return err
	}
	return rpcstatus.With(fmt.Errorf("%w: %s", core.ErrUnknownCell, cell), map[string]string{"cell_id": string(cell)}, nil, 0)
}

func same(op core.Operation, begun bool, parameters string) error {
	if !begun {
		return nil
	}
	return op.SameParameters(parameters)
}

// judge asks the table of package fencing. A fence or a drain moves the record; a
// restore does so later, when everything that the fence proved is booked, and a
// retirement when the shard has been looked at.
func (o *Orders) judge(cell core.Cell, cells map[ids.CellID]core.Cell, in order) (core.Cell, error) {
	if in.event.Kind == 0 {
		if cell.State != core.CellFenced {
			return cell, rpcstatus.With(fmt.Errorf("%w: %s is %s; only a FENCED cell is reclaimed", core.ErrCellState, cell.Spec.ID, cell.State),
				map[string]string{"cell_id": string(cell.Spec.ID), "state": cell.State.String()}, nil, 0)
		}
		return cell, nil
	}
	if in.kind == core.OperationRestore && cell.State == core.CellRegressed { // every version was minted here: the cell's is the highest
		in.event = fencing.CellEvent{Kind: fencing.Recover, Above: fencing.Version(cell.FenceVersion)}
	}
	snapshot := o.View.Snapshot()
	in.event.OtherLive = 0
	for id, other := range cells {
		if id != cell.Spec.ID && snapshot.CellState(other) == core.CellActive {
			in.event.OtherLive++
		}
	}
	live := len(snapshot.Instances(cell.Spec.ID)) > 0
	next, _, err := fencing.StepCell(cellOf(cell, live), in.event)
	if err != nil {
		return cell, rpcstatus.With(refusalOf(err), map[string]string{"cell_id": string(cell.Spec.ID), "state": snapshot.CellState(cell).String(), "version": strconv.FormatInt(cell.Version, 10)}, nil, 0)
	}
	if k := in.event.Kind; k == fencing.Fence || k == fencing.Drain || k == fencing.Recover {
		cell.State, cell.FenceVersion = core.CellState(next.State.Stored()), next.Version.Int64()
	}
	return cell, nil
}

// refusal is a refused step whose own reason comes before the general one, so
// that callers are told the reason.
type refusal struct{ *fencing.TransitionError }

// Unwrap gives the reason first.
func (r refusal) Unwrap() []error { return []error{r.Why, fencing.ErrTransition} }

func refusalOf(err error) error {
	var step *fencing.TransitionError
	if errors.As(err, &step) {
		return refusal{step}
	}
	return err
}

// free refuses a cell that another open operation has. A restore under way is an
// exception, and so is a drain: a fence may always take the right to write away. But
// not in the middle of a recovery: until the cell's log was read again its shard shows
// units as available that were sold, and a fence would prove them unsold.
func free(tx *store.Tx, cell core.Cell, kind string) error {
	if cell.OperationID == "" {
		return nil
	}
	owner, known, err := tx.Operation(cell.OperationID)
	if err == nil && known && cell.State == core.CellRestoring && recovery(owner, cell) != "" {
		return rpcstatus.With(fmt.Errorf("%w: cell %s is being recovered by operation %s, which must end first: what its shard lost may be sold", core.ErrCellState, cell.Spec.ID, owner.ID),
			map[string]string{"cell_id": string(cell.Spec.ID), "operation_id": owner.ID}, nil, 0)
	}
	if err != nil || !known || owner.State.Terminal() || cell.State == core.CellRestoring || owner.Kind == core.OperationDrain && kind == core.OperationFence {
		return err
	}
	return rpcstatus.With(fmt.Errorf("%w: operation %s (%s) has cell %s", core.ErrCellState, owner.ID, owner.Kind, cell.Spec.ID),
		map[string]string{"cell_id": string(cell.Spec.ID), "operation_id": owner.ID}, nil, 0)
}

// PreviewFence reads what a fence of the cell would seal now.
func (o *Orders) PreviewFence(ctx context.Context, id ids.CellID) ([]core.SKUUnits, error) {
	cell, err := o.Store.Cell(ctx, id)
	if err != nil {
		return nil, err
	}
	shard, err := o.Shards.Open(ctx, cell.Spec)
	if err != nil {
		return nil, outward(err)
	}
	defer func() { _ = shard.Close(context.WithoutCancel(ctx)) }()
	facts, err := shard.Preview(ctx)
	if err != nil {
		return nil, outward(err)
	}
	return units(facts, func(f fencing.SKUFacts) int64 { return f.Sealed })
}
