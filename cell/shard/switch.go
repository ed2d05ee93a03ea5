package shard

import (
	"context"
	"fmt"

	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// maxSwitchReason bounds what an operator may say; longer words are a caller's defect.
const maxSwitchReason = 4096

// Switch is whether an operator paused this cell, as the control plane told it last.
type Switch struct {
	Paused  bool
	Version int64 // of the cell's record; 0: never told
	Reason  string
}

// SetSwitch records the control plane's word under the sender's term. Words grow only in version:
// the same version again changes nothing, and one below what stands is ErrConflict, so that it is
// never taken for done. A schema without the switch (step 1) is ErrUnsupported.
func (s *Store) SetSwitch(ctx context.Context, termCount int64, termID string, in *cellquotav1.CellSwitch) error {
	if in.GetVersion() < 1 || len(in.GetReason()) > maxSwitchReason {
		return fmt.Errorf("%w: cell_switch: version %d, a reason of %d bytes", ErrInvalid, in.GetVersion(), len(in.GetReason()))
	}
	known, err := s.hasSwitch(ctx)
	if err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("%w: cell_switch: the schema is at step 1; run cellquotad migrate up", ErrUnsupported)
	}
	return s.inTx(ctx, "set_switch", needSettle, func(ctx context.Context, t tx) error {
		if _, err := t.Exec(ctx, sql("term_raise"), termCount, termID); err != nil {
			return err
		}
		var newer bool
		if err := t.QueryRow(ctx, sql("switch_set"), in.GetPaused(), in.GetVersion(), in.GetReason()).Scan(&newer); err != nil || newer {
			return err
		}
		var stands Switch
		if err := t.QueryRow(ctx, sql("switch_read")).Scan(&stands.Paused, &stands.Version, &stands.Reason); err != nil {
			return err
		}
		if stands.Version > in.GetVersion() || stands.Paused != in.GetPaused() {
			return fmt.Errorf("%w: cell_switch: version %d (paused %t) stands, %d was sent", ErrConflict, stands.Version, stands.Paused, in.GetVersion())
		}
		return nil
	})
}

// Switch reads the switch; on a schema that has none yet it is the zero Switch.
func (s *Store) Switch(ctx context.Context) (Switch, error) {
	var out Switch
	if known, err := s.hasSwitch(ctx); err != nil || !known {
		return out, err
	}
	err := s.pool.QueryRow(ctx, sql("switch_read")).Scan(&out.Paused, &out.Version, &out.Reason)
	return out, translate(err)
}

// hasSwitch asks once more at every call until the schema has it: a migration comes while we run.
func (s *Store) hasSwitch(ctx context.Context) (bool, error) {
	if s.switchKnown.Load() {
		return true, nil
	}
	var known bool
	if err := s.pool.QueryRow(ctx, sql("switch_known")).Scan(&known); err != nil {
		return false, translate(err)
	}
	s.switchKnown.Store(known)
	return known, nil
}
