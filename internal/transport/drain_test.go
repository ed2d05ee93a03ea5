package transport_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
)

func TestStreamsEndWhenTheServerStops(t *testing.T) {
	stopping := make(chan struct{})
	h := health.NewServer()
	l := bufconn.Listen(1 << 16)
	started := make(chan struct{})
	srv := run(t, l, service{stream: func(s testgrpc.TestService_FullDuplexCallServer) error {
		close(started)
		<-s.Context().Done()
		return s.Context().Err()
	}}, transport.ServerOptions{Dev: true, Authenticator: operators(), Stopping: stopping, Health: h})
	client := dial(t, "pipe", transport.DialOptions{
		Dev: true, Workload: "cell/cell-1",
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	})
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-started
	close(stopping)
	if err := transport.Drain(srv, h)(t.Context()); err != nil {
		t.Fatalf("drain: %v", err)
	}
	_, err = stream.Recv()
	if !errors.Is(err, rpcstatus.ErrUnavailable) || rpcstatus.RetryAfter(err) == 0 || rpcstatus.Reason(err) != "UNAVAILABLE" {
		t.Fatalf("got %v", err)
	}
	probe, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || probe.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health %v, %v", probe, err)
	}
}

func TestDrainCutsOffWhatDoesNotEnd(t *testing.T) {
	l := bufconn.Listen(1 << 16)
	started := make(chan struct{})
	srv := run(t, l, service{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}}, transport.ServerOptions{Dev: true, Authenticator: operators()})
	client := dial(t, "pipe", transport.DialOptions{
		Dev: true, Workload: "cell/cell-1", DefaultTimeout: time.Minute,
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	})
	called := make(chan error, 1)
	go func() {
		_, err := client.UnaryCall(t.Context(), &testgrpc.SimpleRequest{})
		called <- err
	}()
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := transport.Drain(srv, nil)(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drain: %v", err)
	}
	if err := <-called; err == nil || !rpcstatus.MayHaveHappened(err) {
		t.Errorf("a call cut off may have happened: %v", err)
	}
}
