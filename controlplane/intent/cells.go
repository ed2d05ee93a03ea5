package intent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// ProvisionCell makes a cell known, creates its topic, installs its fence row and
// makes it ACTIVE. Each step is idempotent: a repeat goes on where the last try
// ended. The same id with another spec is core.ErrCellExists, and so is the id of a
// cell that was retired, with whatever spec: books, orders and evidence name it.
func (s *Service) ProvisionCell(ctx context.Context, who Caller, spec core.CellSpec, operationID string, validateOnly bool) (core.Cell, error) {
	if v := s.CellFaults(spec); len(v) > 0 {
		return core.Cell{}, rpcstatus.Invalid(v...)
	}
	cell, err := s.knowCell(ctx, who, spec, operationID, validateOnly)
	if err != nil || validateOnly || cell.State != core.CellProvisioned {
		return cell, err
	}
	if err := s.Topics.Ensure(ctx, spec.Kafka); err != nil {
		return core.Cell{}, fmt.Errorf("topic %s: %w", spec.Kafka.Topic, err)
	}
	version, err := s.Shards.Install(ctx, spec)
	if err != nil {
		return core.Cell{}, fmt.Errorf("fence row of cell %s: %w", spec.ID, err)
	}
	return s.activate(ctx, who, spec.ID, operationID, version)
}

// knowCell writes the record as PROVISIONED, or finds it.
func (s *Service) knowCell(ctx context.Context, who Caller, spec core.CellSpec, operationID string, validateOnly bool) (core.Cell, error) {
	var out core.Cell
	_, err := s.Store.Update(ctx, "provision "+string(spec.ID), func(tx *store.Tx) error {
		cells, err := tx.Cells()
		if err != nil {
			return err
		}
		present, known, err := tx.Cell(spec.ID)
		if err != nil {
			return err
		}
		if known {
			out = present
			if present.State == core.CellRetired {
				return rpcstatus.With(fmt.Errorf("%w: %s is RETIRED: its id is never used again, choose another", core.ErrCellExists, spec.ID), map[string]string{"cell_id": string(spec.ID), "state": present.State.String()}, nil, 0)
			}
			if !present.Spec.Equal(spec) {
				return rpcstatus.With(fmt.Errorf("%w: %s", core.ErrCellExists, spec.ID), map[string]string{"cell_id": string(spec.ID)}, nil, 0)
			}
			return nil
		}
		if err := unshared(spec, cells); err != nil {
			return err
		}
		out = core.Cell{Spec: spec, State: core.CellProvisioned, Version: 1, FenceVersion: 1, InstanceGroup: spec.InstanceGroup}
		if validateOnly {
			return nil
		}
		return errors.Join(tx.PutCell(out), tx.Audit(who.audit(operationID, "cell "+string(spec.ID), "provision")))
	})
	return out, err
}

// unshared refuses a cell that would share a topic or a shard with another: two
// cells that write one shard are one cell with two fences.
func unshared(spec core.CellSpec, cells map[ids.CellID]core.Cell) error {
	var v []rpcstatus.Violation
	for _, c := range cells {
		if c.State == core.CellRetired {
			continue
		}
		if c.Spec.Kafka.Topic == spec.Kafka.Topic && overlap(c.Spec.Kafka.Brokers, spec.Kafka.Brokers) {
			v = append(v, rpcstatus.Violation{Field: "kafka.topic", Rule: "belongs to cell " + string(c.Spec.ID)})
		}
		if c.Spec.Shard.FencerDSNFile == spec.Shard.FencerDSNFile {
			v = append(v, rpcstatus.Violation{Field: "shard.fencer_dsn_file", Rule: "belongs to cell " + string(c.Spec.ID)})
		}
	}
	return rpcstatus.Invalid(v...)
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(x string) bool { return slices.Contains(b, x) })
}

// activate makes a provisioned cell ACTIVE once its shard has the fence row.
func (s *Service) activate(ctx context.Context, who Caller, id ids.CellID, operationID string, version int64) (core.Cell, error) {
	var out core.Cell
	revision, err := s.Store.Update(ctx, "activate "+string(id), func(tx *store.Tx) error {
		cell, known, err := tx.Cell(id)
		switch {
		case err != nil:
			return err
		case !known:
			return fmt.Errorf("%w: %s", core.ErrUnknownCell, id)
		case cell.State != core.CellProvisioned:
			out = cell
			return nil
		case cell.FenceVersion != version:
			return rpcstatus.With(fmt.Errorf("%w: the shard of %s has fence version %d, a new cell has %d", core.ErrRestored, id, version, cell.FenceVersion),
				map[string]string{"cell_id": string(id), "fence_version": fmt.Sprint(version)}, nil, 0)
		}
		cell.State = core.CellActive
		cell.Version++
		out = cell
		return errors.Join(tx.PutCell(cell), tx.Audit(who.audit(operationID, "cell "+string(id), "fence row installed")))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}
