package reclaim

import (
	"context"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// with opens the cell's shard, raises its term row to this leader's, and runs.
// From then on a deposed leader's directive does not commit behind what is read.
func (d *Driver) with(ctx context.Context, w *work, run func(context.Context, Shard) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.ShardTimeout)
	defer cancel()
	shard, err := d.shards.Open(ctx, w.cell.Spec)
	if err != nil {
		return fmt.Errorf("cell %s is %s and what it holds is frozen: %w", w.op.Subject, w.cell.State, err)
	}
	defer func() { _ = shard.Close(context.WithoutCancel(ctx)) }()
	if err := shard.RaiseTerm(ctx, fencing.Term{Count: w.leader.Term.Count, ID: w.leader.Term.ID}); err != nil {
		return err
	}
	return run(ctx, shard)
}

// fence installs the version in the shard and brings the proof home. Repeated, it
// brings the same proof. A shard that lacks what was seen of it proves nothing: it is
// left as it is, its cell is REGRESSED from then on and the operation has ended (stored).
func (d *Driver) fence(ctx context.Context, w *work) (stored bool, err error) {
	seen, known, err := d.store.Witness(ctx, w.cell.Spec.ID)
	if err != nil {
		return false, err
	}
	var lacks string
	err = d.with(ctx, w, func(ctx context.Context, shard Shard) (err error) {
		if known {
			if lacks, err = lackedBy(ctx, shard, seen, w.reclaim.Version); err != nil || lacks != "" {
				return err
			}
		}
		return w.prove(ctx, shard)
	})
	if err != nil || lacks == "" {
		return false, err
	}
	_, err = d.store.Regress(ctx, w.leader, w.cell.Spec.ID, lacks)
	if err == nil {
		d.log.ErrorContext(ctx, "the shard went back in time and proves nothing", w.fields("cell_regressed", telemetry.NewState, core.CellRegressed.String(), "detail", lacks)...)
	}
	return true, err
}

// prove installs the version and reads the proof.
func (w *work) prove(ctx context.Context, shard Shard) (err error) {
	if w.proof, err = shard.Fence(ctx, w.op.Subject, w.reclaim.Version, w.op.Reason); err != nil {
		return err
	}
	row, err := shard.Row(ctx)
	w.fencedAt = row.StateSince
	return err
}

// lackedBy says in words what the shard lacks of what was seen of it, or "". The connection
// is the one that fences: no other server comes between. Where this very fence stands already,
// its SEAL is one more entry in every row than a witness from before it saw.
func lackedBy(ctx context.Context, shard Shard, seen fencing.Witness, version fencing.Version) (string, error) {
	now, err := shard.Witness(ctx)
	if err != nil {
		return "", err
	}
	if now.Version == version && seen.Version < version {
		now = now.Unsealed()
	}
	return seen.Lacks(now), nil
}

// storeProof keeps the proof, trimmed to what a reclaim can need, and makes the cell
// FENCED, in one transaction.
func (d *Driver) storeProof(ctx context.Context, w *work) error {
	snapshot, err := d.view.WaitFor(ctx, w.cell.ModRevision)
	if err != nil {
		return err
	}
	proof, err := storedProof(w.proof.Trim(sides(snapshot, w.cell.Spec.ID)), w.fencedAt)
	if err != nil {
		return err
	}
	stored, err := d.store.StageProof(ctx, w.leader, proof)
	if err != nil {
		return err
	}
	return d.move(ctx, w, "fence proved", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		if _, have, err := tx.Proof(proof.Cell, proof.FenceVersion); err != nil || have {
			return cell, op, orBroken(err, "a proof of %s/%d stands, and the cell is not FENCED", proof.Cell, proof.FenceVersion)
		}
		cell.State, cell.Reclaimed = core.CellFenced, false
		cell.ProofID = core.ProofID(proof.Cell, proof.FenceVersion)
		return cell, op.Finished(stepFence, sealedWords(proof), core.CellFenced.String(), tx.Now()), tx.PutProof(stored)
	})
}

func orBroken(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", core.ErrBroken, fmt.Sprintf(format, args...))
}

func sealedWords(p core.Proof) string {
	var sum int64
	for _, s := range p.Sealed {
		sum += s.Units.Int64()
	}
	return fmt.Sprintf("sealed %d units of %d SKUs at fence version %d", sum, len(p.Sealed), p.FenceVersion)
}

// writeRestoring gives the cell the next version and its group; from now on the
// shard may be given it.
func (d *Driver) writeRestoring(ctx context.Context, w *work, version fencing.Version) error {
	return d.move(ctx, w, "restore begins", func(_ *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		cell.State, cell.FenceVersion, cell.InstanceGroup = core.CellRestoring, version.Int64(), op.InstanceGroup
		op.FenceVersion = version.Int64()
		return cell, op.Waits(stepRestore, ""), nil
	})
}

// restore makes the shard SETTLE_ONLY at the version.
func (d *Driver) restore(ctx context.Context, w *work, version fencing.Version) error {
	err := d.with(ctx, w, func(ctx context.Context, shard Shard) error {
		return shard.Restore(ctx, w.op.Subject, version, w.cell.InstanceGroup, w.op.Reason)
	})
	if err != nil {
		return err
	}
	return d.move(ctx, w, "shard settles", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		return cell, op.Finished(stepRestore, fmt.Sprintf("settle-only at fence version %s for group %s", version, cell.InstanceGroup), stepSettle, tx.Now()), nil
	})
}

// awaitSettled waits until the shard has been settle-only for the close grace, by
// its own clock.
func (d *Driver) awaitSettled(ctx context.Context, w *work) error {
	return d.with(ctx, w, func(ctx context.Context, shard Shard) error {
		row, err := shard.Row(ctx)
		if err != nil || row.State != "SETTLE_ONLY" {
			return err // ACTIVE: a driver before this one was here
		}
		if left := d.cfg.CloseGrace - row.ShardNow.Sub(row.StateSince); left > 0 {
			return fmt.Errorf("%w: payments and closings only until %s", errNotYet, row.StateSince.Add(d.cfg.CloseGrace).UTC().Format(time.RFC3339))
		}
		return nil
	})
}

// activate makes the shard ACTIVE.
func (d *Driver) activate(ctx context.Context, w *work, version fencing.Version) error {
	return d.with(ctx, w, func(ctx context.Context, shard Shard) error {
		return shard.Activate(ctx, w.op.Subject, version, w.op.Reason)
	})
}

// writeActive makes the cell ACTIVE and ends the operation. It holds what it
// sold; units come by new grants only.
func (d *Driver) writeActive(ctx context.Context, w *work) error {
	return d.move(ctx, w, "cell active", func(tx *store.Tx, cell core.Cell, op core.Operation) (core.Cell, core.Operation, error) {
		cell.State, cell.OperationID = core.CellActive, ""
		op = op.Finished(stepSettle, fmt.Sprintf("active at fence version %d", cell.FenceVersion), "", tx.Now())
		return cell, op.End(core.OperationDone, "", tx.Now()), nil
	})
}
