package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
)

// The steps of an operation, as its record lists the finished ones. They are the
// words of fencing.ReclaimState where it has one.
const (
	stepFence   = "FENCING"
	stepReclaim = "RECLAIMING"
	stepTopUp   = "TOP_UP"
	stepRestore = "RESTORING"
	stepSettle  = "SETTLE_ONLY"
)

// resume reads, linearizably, where an operation stands, and gives it as
// fencing's machine. An operation that lost its cell to another one is ended.
func (d *Driver) resume(ctx context.Context, leader core.Leader, id string) (*work, error) {
	op, err := d.store.Operation(ctx, id)
	if err != nil {
		return nil, err
	}
	w := &work{leader: leader, op: op}
	if op.State.Terminal() {
		return w, nil
	}
	if w.cell, err = d.store.Cell(ctx, ids.CellID(op.Subject)); err != nil {
		return nil, err
	}
	if op.Kind == core.OperationWriteOff {
		return w, d.placeWriteOff(ctx, w)
	}
	if w.cell.OperationID != id {
		return w, d.lost(ctx, w)
	}
	if op.Kind == core.OperationRetire {
		w.placeRetire()
		return w, nil
	}
	if w.recovering = recovery(op, w.cell); w.recovering != "" {
		w.step = w.recovering
		return w, nil
	}
	if err := d.place(ctx, w); err != nil {
		return nil, err
	}
	return w, w.command()
}

// place gives the machine's state by the cell's record.
func (d *Driver) place(ctx context.Context, w *work) error {
	w.reclaim = fencing.Reclaim{Cell: w.op.Subject, Version: fencing.Version(w.cell.FenceVersion)}
	state, ok := fencing.ReclaimStateOf(fencing.CellState(w.cell.State), w.cell.Reclaimed)
	if !ok {
		return w.op.Refuses(fmt.Sprintf("cell %s is %s: no fence is under way or standing", w.op.Subject, w.cell.State))
	}
	w.reclaim.State = state
	if state == fencing.FenceRunning {
		return nil
	}
	w.reclaim.Evidence = fencing.StoreFence
	if state == fencing.RestoreRunning {
		return d.placeRestore(w)
	}
	stored, err := d.store.Proof(ctx, w.cell.Spec.ID, w.cell.FenceVersion)
	if err != nil {
		return err
	}
	w.proof = provenBy(stored)
	if state != fencing.FenceProven {
		return nil
	}
	snapshot, err := d.view.WaitFor(ctx, w.cell.ModRevision)
	if err != nil {
		return err
	}
	for _, key := range pending(snapshot, w.cell.Spec.ID, w.proof) {
		w.reclaim.Pending = append(w.reclaim.Pending, skuOf(key))
	}
	return nil
}

// placeRestore: the record's version is the restore's, the proof's id names the
// fence's.
func (d *Driver) placeRestore(w *work) error {
	if w.op.DoneStep(stepLog) { // there was no fence: the shard went back in time and is whole again
		w.reclaim.Version, w.reclaim.Restored, w.reclaim.State = fencing.Version(w.cell.FenceVersion-1), fencing.Version(w.cell.FenceVersion), fencing.SettleOnly
		return nil
	}
	var fenced int64
	if _, err := fmt.Sscanf(w.cell.ProofID, string(w.cell.Spec.ID)+"/%d", &fenced); err != nil {
		return fmt.Errorf("%w: cell %s is RESTORING with proof %q", core.ErrBroken, w.op.Subject, w.cell.ProofID)
	}
	w.reclaim.Version, w.reclaim.Restored = fencing.Version(fenced), fencing.Version(w.cell.FenceVersion)
	if w.op.DoneStep(stepRestore) {
		w.reclaim.State = fencing.SettleOnly
	}
	return nil
}

// command tells the machine what the operation asks for.
func (w *work) command() error {
	var commands []fencing.ReclaimEventKind
	switch {
	case w.op.Kind == core.OperationRestore:
		commands = append(commands, fencing.BeginRestore)
	case w.op.Kind == core.OperationReclaim, w.op.Reclaim:
		commands = append(commands, fencing.BeginReclaim)
	}
	if w.op.TopUp && !w.op.DoneStep(stepTopUp) {
		commands = append(commands, fencing.BeginTopUp)
	}
	for _, kind := range commands {
		next, _, err := fencing.StepReclaim(w.reclaim, fencing.ReclaimEvent{Kind: kind})
		if err != nil {
			return err
		}
		w.reclaim = next
	}
	return nil
}

// lost ends an operation whose cell another one took: a fence during a restore.
func (d *Driver) lost(ctx context.Context, w *work) error {
	_, err := d.store.Update(ctx, "end "+w.op.ID, func(tx *store.Tx) error {
		op, err := w.mine(tx)
		if err != nil {
			return err
		}
		w.op = op.End(core.OperationFailed, fmt.Sprintf("operation %q has cell %s now", w.cell.OperationID, op.Subject), tx.Now())
		return errors.Join(tx.PutOperation(w.op), tx.Audit(core.Audit{
			Actor: op.Actor, Method: "end", OperationID: op.ID, Subject: "operation " + op.ID, Reason: w.op.Detail,
		}))
	})
	return err
}

// pending lists the SKUs that a proof concerns and whose reclaim is not booked:
// what the shard has rows for, and what the books allocate to the cell. A settled
// SKU is left alone: its journal is archived, and its units are nobody's to give;
// nor is one of a deleted campaign, whose rows the shard keeps.
func pending(s view.Snapshot, cell ids.CellID, proof fencing.Proof) []core.BookKey {
	concerned := map[core.BookKey]bool{}
	for _, f := range proof.SKUs {
		if _, known := s.Book(keyOf(f.SKU)); known || f.Granted+f.Sealed > 0 {
			concerned[keyOf(f.SKU)] = true
		}
	}
	for _, b := range s.Books("") {
		if _, has := b.Allocation(cell); has {
			concerned[b.Key] = true
		}
	}
	var keys []core.BookKey
	for key := range concerned {
		if book, _ := s.Book(key); book.Settled || deleted(s, key) {
			continue
		}
		if _, booked := s.Record(SealID(cell, proof.Version.Int64(), key)); !booked {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b core.BookKey) int { return skuOf(a).Compare(skuOf(b)) })
	return keys
}

func deleted(s view.Snapshot, key core.BookKey) bool {
	_, is := s.Tombstone(key.Campaign)
	return is
}
