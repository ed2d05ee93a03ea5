package link

import (
	"sync"
	"time"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/fencing"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Verdict is whether this process may sell now.
type Verdict uint8

// The verdicts.
const (
	// Sells: nothing stands against it.
	Sells Verdict = iota + 1
	// Paused: the lease is in doubt and the campaign's on_lease_loss is PAUSE.
	Paused
	// Fenced: no writer, a shard that only settles, or a cell that was told to stop.
	Fenced
)

// Standing is what a process knows of its right to sell. Safe for concurrent use; asking takes no
// lock that anything slow holds. The zero Standing sells nothing.
type Standing struct {
	margin fencing.Margin
	writer func() (shard.Writer, bool)

	mu       sync.RWMutex
	fence    shard.Fence
	known    bool // fence was read
	cell     pb.CellState
	deadline time.Time
	linked   bool
	cause    string // why there is no stream, in words
}

// NewStanding makes a Standing; writer is the shard's (Store.Writer), margin the link.pause_margin.
func NewStanding(writer func() (shard.Writer, bool), margin time.Duration) *Standing {
	return &Standing{writer: writer, margin: fencing.Margin(margin), cause: "not registered yet"}
}

// halted are the states in which a cell sells nothing new, whatever its shard says. RESTORING is not
// among them: there the shard's row is SETTLE_ONLY, and it is the row that changes first.
var halted = map[pb.CellState]bool{
	pb.CellState_CELL_STATE_DRAINING: true, pb.CellState_CELL_STATE_FENCING: true, pb.CellState_CELL_STATE_FENCED: true,
	pb.CellState_CELL_STATE_REGRESSED: true, pb.CellState_CELL_STATE_RETIRED: true,
}

// MaySell gives the verdict for a campaign of this policy. It is about liveness and manners: whoever
// it lets through by mistake is stopped by the fence.
func (s *Standing) MaySell(policy pb.OnLeaseLoss, now time.Time) Verdict {
	w, ok := s.writer()
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case !ok, !s.known, s.fence.State != shard.Active, s.fence.Version != w.FenceVersion, halted[s.cell]:
		return Fenced
	case policy != pb.OnLeaseLoss_ON_LEASE_LOSS_PAUSE:
		return Sells
	}
	window := fencing.TrustWindow{Deadline: s.deadline, Margin: s.margin, Policy: fencing.Pause}
	if window.MayAdmit(now) {
		return Sells
	}
	return Paused
}

// Fence is the fence row as it was last read.
func (s *Standing) Fence() (shard.Fence, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.fence, s.known
}

// Linked tells whether a stream to the leader stands, and if not, why.
func (s *Standing) Linked() (ok bool, cause string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.linked, s.cause
}

// LeaseRemaining is what is left of the lease; 0 without one.
func (s *Standing) LeaseRemaining(now time.Time) time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return fencing.TrustWindow{Deadline: s.deadline}.Remaining(now)
}

// SawFence records a reading of the fence row. A reading under a lower version is an older one.
func (s *Standing) SawFence(f shard.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known || f.Version >= s.fence.Version {
		s.fence, s.known = f, true
	}
}

// welcomed records a registration.
func (s *Standing) welcomed(state pb.CellState, deadline time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.linked, s.cause, s.cell, s.deadline = true, "", state, deadline
}

// kept records that the lease holds until deadline.
func (s *Standing) kept(state pb.CellState, deadline time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cell = state
	if deadline.After(s.deadline) {
		s.deadline = deadline
	}
}

// parted records the end of a stream. What was heard last still holds.
func (s *Standing) parted(cause string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.linked, s.cause = false, cause
}

// adopted records that the shard itself gave the right to write, while no replica answers: what an
// older stream said of the cell is forgotten.
func (s *Standing) adopted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cell = pb.CellState_CELL_STATE_UNSPECIFIED
}
