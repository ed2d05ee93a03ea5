package routes

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// keysEvery is how often an edge looks whether it has other keys than it told of.
const keysEvery = time.Second

// speaker is what an edge says over one stream: revisions, and the keys that it has whenever they
// change.
type speaker struct {
	edge  string
	names func() []string
	clock clock.Clock

	mu     sync.Mutex // a stream takes one message at a time
	stream cq.RoutingService_WatchRoutesClient
	acked  int64
	told   []string
}

func (w *Watcher) speaker(stream cq.RoutingService_WatchRoutesClient) *speaker {
	names := w.deps.Keys
	if names == nil {
		names = func() []string { return nil }
	}
	return &speaker{edge: w.deps.EdgeID, names: names, clock: w.clock, stream: stream}
}

// acknowledge tells of a revision; 0 is the hello.
func (s *speaker) acknowledge(revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = revision
	return s.send()
}

func (s *speaker) send() error {
	s.told = s.names()
	return s.stream.Send(&cq.WatchRoutesRequest{EdgeId: s.edge, AckedRevision: s.acked, Keys: s.told})
}

// keys tells of other keys until ctx ends. A stream that takes nothing ends by itself.
func (s *speaker) keys(ctx context.Context) {
	tick := s.clock.NewTicker(keysEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
			s.changed()
		}
	}
}

func (s *speaker) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.told, s.names()) {
		_ = s.send() // the receiver hears why the stream is over
	}
}
