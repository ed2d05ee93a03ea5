package transport_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/testkit"
	"github.com/cellquota/cellquota/internal/testkit/fault"
	"github.com/cellquota/cellquota/internal/transport"
)

// slow answers unary calls when it is let, and streams never.
func slow(t *testing.T, let <-chan struct{}) (*fault.Proxy, testgrpc.TestServiceClient) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	run(t, l, service{
		unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			select {
			case <-let:
				return &testgrpc.SimpleResponse{}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		stream: func(s testgrpc.TestService_FullDuplexCallServer) error { <-s.Context().Done(); return nil },
	}, transport.ServerOptions{Dev: true, Authenticator: operators()})
	wire := fault.New(t, l.Addr().String())
	conn, err := transport.Dial(wire.Addr(), transport.DialOptions{
		Dev: true, Token: func(context.Context) (string, error) { return alice, nil }, DefaultTimeout: time.Minute, Pulse: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return wire, testgrpc.NewTestServiceClient(conn)
}

// A call that takes long is left alone as long as the server lives.
func TestAPulseLeavesSlowCallsAlone(t *testing.T) {
	let := make(chan struct{})
	_, client := slow(t, let)
	done := make(chan error, 1)
	go func() { _, err := client.UnaryCall(testkit.Deadline(t), &testgrpc.SimpleRequest{}); done <- err }()
	testkit.Hold(t, 4*time.Second, "longer than an unanswered health check is waited for")
	close(let)
	if err := <-done; err != nil {
		t.Errorf("a slow call: %v", err)
	}
}

// A server that says nothing any more ends calls and streams within a second and
// the patience, and nobody claims that nothing happened.
func TestAPulseEndsCallsOfASilentServer(t *testing.T) {
	wire, client := slow(t, nil)
	ctx := testkit.Deadline(t)
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 2)
	go func() { _, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{}); results <- err }()
	go func() { _, err := stream.Recv(); results <- err }()
	testkit.Hold(t, 300*time.Millisecond, "both are under way")
	wire.Silence(fault.BothWays)
	from := time.Now()
	for range 2 {
		err := <-results
		if !errors.Is(err, transport.ErrSilent) || !errors.Is(err, rpcstatus.ErrDeadline) || !rpcstatus.MayHaveHappened(err) {
			t.Errorf("got %v, want ErrSilent", err)
		}
	}
	if took := time.Since(from); took > 6*time.Second {
		t.Errorf("noticed after %s", took)
	}
}
