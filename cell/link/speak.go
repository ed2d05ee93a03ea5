package link

import (
	"context"
	"errors"
	"io"
	"time"

	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// speak is the only goroutine that writes to the stream. Nothing in it waits for a store, so that a
// slow shard does not cost the lease.
func (s *session) speak(ctx context.Context) error {
	keepalive, look := s.Clock.NewTicker(s.cfg.Keepalive), s.Clock.NewTicker(s.cfg.Report)
	defer keepalive.Stop()
	defer look.Stop()
	var sequence int64
	heard := s.Clock.Now()
	changed := s.Rules.Changed()
	if err := s.leftovers(); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.stop:
			return s.goodbye(ctx)
		case <-s.Bell.rung:
			return errOutdated
		case ack := <-s.acks:
			heard = s.Clock.Now()
			s.acknowledged(ack)
		case m := <-s.send:
			err = s.write(m)
		case <-s.unsent.some():
			err = s.leftovers()
		case <-changed:
			changed = s.Rules.Changed()
			err = s.campaigns()
		case <-look.C():
			err = s.campaigns()
		case <-keepalive.C():
			if s.Clock.Now().Sub(heard) > s.cfg.Timeout {
				return errSilent
			}
			sequence++
			err = s.keepalive(sequence)
		}
		if err != nil {
			return err
		}
	}
}

// farewell is how long the leader gets to hear a goodbye.
const farewell = 500 * time.Millisecond

// errGoodbye ends a stream that this process ended.
var errGoodbye = errors.New("this process stops")

// goodbye ends the stream in good order: the leader gives the lease back at once, and nobody waits for
// it to lapse. The receiver ends the session when the leader has answered.
func (s *session) goodbye(ctx context.Context) error {
	if err := s.stream.CloseSend(); err == nil {
		_ = s.Clock.Sleep(ctx, farewell) // ends early with the receiver
	}
	return errGoodbye
}

// write sends one message. A stream that the leader ended shows as EOF here; its reason comes out of
// the receiver.
func (s *session) write(m *pb.LinkRequest) error {
	err := s.stream.Send(m)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// maxUnanswered bounds the keep-alives whose answer is awaited.
const maxUnanswered = 64

func (s *session) keepalive(sequence int64) error {
	if len(s.sent) >= maxUnanswered {
		clear(s.sent) // answers to older ones are of no use any more
	}
	s.sent[sequence] = s.Clock.Now()
	alive := &pb.KeepAlive{Sequence: sequence, Reporter: s.reports.Load(), Faults: s.Faults()}
	if s.Keys != nil {
		alive.Keys = s.Keys()
	}
	return s.write(&pb.LinkRequest{Kind: &pb.LinkRequest_KeepAlive{KeepAlive: alive}})
}

// acknowledged counts the lease's life from when the keep-alive left.
func (s *session) acknowledged(ack *pb.KeepAliveAck) {
	at, ok := s.sent[ack.GetSequence()]
	if !ok {
		return
	}
	delete(s.sent, ack.GetSequence())
	s.Standing.kept(ack.GetCellState(), at.Add(time.Duration(ack.GetLeaseRemainingMs())*time.Millisecond))
}

// leftovers sends the results that are due.
func (s *session) leftovers() error {
	for {
		r, ok := s.unsent.take()
		if !ok {
			return nil
		}
		if err := s.stream.Send(&pb.LinkRequest{Kind: &pb.LinkRequest_DirectiveResult{DirectiveResult: r}}); err != nil {
			s.unsent.put(r)
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// campaignState is what was said of a campaign on this stream.
type campaignState struct {
	version int64
	ready   bool
	detail  string
}

// campaigns acknowledges what changed: a version that is served now, or one that is not any more.
func (s *session) campaigns() error {
	for _, c := range s.Rules.Current().All() {
		ready, detail := s.Ready(c)
		now := campaignState{c.Version, ready, detail}
		if s.told[string(c.ID)] == now {
			continue
		}
		if err := s.write(&pb.LinkRequest{Kind: &pb.LinkRequest_CampaignAck{CampaignAck: &pb.CampaignAck{
			CampaignId: string(c.ID), Version: c.Version, Ready: ready, Detail: detail,
		}}}); err != nil {
			return err
		}
		s.told[string(c.ID)] = now
	}
	return nil
}
