package quota_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// shard is the pure model of a cell's shard: one stock row, the numbers of one
// fence version, and what it decided, by id.
type shard struct {
	granted, available, sold int64
	version, last            int64
	decided                  map[string]core.Outcome
	lastID                   string
	fenced                   bool
	silent                   bool // decides nothing
	gone                     bool // cannot be read
}

func newShard(granted int64) *shard {
	s := &shard{granted: granted, available: granted, version: 1, decided: map[string]core.Outcome{}}
	if granted > 0 {
		s.last = 1
	}
	return s
}

// decide is ApplyAdjustment: the next number of its own version, or what it said
// before; 0: not now.
func (s *shard) decide(a core.Adjustment) core.Outcome {
	if said, known := s.decided[a.ID]; known {
		return said
	}
	if s.silent || s.fenced || a.FenceVersion != s.version || a.Number != s.last+1 {
		return 0
	}
	n := a.Units.Int64()
	said := core.OutcomeApplied
	switch {
	case a.Kind == core.KindGrant:
		s.granted, s.available = s.granted+n, s.available+n
	case s.available < n:
		said = core.OutcomeRefused
	default:
		s.granted, s.available = s.granted-n, s.available-n
	}
	s.last++
	s.lastID = a.ID
	s.decided[a.ID] = said
	return said
}

func (s *shard) sell(n int64) {
	n = min(n, s.available)
	s.available, s.sold = s.available-n, s.sold+n
}

// check is I2 inside the shard.
func (s *shard) check() error {
	if s.granted != s.available+s.sold || s.available < 0 || s.sold < 0 {
		return fmt.Errorf("granted %d, available %d, sold %d", s.granted, s.available, s.sold)
	}
	return nil
}

// shards implements quota.Shards.
type shards map[ids.CellID]*shard

func (s shards) Stock(_ context.Context, spec core.CellSpec, key core.BookKey) (core.StockFacts, error) {
	one := s[spec.ID]
	if one == nil || one.gone {
		return core.StockFacts{}, errors.New("connection refused")
	}
	return core.StockFacts{Key: key, Granted: quantity.Must(one.granted), Available: quantity.Must(one.available), Confirmed: quantity.Must(one.sold)}, nil
}
