package transport_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
)

// service is a server's handlers, as a test wants them.
type service struct {
	testgrpc.UnimplementedTestServiceServer
	unary  func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error)
	stream func(testgrpc.TestService_FullDuplexCallServer) error
}

func (s service) UnaryCall(ctx context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return s.unary(ctx, r)
}

func (s service) FullDuplexCall(st testgrpc.TestService_FullDuplexCallServer) error {
	return s.stream(st)
}

// syncBuffer is a log that is written and read by different goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *syncBuffer) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(b, nil)) }

const alice = "operator-token"

// operators knows alice by her token, and workloads of development.
func operators() transport.Authenticator {
	return transport.FirstOf(
		transport.DevWorkloads(),
		func(_ context.Context, c transport.Caller) (transport.Principal, error) {
			token, ok := c.Bearer()
			if !ok || token != alice {
				return transport.Principal{}, rpcstatus.ErrUnauthenticated
			}
			return transport.Principal{Name: "alice", Role: "sre", Regions: []string{"east"}}, nil
		})
}

// run serves on l until the test ends.
func run(t *testing.T, l net.Listener, s service, o transport.ServerOptions) *grpc.Server {
	t.Helper()
	srv := transport.NewServer(o)
	testgrpc.RegisterTestServiceServer(srv, s)
	served := make(chan error, 1)
	go func() { served <- transport.Serve(srv, l)(context.Background()) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return srv
}

// pipe serves s in memory and returns connected dial options.
func pipe(t *testing.T, s service, o transport.ServerOptions) transport.DialOptions {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	o.Dev = true
	if o.Authenticator == nil {
		o.Authenticator = operators()
	}
	run(t, l, s, o)
	return transport.DialOptions{
		Dev: true, Workload: "edge/edge-1", DefaultTimeout: 10 * time.Second,
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	}
}

func dial(t *testing.T, addr string, o transport.DialOptions) testgrpc.TestServiceClient {
	t.Helper()
	conn, err := transport.Dial(addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return testgrpc.NewTestServiceClient(conn)
}

// answer is a handler that returns err.
func answer(err error) func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		return &testgrpc.SimpleResponse{}, err
	}
}

func ask(t *testing.T, c testgrpc.TestServiceClient) error {
	t.Helper()
	_, err := c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{})
	return err
}
