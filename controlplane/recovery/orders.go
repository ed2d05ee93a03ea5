package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Order asks to take the books from the shards.
type Order struct {
	OperationID string
	Reason      string
	Limits      []core.ConfirmedLimit
}

// Orders accepts recover-store on any replica.
type Orders struct {
	Intent *intent.Service
	Driver *Driver
}

// lookTime is how long an order looks at the shards before it is taken: those that do
// not answer are waited for by the recovery itself, which judges the limits again.
const lookTime = 3 * time.Second

// Recover writes the operation, which waits for a second person. The same
// operation id answers the operation as it is. core.ErrOperationState unless etcd is
// RESTORED, or while another recovery is open; core.ErrStockShort, with the numbers,
// when limits of a SKU together exceed its physical stock.
func (o *Orders) Recover(ctx context.Context, who intent.Caller, in Order) (core.Operation, error) {
	parts := []string{"recover-store"}
	for _, l := range in.Limits {
		parts = append(parts, l.Key.String(), l.SaleLimit.String())
	}
	parameters := core.Digest(parts...)
	var out core.Operation
	s, err := o.Driver.head(ctx) // an operation that has ended is not open here any more
	if err != nil {
		return core.Operation{}, err
	}
	if _, begun := s.Operation(in.OperationID); !begun {
		brief, cancel := context.WithTimeout(ctx, lookTime)
		read, _ := o.look(brief, s)
		cancel()
		if err := tooMuch(planBooks(storedBy(s, read), read, in.Limits)); err != nil {
			return core.Operation{}, err
		}
	}
	revision, err := o.Driver.Store.Update(ctx, "recover the store", func(tx *store.Tx) error {
		op, begun, err := tx.Operation(in.OperationID)
		if err != nil {
			return err
		}
		if begun {
			out = op
			return op.SameParameters(parameters)
		}
		if _, stands, err := tx.Restored(); err != nil {
			return err
		} else if !stands {
			return fmt.Errorf("%w: etcd is not RESTORED; there is nothing to recover", core.ErrOperationState)
		}
		for _, open := range s.OpenOperations() {
			if open.Kind == core.OperationRecover {
				return open.Refuses("another recovery is open; abort it first")
			}
		}
		out, err = o.Intent.Ask(tx, who, core.Operation{
			ID: in.OperationID, Kind: core.OperationRecover, Subject: "etcd", State: core.OperationPending, Step: StepTerms,
			Actor: who.Name, Reason: in.Reason, StartedAt: tx.Now(), Parameters: parameters, Limits: in.Limits,
		})
		return errors.Join(err, tx.PutOperation(out),
			tx.Audit(core.Audit{Actor: who.Name, Method: who.Method, OperationID: in.OperationID, Subject: "etcd", Reason: in.Reason}))
	})
	if err == nil && revision > 0 {
		_, _ = o.Driver.View.WaitFor(ctx, revision) // so that the caller's next read sees it
	}
	return out, err
}

// Preview gives what a recovery with these limits would set. It reads the shards
// and raises no term.
func (o *Orders) Preview(ctx context.Context, limits []core.ConfirmedLimit) ([]BookPlan, []CellPlan, error) {
	s, err := o.Driver.head(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, stands := s.Restored(); !stands {
		return nil, nil, fmt.Errorf("%w: etcd is not RESTORED; there is nothing to recover", core.ErrOperationState)
	}
	read, plans := o.look(ctx, s)
	return planBooks(storedBy(s, read), read, limits), plans, nil
}

// look reads every shard that answers, and says of the others why not; a cell that
// etcd does not know is one of them.
func (o *Orders) look(ctx context.Context, s view.Snapshot) ([]facts, []CellPlan) {
	cells := counted(s)
	found, errs := o.Driver.gather(ctx, cells, nil)
	var read []facts
	plans := make([]CellPlan, len(cells))
	for i, c := range cells {
		plans[i] = CellPlan{Stored: c}
		if errs[i] != nil {
			plans[i].BlockedBy = errs[i].Error()
			continue
		}
		if empty(found[i]) {
			continue
		}
		row := found[i].row
		plans[i].Version, plans[i].State, plans[i].Group, plans[i].Term = row.Version.Int64(), row.State, row.Group, core.Term{Count: row.Term.Count, ID: row.Term.ID}
		read = append(read, found[i])
	}
	for _, id := range unknownCells(s, read) {
		plans = append(plans, CellPlan{
			Stored: core.Cell{Spec: core.CellSpec{ID: ids.CellID(id)}}, BlockedBy: "etcd does not know the cell, and it may hold units: provision it again with its own file",
		})
	}
	return read, plans
}

// Check gives every broken rule of an order.
func (in Order) Check() error {
	var v []rpcstatus.Violation
	if in.Reason == "" {
		v = append(v, rpcstatus.Violation{Field: "reason", Rule: "must say why"})
	}
	seen := map[core.BookKey]bool{}
	for i, l := range in.Limits {
		switch {
		case l.SaleLimit.IsZero():
			v = append(v, rpcstatus.Violation{Field: fmt.Sprintf("limits[%d].sale_limit", i), Rule: "must be from 1 to 1000000000"})
		case seen[l.Key]:
			v = append(v, rpcstatus.Violation{Field: fmt.Sprintf("limits[%d]", i), Rule: "names " + l.Key.String() + " a second time"})
		}
		seen[l.Key] = true
	}
	return rpcstatus.Invalid(v...)
}
