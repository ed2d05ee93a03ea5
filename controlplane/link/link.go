package link

import (
	"context"
	"errors"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
	"github.com/cellquota/cellquota/internal/transport"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Link implements CellLinkService.
func (h *Hub) Link(g pb.CellLinkService_LinkServer) error {
	r := h.enter()
	if r == nil {
		return g.Send(&pb.LinkResponse{Kind: &pb.LinkResponse_Refusal{Refusal: h.notLeader()}})
	}
	defer r.leave()
	s := h.newStream(r, g)
	defer s.cut(errDone)
	defer context.AfterFunc(r.ctx, func() { s.cut(errLeadershipEnded) })()
	r.wg.Go(s.receive)
	refusal, err := s.register()
	if err != nil {
		return err
	}
	if refusal != nil {
		h.Log.InfoContext(s.ctx, "registration refused", append(s.fields("link_refused"), "code", refusal.GetCode().String(), "detail", refusal.GetDetail())...)
		return g.Send(&pb.LinkResponse{Kind: &pb.LinkResponse_Refusal{Refusal: refusal}})
	}
	s.serve()
	return s.ended()
}

// serve runs a registered stream until it is cut.
func (s *stream) serve() {
	s.reign.add(s)
	defer s.reign.remove(s)
	s.queue(s.welcome())
	s.tellKeys(s.hub.View.Snapshot())
	close(s.registered)
	s.reportsNow(s.hello.GetReporter())
	s.hub.Log.InfoContext(s.ctx, "cell process registered", s.fields("link_opened")...)
	s.reign.wg.Go(s.send)
	s.reign.wg.Go(s.keep)
	s.reign.wg.Go(s.hand)
	<-s.ctx.Done()
}

// ended is what the process is told. A process that said goodbye, or was
// refused, gives its lease back at once; one that was cut off keeps it until it
// lapses.
func (s *stream) ended() error {
	cause := context.Cause(s.ctx)
	s.hub.Log.InfoContext(s.ctx, "cell process gone", append(s.fields("link_closed"), "cause", cause)...)
	if !errors.Is(cause, errDone) {
		return cause
	}
	s.mu.Lock()
	lease := s.lease
	s.mu.Unlock()
	if err := s.hub.Store.RevokeLease(context.WithoutCancel(s.ctx), lease); err != nil {
		s.logged("lease_revoke", err)
	}
	return nil
}

func (s *stream) welcome() *pb.LinkResponse {
	term := s.reign.leader.Term
	return &pb.LinkResponse{Kind: &pb.LinkResponse_Welcome{Welcome: &pb.Welcome{
		FenceVersion: s.fenceVersion, Term: &pb.Term{Count: term.Count, Id: term.ID},
		LeaseTtlMs: s.hub.o.LeaseTTL.Milliseconds(), CellState: pb.CellState(s.welcomed),
	}}}
}

// notLeader says who leads; it may be nobody for a moment.
func (h *Hub) notLeader() *pb.Refusal {
	leader, ok := h.View.Snapshot().Leader()
	if !ok {
		return refuse(pb.RefusalCode_REFUSAL_CODE_NOT_LEADER, "no replica leads now; try again")
	}
	r := refuse(pb.RefusalCode_REFUSAL_CODE_NOT_LEADER, "%s leads", leader.Address)
	r.LeaderAddress = leader.Address
	return r
}

// register waits for the hello, judges it and puts the process under a lease.
func (s *stream) register() (*pb.Refusal, error) {
	late := s.hub.Clock.NewTimer(s.hub.o.HelloWithin)
	defer late.Stop()
	select {
	case m := <-s.first:
		s.hello = m.GetHello()
	case <-late.C():
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
	if s.hello == nil {
		return nil, errNoHello
	}
	if err := s.identify(); err != nil {
		return nil, err
	}
	// Asked before a lease is granted, so that a refused process costs etcd nothing.
	cell, err := s.hub.Store.Cell(s.ctx, s.cell)
	if err == nil {
		refusal := judge(s.hello, s.reign.leader.Term, cell)
		switch {
		case refusal.GetCode() == pb.RefusalCode_REFUSAL_CODE_REGRESSED && cell.State.MayRegister(), refusal == nil:
			behind, err := s.history(s.ctx, cell)
			if err != nil {
				return s.refusalOf(err)
			}
			if behind != nil {
				return behind, nil
			}
		}
		if refusal != nil && refusal.GetCode() != pb.RefusalCode_REFUSAL_CODE_RESTORED {
			return refusal, nil // RESTORED is said only by who certainly leads: see takeLease
		}
		err = s.takeLease()
	}
	return s.refusalOf(err)
}

// identify reads who registers, and that it may speak for this cell.
func (s *stream) identify() error {
	h := s.hello
	cell, err := ids.ParseCellID(h.GetCellId())
	if err := core.Invalid(err); err != nil {
		return err
	}
	if len(h.GetInstanceId()) < 1 || len(h.GetInstanceId()) > 128 {
		return rpcstatus.Invalid(rpcstatus.Violation{Field: "instance_id", Rule: "must have 1 to 128 bytes"})
	}
	p, ok := transport.PrincipalFrom(s.ctx)
	if ok && p.Role == "cell" && p.Name != "cell/"+string(cell) {
		return rpcstatus.With(rpcstatus.ErrPermissionDenied, map[string]string{"principal": p.Name, "cell_id": string(cell)}, nil, 0)
	}
	s.cell = cell
	s.instance = core.Instance{
		Cell: cell, ID: h.GetInstanceId(), Group: h.GetInstanceGroup(), Address: h.GetAdvertiseAddress(),
		Roles: h.GetRoles(), ProgramVersion: h.GetProgramVersion(), SchemaStep: h.GetSchemaStep(),
	}
	return nil
}

// refusalOf tells refusals from errors.
func (s *stream) refusalOf(err error) (*pb.Refusal, error) {
	var no refused
	switch {
	case errors.As(err, &no):
		if no.GetCode() == pb.RefusalCode_REFUSAL_CODE_RESTORED {
			s.reign.events.OnRestored(s.cell, no.GetDetail())
		}
		return no.Refusal, nil
	case errors.Is(err, core.ErrUnknownCell):
		refusal := judgeUnknown(s.hello, s.cell)
		if refusal.GetCode() == pb.RefusalCode_REFUSAL_CODE_RESTORED {
			s.reign.events.OnRestored(s.cell, refusal.GetDetail())
		}
		return refusal, nil
	case errors.Is(err, core.ErrRestored):
		return refuse(pb.RefusalCode_REFUSAL_CODE_RESTORED, "%v", err), nil
	case errors.Is(err, core.ErrNotLeader):
		return s.hub.notLeader(), nil
	}
	return nil, err
}

func (s *stream) fields(event string) []any {
	return []any{telemetry.Event, event, telemetry.CellID, string(s.cell), "instance_id", s.instance.ID, telemetry.FenceVersion, s.fenceVersion, "stream", s.id}
}

func (s *stream) logged(event string, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.hub.Log.WarnContext(s.ctx, "link: "+event, append(s.fields(event), telemetry.Failure(err, rpcstatus.Reason(err), true)...)...)
	}
}
