package intent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// CellChange is what every mutation of a cell's record by an operator is given.
type CellChange struct {
	Cell            ids.CellID
	OperationID     string
	ExpectedVersion int64 // 0: any
	ValidateOnly    bool
	Reason          string
	// May refuses the caller the cell as it stands now, in the transaction; nil:
	// everybody may.
	May func(core.Cell) error

	verb string // what is done
	to   string // to what of it; with the verb all that a repeat must match
	// tell is what the audit says of it, asked once it is decided; nil: nothing.
	tell func() string
}

// PauseCell stops the cell's sales until it is resumed: nothing new is admitted,
// payments and closings go on. The leader tells the cell, which keeps it in its
// shard, and the edges, which answer its customers PAUSED.
func (s *Service) PauseCell(ctx context.Context, who Caller, c CellChange) (core.Cell, error) {
	c.verb = "pause"
	return s.changeCell(ctx, who, c, func(_ *store.Tx, cell core.Cell) (core.Cell, bool, error) { return cell.Pause(c.Reason) })
}

// ResumeCell undoes PauseCell.
func (s *Service) ResumeCell(ctx context.Context, who Caller, c CellChange) (core.Cell, error) {
	c.verb = "resume"
	return s.changeCell(ctx, who, c, func(_ *store.Tx, cell core.Cell) (core.Cell, bool, error) { return cell.Resume() })
}

// UpdateCell replaces a cell's spec by core.Cell.Amend's rules and tells what
// changed. The processes of a running cell keep the configuration they were started
// with. Where the fencer is sent elsewhere, the shard found there must be the one
// that holds this cell's fence row: a fence carried out anywhere else would prove
// nothing.
func (s *Service) UpdateCell(ctx context.Context, who Caller, c CellChange, spec core.CellSpec) (core.Cell, []string, error) {
	if v := s.CellFaults(spec); len(v) > 0 {
		return core.Cell{}, nil, rpcstatus.Invalid(v...)
	}
	var changed []string
	c.verb, c.to = "update", core.Digest(fmt.Sprintf("%+v", spec))
	c.tell = func() string { return strings.Join(changed, " ") }
	verified := ""
	cell, err := s.changeCell(ctx, who, c, func(tx *store.Tx, cell core.Cell) (core.Cell, bool, error) {
		next, paths, err := cell.Amend(spec)
		if changed = paths; err != nil || len(paths) == 0 {
			return next, false, err
		}
		cells, err := tx.Cells()
		if err != nil {
			return core.Cell{}, false, err
		}
		delete(cells, spec.ID)
		if err := unshared(spec, cells); err != nil {
			return core.Cell{}, false, err
		}
		if file := spec.Shard.FencerDSNFile; file != cell.Spec.Shard.FencerDSNFile && file != verified {
			if err := s.sameShard(ctx, cell, spec); err != nil {
				return core.Cell{}, false, err
			}
			verified = file // a lost race does not ask again
		}
		return next, true, nil
	})
	return cell, changed, err
}

// sameShard refuses another shard than the cell's.
func (s *Service) sameShard(ctx context.Context, cell core.Cell, spec core.CellSpec) error {
	version, err := s.Shards.Held(ctx, spec)
	if err != nil {
		return fmt.Errorf("shard.fencer_dsn_file: %w", err)
	}
	if cell.State != core.CellFencing && cell.State != core.CellRestoring && version != cell.FenceVersion {
		return rpcstatus.Invalid(rpcstatus.Violation{
			Field: "shard.fencer_dsn_file", Rule: fmt.Sprintf("must lead to the cell's shard: the one there has fence version %d, the cell %d", version, cell.FenceVersion),
		})
	}
	return nil
}

// changeCell is one mutation of a cell's record, in one transaction with its audit;
// its rules are those of change.
func (s *Service) changeCell(ctx context.Context, who Caller, c CellChange, decide func(*store.Tx, core.Cell) (core.Cell, bool, error)) (core.Cell, error) {
	digest := core.Digest(c.verb, c.to, string(c.Cell))
	var out core.Cell
	revision, err := s.Store.Update(ctx, c.verb+" "+string(c.Cell), func(tx *store.Tx) error {
		cell, known, err := tx.Cell(c.Cell)
		if err != nil {
			return err
		}
		if !known {
			return unknownCell(c.Cell)
		}
		if c.May != nil {
			if err := c.May(cell); err != nil {
				return err
			}
		}
		out = cell
		if repeat, err := cell.Repeats(c.OperationID, digest); repeat || err != nil {
			return err
		}
		next, changed, err := decide(tx, cell)
		if err != nil || !changed {
			return err
		}
		if c.ExpectedVersion != 0 && c.ExpectedVersion != cell.Version {
			return core.VersionConflict(c.ExpectedVersion, cell.Version)
		}
		if out = next.Stamped(c.OperationID, digest); c.ValidateOnly {
			return nil
		}
		return errors.Join(tx.PutCell(out), tx.Audit(who.audit(c.OperationID, "cell "+string(c.Cell), c.because())))
	})
	if err == nil {
		s.visible(ctx, revision)
	}
	return out, err
}

// because tells what was done, and why: "update weight: a bigger shard".
func (c CellChange) because() string {
	text := c.verb
	if c.tell != nil {
		text += " " + c.tell()
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}
