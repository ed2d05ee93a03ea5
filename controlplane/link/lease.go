package link

import (
	"errors"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// takeLease grants a lease and puts the process under it, in one transaction
// with the judgement of its hello and with this leader still leading.
func (s *stream) takeLease() error {
	lease, err := s.hub.Store.GrantLease(s.ctx, s.hub.o.LeaseTTL)
	if err != nil {
		return err
	}
	granted := s.hub.Clock.Now()
	in := s.instance
	in.Lease = lease
	again := s.fenceVersion != 0
	cell, err := s.hub.Store.Register(s.ctx, s.reign.leader, in, func(c core.Cell) error {
		if again { // registered already: etcd lost the lease, the shard's row was judged at the hello
			if r := stillHeld(s, c); r != nil {
				return refused{r}
			}
			return nil
		}
		if r := judge(s.hello, s.reign.leader.Term, c); r != nil {
			return refused{r}
		}
		return nil
	})
	if err != nil {
		s.logged("lease_unused", s.hub.Store.RevokeLease(s.ctx, lease))
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease, s.expires, s.revision = lease, granted.Add(s.hub.o.LeaseTTL), cell.ModRevision
	if !again {
		s.fenceVersion, s.welcomed = cell.FenceVersion, cell.State
	}
	return nil
}

// keep keeps the lease at each keep-alive and answers it.
func (s *stream) keep() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case k := <-s.alive:
			s.keepOnce()
			s.reportsNow(k.GetReporter())
			s.tellKeys(s.hub.View.Snapshot()) // again, where there was no room
			s.queue(&pb.LinkResponse{Kind: &pb.LinkResponse_KeepAliveAck{KeepAliveAck: &pb.KeepAliveAck{
				Sequence: k.GetSequence(), LeaseRemainingMs: s.remaining(s.hub.Clock.Now()).Milliseconds(),
				CellState: pb.CellState(s.hub.cellState(s.cell, s.welcomed)),
			}}})
		}
	}
}

// keepOnce keeps the lease, or takes a new one when etcd lost it (K39): the same
// process, no new allocation, nothing reset. While etcd is silent the remaining
// life simply runs out.
func (s *stream) keepOnce() {
	s.mu.Lock()
	lease := s.lease
	s.mu.Unlock()
	asked := s.hub.Clock.Now()
	life, err := s.hub.Store.KeepLease(s.ctx, lease)
	switch {
	case err == nil:
		s.mu.Lock()
		s.expires = asked.Add(life)
		s.mu.Unlock()
		return
	case !errors.Is(err, store.ErrLeaseGone):
		s.logged("lease_keep", err)
		return
	}
	s.hub.Log.WarnContext(s.ctx, "etcd lost the lease; the process is registered again", append(s.fields("lease_lost"), telemetry.Failure(err, rpcstatus.Reason(err), true)...)...)
	refusal, err := s.refusalOf(s.takeLease())
	switch {
	case refusal != nil:
		s.refuse(refusal)
	case err != nil:
		s.logged("lease_again", err)
	}
}

// reportsNow notes whether the process reports for its shard; who begins to is
// asked to raise the term.
func (s *stream) reportsNow(claims bool) {
	if !s.reign.claim(s, claims) {
		return
	}
	term := s.reign.leader.Term
	s.queue(&pb.LinkResponse{Kind: &pb.LinkResponse_RaiseTerm{RaiseTerm: &pb.RaiseTerm{Term: &pb.Term{Count: term.Count, Id: term.ID}}}})
}

// remaining is the rest of the lease's life, by what etcd last said.
func (s *stream) remaining(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.expires.Sub(now))
}
