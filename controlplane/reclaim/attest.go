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
)

// The steps of a write-off, beside stepReclaim.
const (
	stepAttest = "ATTESTING"
	stepRetire = "RETIRING"
)

// placeWriteOff gives a write-off as the machine of package fencing: a fence that
// runs until the loss is attested, then what is left to mark.
func (d *Driver) placeWriteOff(ctx context.Context, w *work) error {
	w.reclaim = fencing.Reclaim{Cell: w.op.Subject, Version: fencing.Version(w.op.FenceVersion), State: fencing.FenceRunning}
	if !w.op.DoneStep(stepAttest) {
		if s := w.cell.State; s != core.CellFencing && s != core.CellRegressed || w.cell.FenceVersion != w.op.FenceVersion {
			return d.giveUp(ctx, w, fmt.Sprintf("cell %s is %s at fence version %d: its shard has answered since, nothing is written off", w.op.Subject, w.cell.State, w.cell.FenceVersion))
		}
		return nil
	}
	if w.cell.OperationID != w.op.ID {
		return d.lost(ctx, w)
	}
	stored, err := d.store.Proof(ctx, w.cell.Spec.ID, w.cell.FenceVersion)
	if err != nil {
		return err
	}
	w.attested = attestationOf(stored.Attestation)
	snapshot, err := d.view.WaitFor(ctx, w.cell.ModRevision)
	if err != nil {
		return err
	}
	var skus []fencing.SKU
	for _, key := range unwritten(snapshot, w.cell) {
		skus = append(skus, skuOf(key))
	}
	w.reclaim, _, err = fencing.StepReclaim(w.reclaim, fencing.ReclaimEvent{Kind: fencing.WriteOff, SKUs: skus, Attestation: w.attested})
	return err
}

func attestationOf(a core.Attestation) fencing.Attestation {
	return fencing.Attestation{Reason: a.Reason, Operator: a.Operator, Approver: a.Approver}
}

// unwritten lists the SKUs of which the cell's allocation is not marked yet. Those
// that have settled are left alone: their report is written.
func unwritten(s view.Snapshot, cell core.Cell) []core.BookKey {
	var keys []core.BookKey
	for _, b := range s.Books("") {
		if _, has := b.Allocation(cell.Spec.ID); !has || b.Settled {
			continue
		}
		if _, done := s.Record(writeOffID(cell, b.Key)); !done {
			keys = append(keys, b.Key)
		}
	}
	slices.SortFunc(keys, func(a, b core.BookKey) int { return skuOf(a).Compare(skuOf(b)) })
	return keys
}

func writeOffID(cell core.Cell, key core.BookKey) string {
	return fencing.WriteOffID(string(cell.Spec.ID), fencing.Version(cell.FenceVersion), skuOf(key))
}

// advanceWriteOff is advance for a write-off.
func (d *Driver) advanceWriteOff(ctx context.Context, w *work) error {
	if !w.op.DoneStep(stepAttest) {
		return d.attest(ctx, w)
	}
	due := w.reclaim.Due()
	for i, e := range due {
		if e.Kind != fencing.BookWriteOff {
			continue // the cell's record shows it: attest wrote it
		}
		if err := d.writeOff(ctx, w, keyOf(e.SKU)); err != nil || !alike(due, i) {
			return err
		}
	}
	return d.retireLost(ctx, w)
}

// attest takes the cell from its fence, stores whose word it is that the shard is
// gone, and makes the cell FENCED by it, in one transaction. A shard that answers
// after all is the fence's: nothing is written off.
func (d *Driver) attest(ctx context.Context, w *work) error {
	look, cancel := context.WithTimeout(ctx, d.cfg.ShardTimeout)
	here := silent(w.cell) && answers(look, d.shards, w.cell.Spec)
	cancel()
	if here {
		return d.giveUp(ctx, w, "the shard of cell "+w.op.Subject+" answers: the fence ends by proof, nothing is written off")
	}
	_, err := d.store.Update(ctx, "attest "+w.op.ID, func(tx *store.Tx) error {
		op, err := w.mine(tx)
		if err != nil {
			return err
		}
		cell, known, err := tx.Cell(w.cell.Spec.ID)
		if err != nil {
			return err
		}
		if !known || cell.Version != w.cell.Version {
			return core.VersionConflict(w.cell.Version, cell.Version)
		}
		proof, err := w.attestation(tx, op, cell)
		if err != nil {
			return err
		}
		next, _, err := fencing.StepCell(cellOf(cell, false), fencing.CellEvent{Kind: fencing.LossAttested, Attestation: attestationOf(proof.Attestation)})
		if err != nil {
			return err
		}
		if err := endFence(tx, cell.OperationID, op); err != nil {
			return err
		}
		cell.State, cell.OperationID, cell.Version = core.CellState(next.State.Stored()), op.ID, cell.Version+1
		proof.FenceVersion = next.Version.Int64() // a REGRESSED cell has had no fence under its own
		if _, have, err := tx.Proof(cell.Spec.ID, proof.FenceVersion); err != nil || have {
			return orBroken(err, "a proof of %s/%d stands, and the cell is not FENCED", cell.Spec.ID, proof.FenceVersion)
		}
		cell.FenceVersion, op.FenceVersion = proof.FenceVersion, proof.FenceVersion
		cell.Reclaimed, cell.ProofID = false, core.ProofID(proof.Cell, proof.FenceVersion)
		op = op.Finished(stepAttest, fmt.Sprintf("%s says that the shard is gone for good, %s approved", proof.Attestation.Operator, proof.Attestation.Approver), stepReclaim, tx.Now())
		return errors.Join(tx.PutProof(proof), tx.PutCell(cell), tx.PutOperation(op), tx.Audit(core.Audit{
			Actor: op.Actor, Method: "attest loss", OperationID: op.ID, Subject: "cell " + op.Subject, Reason: cell.State.String() + ": " + op.Reason,
		}))
	})
	if err == nil {
		d.log.WarnContext(ctx, "loss attested", w.fields("loss_attested")...)
	}
	return err
}

// endFence ends the fence that could not prove itself.
func endFence(tx *store.Tx, id string, by core.Operation) error {
	if id == "" {
		return nil
	}
	fence, known, err := tx.Operation(id)
	if err != nil || !known || fence.State.Terminal() {
		return err
	}
	why := fmt.Sprintf("its shard is gone for good: write-off %s has cell %s now", by.ID, by.Subject)
	return errors.Join(tx.PutOperation(fence.End(core.OperationFailed, why, tx.Now())), tx.Audit(core.Audit{
		Actor: by.Actor, Method: "end", OperationID: fence.ID, Subject: "operation " + fence.ID, Reason: why,
	}))
}

// attestation is the proof that stands for the shard's: the word of who asked and of
// who approved.
func (w *work) attestation(tx *store.Tx, op core.Operation, cell core.Cell) (core.Proof, error) {
	approval, found, err := tx.Approval(op.ID)
	if err != nil {
		return core.Proof{}, err
	}
	if clearance, why := op.MayStep(approval, found); clearance != core.MayGo {
		return core.Proof{}, fmt.Errorf("%w: %s", errNotYet, why)
	}
	return core.Proof{
		Cell: cell.Spec.ID, Evidence: core.EvidenceAttestedLoss, FencedAt: tx.Now(),
		Attestation: core.Attestation{
			Reason: op.Reason, Operator: op.Actor, Approver: approval.Approver, ApprovalReason: approval.DecisionReason, ApprovedAt: approval.DecidedAt,
		},
	}, nil
}

// retireLost ends a write-off: everything is marked, and the cell's id and shard are
// never used again.
func (d *Driver) retireLost(ctx context.Context, w *work) error {
	return d.move(ctx, w, "written off", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		lost := cellOf(cell, false)
		lost.Evidence = fencing.AttestedLoss
		next, _, err := fencing.StepCell(lost, fencing.CellEvent{Kind: fencing.Retire})
		if err != nil {
			return cell, op, err
		}
		cell.State, cell.Reclaimed, cell.OperationID = core.CellState(next.State.Stored()), true, ""
		op = op.Finished(stepRetire, "the cell is RETIRED; its shard is never used again", "", tx.Now())
		return cell, op.End(core.OperationDone, "", tx.Now()), nil
	})
}

// giveUp ends a write-off that took nothing.
func (d *Driver) giveUp(ctx context.Context, w *work, why string) error {
	_, err := d.store.Update(ctx, "end "+w.op.ID, func(tx *store.Tx) error {
		op, err := w.mine(tx)
		if err != nil {
			return err
		}
		w.op = op.End(core.OperationFailed, why, tx.Now())
		return errors.Join(tx.PutOperation(w.op), tx.Audit(core.Audit{
			Actor: op.Actor, Method: "end", OperationID: op.ID, Subject: "operation " + op.ID, Reason: why,
		}))
	})
	return err
}
