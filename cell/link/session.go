package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellquota/cellquota/cell/shard"
	"github.com/cellquota/cellquota/cell/shard/migrations"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// queued bounds directives that wait for the worker; beyond it the stream's flow control holds the
// leader back.
const queued = 256

// session is one stream.
type session struct {
	*Link
	stream pb.CellLinkService_LinkClient
	stop   <-chan struct{} // the process ends

	work chan *pb.LinkResponse // directives and RaiseTerm, in the order in which they came
	send chan *pb.LinkRequest  // what worker and reporter have to say, beside results
	acks chan *pb.KeepAliveAck
	sent map[int64]time.Time      // by sequence: when a keep-alive left
	told map[string]campaignState // campaign acknowledgements sent on this stream

	reports atomic.Bool // this process holds the shard's reporter lock
	usage   reports     // the reporting goroutine's
}

// errSilent ends a stream whose leader says nothing.
var errSilent = errors.New("the leader is silent")

// session registers and serves one stream to its end.
func (l *Link) session(parent context.Context, client pb.CellLinkServiceClient) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent)) // a stream says goodbye after parent's end
	defer cancel()
	defer l.Shard.GiveUpReporterLock() // without a stream there is nobody to report to
	hello, err := l.hello(parent)
	if err != nil {
		return err
	}
	stream, err := client.Link(ctx)
	if err != nil {
		return err
	}
	unregistered := context.AfterFunc(parent, cancel)
	began := l.Clock.Now()
	if err := stream.Send(&pb.LinkRequest{Kind: &pb.LinkRequest_Hello{Hello: hello}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	welcome, err := l.register(ctx, cancel, stream)
	if err != nil {
		return err
	}
	if !unregistered() {
		return parent.Err()
	}
	if !l.Shard.Trust(l.shown) {
		return errOutdated // the shard changed behind the hello
	}
	l.welcome(ctx, welcome, began)
	s := &session{
		Link: l, stream: stream, stop: parent.Done(), work: make(chan *pb.LinkResponse, queued), send: make(chan *pb.LinkRequest),
		acks: make(chan *pb.KeepAliveAck, 16), sent: map[int64]time.Time{}, told: map[string]campaignState{},
	}
	s.reports.Store(hello.GetReporter())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { defer cancel(); return s.receive(ctx) })
	group.Go(func() error { defer cancel(); return s.apply(ctx) })
	group.Go(func() error { defer cancel(); return s.speak(ctx) })
	group.Go(func() error { defer cancel(); return s.report(ctx) })
	if err := group.Wait(); parent.Err() == nil {
		return err
	}
	return nil
}

// hello reads the shard's facts anew for each registration.
func (l *Link) hello(ctx context.Context) (*pb.Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	var err error
	if l.shown, err = l.Shard.Observe(ctx); err != nil {
		return nil, fmt.Errorf("read how far the shard came: %w", err)
	}
	witness, err := witnessOf(l.shown)
	if err != nil {
		return nil, err
	}
	fence, err := l.Shard.ReadFence(ctx)
	if err != nil && !errors.Is(err, shard.ErrNoFence) { // without a row it is new, or was begun anew: the leader knows
		return nil, fmt.Errorf("read the fence row: %w", err)
	}
	identity, err := l.Shard.Identity(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the shard's identity: %w", err)
	}
	reporter := false
	if fence.InstanceGroup == l.cfg.Group { // another group's processes must find the lock free
		if reporter, err = l.Shard.TryReporterLock(ctx); err != nil {
			return nil, fmt.Errorf("reporter lock: %w", err)
		}
	}
	if fence.Version > 0 {
		l.Standing.SawFence(fence)
	}
	l.seen = fence.Version
	step, err := migrations.Latest()
	if err != nil {
		return nil, err
	}
	hello := &pb.Hello{
		CellId: string(l.cfg.Cell), InstanceId: l.cfg.Instance, InstanceGroup: l.cfg.Group, AdvertiseAddress: l.cfg.Advertise,
		Roles: l.cfg.Roles, ProgramVersion: telemetry.Version(), FenceVersion: fence.Version, FenceState: fenceState(fence.State),
		Term: &pb.Term{Count: fence.TermCount, Id: fence.TermID}, ShardIdentity: identity, Reporter: reporter,
		FenceInstanceGroup: fence.InstanceGroup, Witness: witness, SchemaStep: step,
	}
	if doubt := l.Shard.Doubt(); doubt.Lacks {
		hello.Lacks, hello.LacksVersion = doubt.Why, doubt.Version
	}
	return hello, nil
}

func fenceState(s shard.FenceState) pb.FenceState {
	return pb.FenceState(pb.FenceState_value["FENCE_STATE_"+string(s)])
}

// register waits for the leader's answer to Hello.
func (l *Link) register(ctx context.Context, cancel context.CancelFunc, stream pb.CellLinkService_LinkClient) (*pb.Welcome, error) {
	silent := make(chan struct{})
	done := make(chan struct{})
	defer close(done)
	go func() { // ends with this call
		timer := l.Clock.NewTimer(l.cfg.Timeout)
		defer timer.Stop()
		select {
		case <-timer.C():
			close(silent)
			cancel()
		case <-done:
		case <-ctx.Done():
		}
	}()
	first, err := stream.Recv()
	select {
	case <-silent:
		return nil, errSilent
	default:
	}
	if err != nil {
		return nil, err
	}
	switch k := first.GetKind().(type) {
	case *pb.LinkResponse_Welcome:
		return k.Welcome, nil
	case *pb.LinkResponse_Refusal:
		return nil, &Refused{Code: k.Refusal.GetCode(), Detail: k.Refusal.GetDetail(), Leader: k.Refusal.GetLeaderAddress()}
	default:
		return nil, fmt.Errorf("the leader began with %T", k)
	}
}

// welcome takes the right to write that the leader grants. The lease's life is counted from before
// the question, so that this process never believes in it longer than the leader does.
func (l *Link) welcome(ctx context.Context, w *pb.Welcome, asked time.Time) {
	l.Standing.welcomed(w.GetCellState(), asked.Add(time.Duration(w.GetLeaseTtlMs())*time.Millisecond))
	want := shard.Writer{FenceVersion: w.GetFenceVersion(), Group: l.cfg.Group}
	if have, ok := l.Shard.Writer(); !ok || have != want {
		l.Shard.SetWriter(want)
	}
	l.Logger.InfoContext(ctx, "registered", telemetry.Event, "link_registered", telemetry.FenceVersion, w.GetFenceVersion(),
		"term", w.GetTerm().GetCount(), "cell_state", w.GetCellState().String())
}

// receive hands what comes in to whom it concerns.
func (s *session) receive(ctx context.Context) error {
	for {
		in, err := s.stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the leader ended the stream")
		}
		if err != nil {
			return err
		}
		switch k := in.GetKind().(type) {
		case *pb.LinkResponse_KeepAliveAck:
			select {
			case s.acks <- k.KeepAliveAck:
			case <-ctx.Done():
				return ctx.Err()
			}
		case *pb.LinkResponse_Directive, *pb.LinkResponse_RaiseTerm:
			select {
			case s.work <- in:
			case <-ctx.Done():
				return ctx.Err()
			}
		case *pb.LinkResponse_KeyStates:
			if s.KeyStates != nil {
				s.KeyStates(k.KeyStates.GetKeys())
			}
		case *pb.LinkResponse_Refusal:
			return &Refused{Code: k.Refusal.GetCode(), Detail: k.Refusal.GetDetail(), Leader: k.Refusal.GetLeaderAddress()}
		default:
			s.Logger.WarnContext(ctx, "the leader said what this program does not know", telemetry.Event, "link_unknown_message", "kind", fmt.Sprintf("%T", k))
		}
	}
}
