package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
	storev1 "github.com/cellquota/cellquota/proto/cellquota/store/v1"
)

func (k keys) witness(cell ids.CellID) string { return k.room(KindWitness) + string(cell) }

// Witness is the highest that the control plane saw of a cell's shard and wrote down; false: it saw none.
func (s *Store) Witness(ctx context.Context, cell ids.CellID) (w fencing.Witness, known bool, err error) {
	tx := &Tx{s: s, ask: s.asker(ctx, s.timeout), read: map[string]int64{}, created: map[string]int64{}}
	return tx.Witness(cell)
}

// RaiseWitness writes down what was seen of a cell's shard, where it is higher than what stands.
// core.ErrNotLeader.
func (s *Store) RaiseWitness(ctx context.Context, leader core.Leader, cell ids.CellID, seen fencing.Witness) error {
	_, err := s.Update(ctx, "witness of "+string(cell), func(tx *Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		stands, _, err := tx.Witness(cell)
		if err != nil {
			return err
		}
		if seen.Version < stands.Version {
			return nil // from before a fence or a recovery
		}
		return tx.PutWitness(cell, stands.Raise(seen))
	})
	return err
}

// Regress marks a cell whose shard went back in time: REGRESSED, whatever it was doing, a fence that is
// not proven too; the operation that had it has FAILED, and its detail says the way out. It gives the
// cell as it is then. core.ErrNotLeader, core.ErrUnknownCell, core.ErrCellState where a restore is under
// way or the cell has no shard any more.
func (s *Store) Regress(ctx context.Context, leader core.Leader, id ids.CellID, why string) (core.Cell, error) {
	var cell core.Cell
	_, err := s.Update(ctx, "regress "+string(id), func(tx *Tx) error {
		if err := tx.Lead(leader); err != nil {
			return err
		}
		var known bool
		var err error
		if cell, known, err = tx.Cell(id); err != nil {
			return err
		}
		switch {
		case !known:
			return fmt.Errorf("%w: %s", core.ErrUnknownCell, id)
		case cell.State == core.CellRegressed:
			return nil
		case cell.State != core.CellActive && cell.State != core.CellDraining && cell.State != core.CellFencing && cell.State != core.CellFenced:
			return fmt.Errorf("%w: cell %s is %s, and its shard went back in time", core.ErrCellState, id, cell.State)
		}
		if err := tx.endRegressed(cell, why); err != nil {
			return err
		}
		cell.State, cell.OperationID = core.CellRegressed, ""
		cell.Version++
		return errors.Join(tx.PutCell(cell), tx.Audit(core.Audit{Actor: "leader", Method: "regress", Subject: "cell " + string(id), Reason: why}))
	})
	return cell, err
}

// endRegressed ends the operation that has a cell whose shard went back in time.
func (tx *Tx) endRegressed(cell core.Cell, why string) error {
	if cell.OperationID == "" {
		return nil
	}
	op, known, err := tx.Operation(cell.OperationID)
	if err != nil || !known || op.State.Terminal() {
		return err
	}
	detail := fmt.Sprintf("the shard of cell %s went back in time (%s); recover it: cellctl cell restore %s", cell.Spec.ID, why, cell.Spec.ID)
	return errors.Join(tx.PutOperation(op.End(core.OperationFailed, detail, tx.Now())), tx.Audit(core.Audit{
		Actor: "leader", Method: "end", OperationID: op.ID, Subject: "operation " + op.ID, Reason: detail,
	}))
}

// Witness reads what was written down of a cell's shard; false: nothing.
func (tx *Tx) Witness(cell ids.CellID) (w fencing.Witness, known bool, err error) {
	kv, err := tx.get(tx.s.keys.witness(cell))
	if err != nil || kv == nil {
		return w, false, err
	}
	var m storev1.Witness
	if err := decode(kv.Value, &m); err != nil {
		return w, false, err
	}
	return convert.FromWitness(m.GetSeen()), true, nil
}

// PutWitness writes down what was seen of a cell's shard, in the place of what stands.
func (tx *Tx) PutWitness(cell ids.CellID, w fencing.Witness) error {
	if _, err := tx.get(tx.s.keys.witness(cell)); err != nil { // nobody raises it meanwhile
		return err
	}
	return tx.put(tx.s.keys.witness(cell), &storev1.Witness{CellId: string(cell), Seen: convert.Witness(w), SeenAt: convert.Time(tx.Now())})
}
