package link

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// stream is one registered process. Four goroutines serve it: receive, send,
// keep (the lease) and hand (to the planner); the reign waits for all of them.
type stream struct {
	hub   *Hub
	reign *reign
	grpc  pb.CellLinkService_LinkServer
	id    uint64
	ctx   context.Context //nolint:containedctx // the stream's own life
	cut   context.CancelCauseFunc

	first      chan *pb.LinkRequest // the hello
	registered chan struct{}        // closed when the fields below are set
	out        chan *pb.LinkResponse
	final      chan *pb.Refusal
	alive      chan *pb.KeepAlive
	in         chan *pb.LinkRequest
	stuckSince atomic.Int64 // unix nanoseconds at which the send under way began; 0: none

	cell         ids.CellID
	instance     core.Instance
	fenceVersion int64
	welcomed     core.CellState // as Welcome told it
	hello        *pb.Hello
	claims       bool // guarded by reign.mu

	told toldKeys

	mu       sync.Mutex
	lease    int64
	expires  time.Time
	revision int64 // of the cell's record that let it in
	faults   []string
	keys     []string // "USE/KID", as the last keep-alive named them
	heard    bool     // a keep-alive came
	acks     map[ids.CampaignID]ack
}

func (h *Hub) newStream(r *reign, g pb.CellLinkService_LinkServer) *stream {
	s := &stream{
		hub: h, reign: r, grpc: g, id: h.streamID(),
		first: make(chan *pb.LinkRequest, 1), registered: make(chan struct{}),
		out: make(chan *pb.LinkResponse, outQueue), final: make(chan *pb.Refusal, 1),
		alive: make(chan *pb.KeepAlive, 1), in: make(chan *pb.LinkRequest, inQueue),
		acks: map[ids.CampaignID]ack{},
	}
	s.ctx, s.cut = context.WithCancelCause(g.Context())
	return s
}

// refuse ends the stream with a reason that its process is told, if it reads.
func (s *stream) refuse(r *pb.Refusal) {
	select {
	case s.final <- r:
	default: // one reason is enough
		s.cutIfStuck()
	}
}

// queue puts a message behind the others; false when there is no room. A queue
// that stays full while one send hangs cuts the stream.
func (s *stream) queue(m *pb.LinkResponse) bool {
	select {
	case s.out <- m:
		return true
	default:
		s.cutIfStuck()
		return false
	}
}

func (s *stream) cutIfStuck() {
	if since := s.stuckSince.Load(); since != 0 && s.hub.Clock.Now().UnixNano()-since >= int64(s.hub.o.SlowAfter) {
		s.cut(errSlow)
	}
}

// send writes what is queued, and a refusal last.
func (s *stream) send() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case r := <-s.final:
			_ = s.grpc.Send(&pb.LinkResponse{Kind: &pb.LinkResponse_Refusal{Refusal: r}}) // the stream ends either way
			s.cut(errDone)
			return
		case m := <-s.out:
			s.stuckSince.Store(s.hub.Clock.Now().UnixNano())
			err := s.grpc.Send(m)
			s.stuckSince.Store(0)
			if err != nil {
				s.cut(err)
				return
			}
		}
	}
}

// receive reads until the stream ends. Nothing in it waits for etcd or for the
// planner, so that keep-alives are seen in time.
func (s *stream) receive() {
	for n := 0; ; n++ {
		m, err := s.grpc.Recv()
		switch {
		case errors.Is(err, io.EOF):
			s.cut(errDone)
			return
		case err != nil:
			s.cut(err)
			return
		case n == 0:
			s.first <- m
			select {
			case <-s.registered:
			case <-s.ctx.Done():
				return
			}
			continue
		}
		s.take(m)
	}
}

func (s *stream) take(m *pb.LinkRequest) {
	switch kind := m.GetKind().(type) {
	case *pb.LinkRequest_KeepAlive:
		s.beat(kind.KeepAlive)
	case *pb.LinkRequest_Report:
		if !s.reign.isReporter(s) {
			return
		}
		s.reign.reportedWitness(s, kind.Report.GetWitness())
		if s.reign.report(s, kind.Report, s.hub.Clock.Now()) {
			s.reign.events.OnReport(s.cell)
		}
	case *pb.LinkRequest_CampaignAck:
		s.acknowledge(kind.CampaignAck)
		s.reign.events.OnReport(s.cell)
	case *pb.LinkRequest_TermRaised, *pb.LinkRequest_DirectiveResult:
		select {
		case s.in <- m:
		default:
			s.cut(errOverrun)
		}
	case *pb.LinkRequest_Hello:
		s.cut(errSecondHello)
	}
}

// beat passes the newest keep-alive on; one that still waits is replaced.
func (s *stream) beat(k *pb.KeepAlive) {
	s.mu.Lock()
	s.faults = k.GetFaults()[:min(len(k.GetFaults()), maxFaults)]
	s.keys, s.heard = k.GetKeys()[:min(len(k.GetKeys()), maxKeys)], true
	s.mu.Unlock()
	for {
		select {
		case s.alive <- k:
			return
		default:
		}
		select {
		case <-s.alive:
		default:
		}
	}
}

// hand gives facts and results to the planner, in order.
func (s *stream) hand() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case m := <-s.in:
			if facts := m.GetTermRaised(); facts != nil {
				s.termRaised(facts)
				continue
			}
			err := s.reign.events.OnDirectiveResult(s.ctx, s.cell, s.asReporter(), m.GetDirectiveResult())
			s.logged("directive_result", err)
		}
	}
}

// termRaised checks that the facts are this leader's and hands them over.
func (s *stream) termRaised(facts *pb.TermRaised) {
	if !s.reign.isReporter(s) {
		return
	}
	if facts.GetTerm().GetCount() != s.reign.leader.Term.Count || facts.GetTerm().GetId() != s.reign.leader.Term.ID || facts.GetFenceVersion() != s.fenceVersion {
		s.hub.Log.WarnContext(s.ctx, "facts under another term or fence version are ignored", s.fields("facts_ignored")...)
		return
	}
	s.reign.facts(s, facts, s.hub.Clock.Now())
	err := s.reign.events.OnTermRaised(s.ctx, s.cell, s.asReporter(), facts)
	if errors.Is(err, core.ErrRestored) {
		s.refuse(refuse(pb.RefusalCode_REFUSAL_CODE_RESTORED, "%v", err))
		return
	}
	if err != nil {
		s.reign.claim(s, false) // asked again at the next keep-alive
		s.logged("term_raised", err)
	}
}

// facts keeps the stock rows that came with a raised term.
func (r *reign) facts(s *stream, facts *pb.TermRaised, now time.Time) {
	report := &pb.Report{FenceVersion: facts.GetFenceVersion()}
	for _, row := range facts.GetStocks() {
		report.Usages = append(report.Usages, &pb.UsageReport{Stock: row})
	}
	r.report(s, report, now)
}

func (s *stream) cellRevision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}
