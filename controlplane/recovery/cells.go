package recovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
)

// fencedVersion is the version of the last fence: the row's own, or below a restore's
// the last that sealed anything, or else the one before it.
func fencedVersion(shard facts) int64 {
	if shard.row.State != "SETTLE_ONLY" {
		return shard.row.Version.Int64()
	}
	var last int64
	for _, s := range shard.seals {
		last = max(last, s.version)
	}
	if last > 0 {
		return last
	}
	return max(shard.row.Version.Int64()-1, 1)
}

// shardStates are the words of the fence row as states of a cell.
var shardStates = map[string]core.CellState{
	"ACTIVE": core.CellActive, "SETTLE_ONLY": core.CellRestoring, "FENCED": core.CellFenced,
}

// planCell gives a cell's record as its shard shows it, and whether it differs.
func planCell(cell core.Cell, shard facts) (core.Cell, bool) {
	next, fenced := planFence(cell, shard)
	next, switched := planSwitch(next, shard)
	if fenced || switched {
		next.Version++
	}
	return next, fenced || switched
}

// planFence takes the fence row over. A shard behind the record is left to the
// operation that the record belongs to: a fence that was ordered and not carried out.
// What any fence sealed is booked by the recovery itself (journal.go), so that nothing
// is left to reclaim.
func planFence(cell core.Cell, shard facts) (core.Cell, bool) {
	version, state := shard.row.Version.Int64(), shardStates[shard.row.State]
	switch {
	case version < cell.FenceVersion || state == 0:
		return cell, false
	case version > cell.FenceVersion:
	case state == core.CellActive && cell.State == core.CellDraining:
		return cell, false
	case state == cell.State && (state != core.CellFenced || cell.Reclaimed):
		return cell, false
	}
	cell.FenceVersion, cell.State, cell.InstanceGroup = version, state, shard.row.Group
	cell.OperationID, cell.Reclaimed = "", true
	if state != core.CellActive {
		cell.ProofID = core.ProofID(cell.Spec.ID, fencedVersion(shard))
	}
	return cell, true
}

// planSwitch raises the record above the newest word that the shard was told on
// whether the cell is paused, or it would take no word of ours any more; and that word
// stands, for whoever paused the cell meant it.
func planSwitch(cell core.Cell, shard facts) (core.Cell, bool) {
	told := shard.told
	if told.Version < cell.Version || told.Version == cell.Version && told.Paused == cell.Paused {
		return cell, false
	}
	cell.Version, cell.Paused, cell.PauseReason = told.Version, told.Paused, ""
	if told.Paused {
		cell.PauseReason = told.Reason
	}
	return cell, true
}

// cells brings each cell's record to what its shard shows.
func (d *Driver) cells(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, shards []facts) error {
	for _, shard := range shards {
		if err := d.proofs(ctx, leader, op, s, shard); err != nil {
			return err
		}
		stored, _ := s.Cell(shard.cell)
		if _, differs := planCell(stored, shard); !differs {
			continue
		}
		_, err := d.Store.Update(ctx, "recover cell "+string(shard.cell), func(tx *store.Tx) error {
			if _, err := d.mine(tx, leader, op.ID); err != nil {
				return err
			}
			cell, known, err := tx.Cell(shard.cell)
			if err != nil || !known {
				return err
			}
			next, differs := planCell(cell, shard)
			if !differs {
				return nil
			}
			next, err = takeOver(tx, op, cell, next)
			return errors.Join(err, tx.PutCell(next), tx.Audit(core.Audit{
				Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "cell " + string(shard.cell),
				Reason: fmt.Sprintf("its shard is %s at fence version %d", shard.row.State, next.FenceVersion),
			}))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// takeOver ends the operation that had the cell before its shard moved on, and gives
// a cell whose restore was lost on the way an operation that finishes it.
func takeOver(tx *store.Tx, op core.Operation, was, next core.Cell) (core.Cell, error) {
	if next.OperationID != "" || next.State == was.State && next.FenceVersion == was.FenceVersion && was.OperationID == "" {
		return next, nil
	}
	if was.OperationID != "" {
		before, known, err := tx.Operation(was.OperationID)
		if err != nil {
			return next, err
		}
		if known && !before.State.Terminal() {
			text := fmt.Sprintf("etcd lost its past; the shard of %s is at fence version %d, and its record is %s", next.Spec.ID, next.FenceVersion, next.State)
			if err := tx.PutOperation(before.End(core.OperationFailed, text, tx.Now())); err != nil {
				return next, err
			}
		}
	}
	if next.State != core.CellRestoring {
		return next, nil
	}
	restore := core.Operation{
		ID: "recovered." + core.Digest(op.ID, "restore", string(next.Spec.ID)), Kind: core.OperationRestore, Subject: string(next.Spec.ID),
		State: core.OperationPending, Step: next.State.String(), Actor: op.Actor, Reason: op.Reason, StartedAt: tx.Now(), Parameters: op.Parameters,
		InstanceGroup: next.InstanceGroup, FenceVersion: next.FenceVersion,
	}
	if _, known, err := tx.Operation(restore.ID); err != nil || known {
		return next, err
	}
	next.OperationID = restore.ID
	return next, tx.PutOperation(restore)
}

// proofs keeps that fences stand, or stood, which etcd forgot, with what each sealed.
func (d *Driver) proofs(ctx context.Context, leader core.Leader, op core.Operation, s view.Snapshot, shard facts) error {
	sealed := map[int64][]core.SKUUnits{}
	if shardStates[shard.row.State] != core.CellActive {
		sealed[fencedVersion(shard)] = nil // a fence that found nothing to seal is one, too
	}
	for _, seal := range shard.seals {
		sealed[seal.version] = append(sealed[seal.version], core.SKUUnits{Key: seal.key, Units: seal.units})
	}
	for _, version := range slices.Sorted(maps.Keys(sealed)) {
		if _, known := s.Proof(shard.cell, version); known {
			continue
		}
		proof := core.Proof{Cell: shard.cell, FenceVersion: version, Evidence: core.EvidenceStoreFence, Sealed: sealed[version]}
		if version == shard.row.Version.Int64() {
			proof.FencedAt, proof.Stocks = shard.row.StateSince.UTC(), shard.stocks // FENCED: they stand still
		}
		stored, err := d.Store.StageProof(ctx, leader, proof)
		if err != nil {
			return err
		}
		_, err = d.Store.Update(ctx, "recover proof "+core.ProofID(shard.cell, version), func(tx *store.Tx) error {
			if _, err := d.mine(tx, leader, op.ID); err != nil {
				return err
			}
			if _, have, err := tx.Proof(shard.cell, version); err != nil || have {
				return err
			}
			return tx.PutProof(stored)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
