package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// RoutesFollower follows WatchRoutes for one edge.
type RoutesFollower struct {
	Client *Client
	EdgeID string
	Clock  clock.Clock
	Log    *slog.Logger
	// Apply takes one message over: the first of every stream is Full. When it
	// returns nil the message's revision is acknowledged; an error ends the stream
	// and a new one begins with a full snapshot.
	Apply func(*pb.WatchRoutesResponse) error
	// Connected is told when a stream has delivered its first message, and when it
	// has ended; nil: nobody asks.
	Connected func(bool)
}

// Run follows until ctx ends and returns nil then. Between two streams it waits,
// jittered, 100 ms to 5 s.
func (f *RoutesFollower) Run(ctx context.Context) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.RandomizationFactor = 100*time.Millisecond, 5*time.Second, 0.5
	pause.Reset()
	for ctx.Err() == nil {
		delivered, err := f.stream(ctx)
		if ctx.Err() != nil {
			break
		}
		f.told(false)
		if delivered {
			pause.Reset()
		}
		f.Log.WarnContext(ctx, "routes are not followed", telemetry.Event, "routes_stream_ended", telemetry.Error, err, telemetry.Retryable, true)
		if f.Clock.Sleep(ctx, pause.NextBackOff()) != nil {
			break
		}
	}
	return nil
}

func (f *RoutesFollower) stream(ctx context.Context) (delivered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.Client.Routing.WatchRoutes(ctx)
	if err != nil {
		return false, err
	}
	if err := stream.Send(&pb.WatchRoutesRequest{EdgeId: f.EdgeID}); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return delivered, err
		}
		if err := f.Apply(m); err != nil {
			return delivered, fmt.Errorf("routes at revision %d: %w", m.GetRevision(), err)
		}
		if !delivered {
			delivered = true
			f.told(true)
		}
		if err := stream.Send(&pb.WatchRoutesRequest{EdgeId: f.EdgeID, AckedRevision: m.GetRevision()}); err != nil && !errors.Is(err, io.EOF) {
			return delivered, err
		}
	}
}

func (f *RoutesFollower) told(connected bool) {
	if f.Connected != nil {
		f.Connected(connected)
	}
}
