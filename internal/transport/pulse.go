package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// ErrSilent: the server took the call, or the connection, and then answered no
// health check either: its process is frozen or cut off. The call may have
// happened.
var ErrSilent = fmt.Errorf("%w: the server answers no health check", rpcstatus.ErrDeadline)

// pulsePatience is how long one health check may stay unanswered.
const pulsePatience = 3 * time.Second

// pulse feels whether a server still answers while calls wait for it. A frozen
// process keeps its connections: its kernel acknowledges every byte, and gRPC's own
// keep-alive comes every ten seconds at the most. So while a call is under way the
// server is asked for its health, which needs no credentials and no store; when
// that is not answered, every call on the connection ends with ErrSilent.
//
// One goroutine per connection, and only while calls are under way.
type pulse struct {
	every time.Duration
	clock clock.Clock

	mu    sync.Mutex
	last  uint64
	calls map[uint64]context.CancelCauseFunc
	stop  func() // ends the goroutine and waits for it; nil: none runs
}

func newPulse(every time.Duration) *pulse {
	return &pulse{every: every, clock: clock.System(), calls: map[uint64]context.CancelCauseFunc{}}
}

// join puts a call under watch until leave, which may be called again.
func (p *pulse) join(ctx context.Context, conn *grpc.ClientConn) (watched context.Context, leave func()) {
	watched, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	id := p.last
	p.calls[id] = cancel
	if p.stop == nil {
		p.stop = p.start(ctx, conn)
	}
	return watched, func() {
		cancel(nil)
		if stop := p.part(id); stop != nil {
			stop()
		}
	}
}

// start begins to beat; stop ends that, and waits for it.
func (p *pulse) start(ctx context.Context, conn *grpc.ClientConn) (stop func()) {
	beating, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.beat(beating, conn)
	}()
	return func() { end(); <-ended }
}

// part takes a call out. The last one gets what stops the beat; again gets nothing. It is called without
// the lock, which the beat may want once more.
func (p *pulse) part(id uint64) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, id)
	if len(p.calls) == 0 {
		stop, p.stop = p.stop, nil
	}
	return stop
}

// beat asks again and again until the last call is over.
func (p *pulse) beat(ctx context.Context, conn *grpc.ClientConn) {
	for p.clock.Sleep(ctx, p.every) == nil {
		ask, cancel := context.WithTimeout(ctx, pulsePatience)
		_, err := healthpb.NewHealthClient(conn).Check(ask, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(false))
		silent := ctx.Err() == nil && errors.Is(err, rpcstatus.ErrDeadline)
		cancel()
		if silent {
			p.cut()
		}
	}
}

// cut ends every call under way.
func (p *pulse) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.calls {
		cancel(ErrSilent)
	}
}

// unary watches one call.
func (p *pulse) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == healthpb.Health_Check_FullMethodName {
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	watched, leave := p.join(ctx, conn)
	defer leave()
	return silence(watched, invoke(watched, method, req, reply, conn, opts...))
}

// stream watches one stream to its end.
func (p *pulse) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	watched, leave := p.join(ctx, conn)
	s, err := open(watched, desc, conn, method, opts...)
	if err != nil {
		leave()
		return nil, silence(watched, err)
	}
	context.AfterFunc(s.Context(), leave) //nolint:contextcheck // the stream's own, which ends with it
	return pulsed{s, watched}, nil
}

// silence puts the cause in the place of the cancelling that it shows as.
func silence(watched context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(watched), ErrSilent) {
		return ErrSilent
	}
	return err
}

type pulsed struct {
	grpc.ClientStream
	watched context.Context //nolint:containedctx // a stream's own
}

func (s pulsed) SendMsg(m any) error { return silence(s.watched, s.ClientStream.SendMsg(m)) }
func (s pulsed) RecvMsg(m any) error { return silence(s.watched, s.ClientStream.RecvMsg(m)) }
