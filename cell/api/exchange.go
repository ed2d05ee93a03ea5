package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// maxAsks bounds a message in either direction.
const maxAsks = 1000

// Exchange implements AdmissionService: messages of asks in, answers out as they come.
func (s *Server) Exchange(stream pb.AdmissionService_ExchangeServer) error {
	if !s.set.Admits {
		return fmt.Errorf("%w: this process does not have the role admission", rpcstatus.ErrUnimplemented)
	}
	out := newOutgoing()
	sent := make(chan error, 1)
	go func() { sent <- s.deliver(stream, out) }()
	var running sync.WaitGroup
	err := s.accept(stream, out, &running)
	running.Wait() // every batch ends by itself: soon after the stream has
	out.close()
	return errors.Join(err, <-sent)
}

// accept reads messages and starts a goroutine for each, as many as the bounds allow.
func (s *Server) accept(stream pb.AdmissionService_ExchangeServer, out *outgoing, running *sync.WaitGroup) error {
	ctx := stream.Context()
	own := make(chan struct{}, s.set.StreamBatches)
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n := len(in.GetAsks()); n < 1 || n > maxAsks {
			return rpcstatus.Invalid(rpcstatus.Violation{Field: "asks", Rule: fmt.Sprintf("must be 1 to %d", maxAsks)})
		}
		if err := take(ctx, own, s.batches); err != nil {
			return err
		}
		came := s.Clock.Now()
		running.Go(func() {
			defer func() { <-own; <-s.batches }()
			one := batch{Server: s, came: came, answer: out.put}
			one.decide(ctx, in.GetAsks(), ctx.Done())
		})
	}
}

// take waits for a place in each of the queues.
func take(ctx context.Context, queues ...chan struct{}) error {
	for i, q := range queues {
		select {
		case q <- struct{}{}:
		case <-ctx.Done():
			for _, had := range queues[:i] {
				<-had
			}
			return ctx.Err()
		}
	}
	return nil
}

// deliver is the only goroutine that writes to the stream.
func (s *Server) deliver(stream pb.AdmissionService_ExchangeServer, out *outgoing) error {
	for {
		select {
		case <-out.some:
		case <-stream.Context().Done():
			return nil // accept reports why
		}
		if s.set.BatchWait > 0 {
			_ = s.Clock.Sleep(stream.Context(), s.set.BatchWait) // an end shows at the next send
		}
		for {
			answers, closed := out.take(maxAsks)
			if len(answers) == 0 {
				if closed {
					return nil
				}
				break
			}
			if err := stream.Send(&pb.ExchangeResponse{Answers: answers}); err != nil {
				return err
			}
		}
	}
}

// outgoing are the answers that wait to be sent. Its size is bounded by the asks being decided, since
// a message's place is given back only when its answers are in; putting never blocks, because the
// log's acknowledgements come from the driver's own goroutine.
type outgoing struct {
	some chan struct{} // of room one

	mu      sync.Mutex
	answers []*pb.Answer
	closed  bool
}

func newOutgoing() *outgoing { return &outgoing{some: make(chan struct{}, 1)} }

func (o *outgoing) put(answers ...*pb.Answer) {
	if len(answers) == 0 {
		return
	}
	o.mu.Lock()
	o.answers = append(o.answers, answers...)
	o.mu.Unlock()
	o.signal()
}

func (o *outgoing) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

func (o *outgoing) signal() {
	select {
	case o.some <- struct{}{}:
	default:
	}
}

func (o *outgoing) take(most int) (answers []*pb.Answer, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(len(o.answers), most)
	answers = o.answers[:n:n]
	o.answers = o.answers[n:]
	return answers, o.closed
}
