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

// WriteOff asks to give up a cell whose shard is gone for good. It writes the
// operation and the question to a second person; the cell and its fence are left
// alone until that person has approved, so that a shard that comes back meanwhile
// is still fenced and reclaimed. The same operation id answers the operation.
//
// A REGRESSED cell, whose shard answers and cannot be recovered, is given up the same way.
//
// Errors: core.ErrUnknownCell, core.ErrIDReused; fencing.ErrFenceFirst for a cell
// that nobody fenced, fencing.ErrRetired; core.ErrCellState for one whose fence is
// proven, whose shard answers, whose processes hold a lease, or of which another
// write-off is open.
func (o *Orders) WriteOff(ctx context.Context, who intent.Caller, cell ids.CellID, operationID, reason string, validateOnly bool) (core.Operation, error) {
	if reason == "" {
		return core.Operation{}, rpcstatus.Invalid(rpcstatus.Violation{Field: "reason", Rule: "must say why"})
	}
	in := order{kind: core.OperationWriteOff, cell: cell, id: operationID, parameters: core.Digest("write-off", string(cell)), reason: reason, validateOnly: validateOnly}
	var out core.Operation
	var looked *bool // one look at the shard, however often the transaction is tried
	revision, err := o.Store.Update(ctx, in.kind+" "+string(cell), func(tx *store.Tx) (err error) {
		out, err = o.tryWriteOff(ctx, tx, who, in, &looked)
		return err
	})
	if err == nil && revision > 0 {
		_, _ = o.View.WaitFor(ctx, revision) // so that the caller's next read sees it
	}
	return out, err
}

func (o *Orders) tryWriteOff(ctx context.Context, tx *store.Tx, who intent.Caller, in order, looked **bool) (core.Operation, error) {
	op, begun, err := tx.Operation(in.id)
	if err != nil || begun {
		return op, errors.Join(err, same(op, begun, in.parameters))
	}
	cell, known, err := tx.Cell(in.cell)
	if err != nil {
		return core.Operation{}, err
	}
	if !known {
		return core.Operation{}, orUnknown(nil, in.cell)
	}
	snapshot := o.View.Snapshot()
	if err := mayBeLost(snapshot, cell); err != nil {
		return core.Operation{}, err
	}
	if *looked == nil {
		here := silent(cell) && answers(ctx, o.Shards, cell.Spec)
		*looked = &here
	}
	if **looked {
		return core.Operation{}, notLost(cell, "its shard answers: the fence ends by proof, and reclaim brings what was not sold")
	}
	op = core.Operation{
		ID: in.id, Kind: in.kind, Subject: string(in.cell), State: core.OperationPending, Step: stepAttest,
		Actor: who.Name, Reason: in.reason, StartedAt: tx.Now(), Parameters: in.parameters, FenceVersion: cell.FenceVersion,
	}
	if in.validateOnly {
		return op, nil
	}
	if op, err = o.Intent.Ask(tx, who, op); err != nil {
		return core.Operation{}, err
	}
	return op, errors.Join(tx.PutOperation(op), tx.Audit(core.Audit{
		Actor: who.Name, Method: who.Method, OperationID: op.ID, Subject: "cell " + string(in.cell), Reason: in.reason,
	}))
}

// silent tells whether a cell may be written off only while its shard does not answer: one
// that is fenced proves more than anybody's word. A shard that went back in time does not.
func silent(cell core.Cell) bool { return cell.State != core.CellRegressed }

// mayBeLost tells whether the records allow to write the cell off: it is FENCING or
// REGRESSED, nobody who lives holds it, and no other write-off of it is open.
func mayBeLost(s view.Snapshot, cell core.Cell) error {
	live := len(s.Instances(cell.Spec.ID)) > 0
	// Whose word it is, is asked by the driver; here the table says what the state allows.
	if _, _, err := fencing.StepCell(cellOf(cell, live), fencing.CellEvent{Kind: fencing.LossAttested}); !errors.Is(err, fencing.ErrAttestation) {
		return rpcstatus.With(refusalOf(err), map[string]string{
			"cell_id": string(cell.Spec.ID), "state": s.CellState(cell).String(), "version": strconv.FormatInt(cell.Version, 10),
		}, nil, 0)
	}
	if cell.State != core.CellFencing && cell.State != core.CellRegressed {
		return notLost(cell, "only a FENCING cell, whose shard gave no proof, or a REGRESSED one is written off")
	}
	if live {
		return notLost(cell, "processes of it hold a lease")
	}
	for _, op := range s.OpenOperations() {
		if op.Kind == core.OperationWriteOff && op.Subject == string(cell.Spec.ID) {
			return notLost(cell, "write-off "+op.ID+" of it is open")
		}
	}
	return nil
}

func notLost(cell core.Cell, why string) error {
	return rpcstatus.With(fmt.Errorf("%w: cell %s is %s: %s", core.ErrCellState, cell.Spec.ID, cell.State, why),
		map[string]string{"cell_id": string(cell.Spec.ID), "state": cell.State.String()}, nil, 0)
}

// answers tells whether the cell's own shard can be read. A database at its address
// that has no fence row of the cell is not it.
func answers(ctx context.Context, shards Shards, spec core.CellSpec) bool {
	shard, err := shards.Open(ctx, spec)
	if err != nil {
		return false
	}
	defer func() { _ = shard.Close(context.WithoutCancel(ctx)) }()
	row, err := shard.Row(ctx)
	return err == nil && row.Cell == string(spec.ID)
}

// PreviewWriteOff gives what a write-off of the cell would mark: everything that
// the open books allocate to it.
func (o *Orders) PreviewWriteOff(ctx context.Context, id ids.CellID) ([]core.SKUUnits, error) {
	cell, err := o.Store.Cell(ctx, id)
	if err != nil {
		return nil, err
	}
	snapshot, err := o.View.WaitFor(ctx, cell.ModRevision)
	if err != nil {
		return nil, err
	}
	var out []core.SKUUnits
	for _, key := range unwritten(snapshot, cell) {
		book, _ := snapshot.Book(key)
		a, _ := book.Allocation(id)
		units, err := a.Granted.Sub(a.WrittenOff)
		if err != nil {
			return nil, err
		}
		if !units.IsZero() {
			out = append(out, core.SKUUnits{Key: key, Units: units})
		}
	}
	return out, nil
}
