package rpcstatus_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// failing is a service that answers every call with err.
type failing struct {
	testgrpc.UnimplementedTestServiceServer
	err error
}

func (f failing) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	return &testgrpc.Empty{}, f.err
}

func (f failing) FullDuplexCall(s testgrpc.TestService_FullDuplexCallServer) error {
	if err := s.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
		return err
	}
	return f.err
}

// serve runs the service over a pipe, with the interceptors on both sides.
func serve(t *testing.T, err error) (testgrpc.TestServiceClient, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	logger := slog.New(slog.NewJSONHandler(log, nil))
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.UnaryInterceptor(rpcstatus.UnaryServer(logger)), grpc.StreamInterceptor(rpcstatus.StreamServer(logger)))
	testgrpc.RegisterTestServiceServer(srv, failing{err: err})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	conn, dialErr := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(rpcstatus.UnaryClient()), grpc.WithStreamInterceptor(rpcstatus.StreamClient()))
	if dialErr != nil {
		t.Fatal(dialErr)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return testgrpc.NewTestServiceClient(conn), log
}

func TestUnaryBothDirections(t *testing.T) {
	err := rpcstatus.With(rpcstatus.ErrConflict, map[string]string{"have": "8"},
		[]rpcstatus.Violation{{Field: "expected_version", Rule: "is 7"}}, time.Second)
	client, log := serve(t, err)
	_, back := client.EmptyCall(t.Context(), &testgrpc.Empty{})
	if !errors.Is(back, rpcstatus.ErrConflict) || rpcstatus.Reason(back) != "CONFLICT" ||
		rpcstatus.Metadata(back)["have"] != "8" || len(rpcstatus.Violations(back)) != 1 || rpcstatus.RetryAfter(back) != time.Second {
		t.Fatalf("got %v", back)
	}
	if log.Len() != 0 {
		t.Errorf("a known error is the caller's to log: %s", log)
	}
}

func TestStreamBothDirections(t *testing.T) {
	client, _ := serve(t, rpcstatus.ErrUnavailable)
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, rpcstatus.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
}

func TestStreamsEndIsPlainEOF(t *testing.T) {
	client, _ := serve(t, nil)
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != io.EOF { //nolint:errorlint // the very value is promised
		t.Fatalf("got %v", err)
	}
}

func TestUnknownErrorsAreLoggedOnceAndHidden(t *testing.T) {
	secret := "dsn postgres://user:hunter2@db"
	client, log := serve(t, errors.New(secret))
	_, back := client.EmptyCall(t.Context(), &testgrpc.Empty{})
	if !errors.Is(back, rpcstatus.ErrInternal) || strings.Contains(status.Convert(back).String(), "hunter2") {
		t.Fatalf("got %v", status.Convert(back))
	}
	if n := strings.Count(log.String(), secret); n != 1 {
		t.Fatalf("logged %d times: %s", n, log)
	}
	if !strings.Contains(log.String(), "/grpc.testing.TestService/EmptyCall") {
		t.Errorf("the line must name the method: %s", log)
	}
}

func TestACallThatHasEndedIsNotInternal(t *testing.T) {
	log := new(bytes.Buffer)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := rpcstatus.UnaryServer(slog.New(slog.NewJSONHandler(log, nil)))(ctx, nil,
		&grpc.UnaryServerInfo{FullMethod: "/x/Y"}, func(context.Context, any) (any, error) {
			cancel()
			return nil, errors.New("driver: connection closed because of the context")
		})
	if !errors.Is(rpcstatus.FromStatus(err), rpcstatus.ErrCanceled) || !strings.Contains(log.String(), "rpc_call_ended") {
		t.Fatalf("got %v, %s", err, log)
	}
}
