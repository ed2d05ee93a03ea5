package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
)

func TestRecoveryNeverLeaksThePanic(t *testing.T) {
	const secret = "panic with password=hunter2"
	log := new(syncBuffer)
	o := pipe(t, service{
		unary:  func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) { panic(secret) },
		stream: func(testgrpc.TestService_FullDuplexCallServer) error { panic(secret) },
	}, transport.ServerOptions{Log: log.logger()})
	client := dial(t, "pipe", o)
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, streamErr := stream.Recv()
	for kind, err := range map[string]error{"unary": ask(t, client), "stream": streamErr} {
		if !errors.Is(err, rpcstatus.ErrInternal) || strings.Contains(status.Convert(err).String(), "hunter2") {
			t.Errorf("%s: %v", kind, status.Convert(err))
		}
	}
	text := log.String()
	if strings.Count(text, "rpc_panic") != 2 || !strings.Contains(text, secret) || !strings.Contains(text, "chain_test.go") {
		t.Errorf("the log has the text, the stack and the method: %s", text)
	}
	if !strings.Contains(text, "/grpc.testing.TestService/UnaryCall") {
		t.Errorf("the method is missing: %s", text)
	}
}

func TestAUnaryCallNeedsADeadline(t *testing.T) {
	reached := false
	o := pipe(t, service{
		unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			reached = true
			return &testgrpc.SimpleResponse{}, nil
		},
		stream: func(testgrpc.TestService_FullDuplexCallServer) error { return rpcstatus.ErrConflict },
	}, transport.ServerOptions{})
	o.DefaultTimeout = 0
	client := dial(t, "pipe", o)
	err := ask(t, client)
	if !errors.Is(err, rpcstatus.ErrInvalidArgument) || len(rpcstatus.Violations(err)) != 1 || reached {
		t.Fatalf("got %v, reached %v", err, reached)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{}); err != nil || !reached {
		t.Fatalf("with a deadline: %v", err)
	}
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, rpcstatus.ErrConflict) {
		t.Fatalf("a stream lives as long as it likes: %v", err)
	}
}

func TestDefaultTimeoutIsADeadline(t *testing.T) {
	var left time.Duration
	o := pipe(t, service{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return &testgrpc.SimpleResponse{}, nil
	}}, transport.ServerOptions{})
	o.DefaultTimeout = time.Hour
	if err := ask(t, dial(t, "pipe", o)); err != nil || left < 59*time.Minute || left > time.Hour {
		t.Fatalf("%v left, %v", left, err)
	}
}

func TestStatusMapBothWays(t *testing.T) {
	raised := rpcstatus.With(fmt.Errorf("cell-1: %w", rpcstatus.ErrExhausted), map[string]string{"queue": "100"}, nil, time.Second)
	client := dial(t, "pipe", pipe(t, service{unary: answer(raised)}, transport.ServerOptions{}))
	err := ask(t, client)
	if !errors.Is(err, rpcstatus.ErrExhausted) || rpcstatus.Metadata(err)["queue"] != "100" || rpcstatus.RetryAfter(err) != time.Second {
		t.Fatalf("got %v", err)
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("code %v", status.Code(err))
	}
}

func TestMessagesAreBounded(t *testing.T) {
	big := &testgrpc.Payload{Body: make([]byte, 2000)}
	o := pipe(t, service{unary: func(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		if r.GetPayload() == nil {
			return &testgrpc.SimpleResponse{Payload: big}, nil
		}
		return &testgrpc.SimpleResponse{}, nil
	}}, transport.ServerOptions{MaxMessage: 1000})
	o.MaxMessage = 4000
	client := dial(t, "pipe", o)
	cases := map[string]*testgrpc.SimpleRequest{
		"server receives": {Payload: big},
		"server sends":    {},
		"client sends":    {Payload: &testgrpc.Payload{Body: make([]byte, 5000)}},
	}
	for name, request := range cases {
		if _, err := client.UnaryCall(t.Context(), request); !errors.Is(err, rpcstatus.ErrExhausted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	small := &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: make([]byte, 900)}}
	if _, err := client.UnaryCall(t.Context(), small); err != nil {
		t.Errorf("within the bound: %v", err)
	}
}

// TestAServerMaySendMoreThanItTakes: MaxSend is a bound of its own.
func TestAServerMaySendMoreThanItTakes(t *testing.T) {
	big := &testgrpc.Payload{Body: make([]byte, 2000)}
	o := pipe(t, service{unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		return &testgrpc.SimpleResponse{Payload: big}, nil
	}}, transport.ServerOptions{MaxMessage: 1000, MaxSend: 3000})
	o.MaxMessage = 4000
	client := dial(t, "pipe", o)
	if _, err := client.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); err != nil {
		t.Errorf("it sends: %v", err)
	}
	if _, err := client.UnaryCall(t.Context(), &testgrpc.SimpleRequest{Payload: big}); !errors.Is(err, rpcstatus.ErrExhausted) {
		t.Errorf("it takes: %v", err)
	}
}

func TestClientBoundsWhatItReceives(t *testing.T) {
	o := pipe(t, service{unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		return &testgrpc.SimpleResponse{Payload: &testgrpc.Payload{Body: make([]byte, 2000)}}, nil
	}}, transport.ServerOptions{})
	o.MaxMessage = 1000
	err := ask(t, dial(t, "pipe", o))
	if !errors.Is(err, rpcstatus.ErrExhausted) || !rpcstatus.MayHaveHappened(err) {
		t.Fatalf("an answer too large says nothing about the work: %v", err)
	}
}

func TestCallsInFlightAreBounded(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	o := pipe(t, service{unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		entered <- struct{}{}
		<-release
		return &testgrpc.SimpleResponse{}, nil
	}}, transport.ServerOptions{MaxInflight: 1})
	client := dial(t, "pipe", o)
	first := make(chan error, 1)
	go func() {
		_, err := client.UnaryCall(t.Context(), &testgrpc.SimpleRequest{})
		first <- err
	}()
	<-entered
	err := ask(t, client)
	if !errors.Is(err, rpcstatus.ErrExhausted) || rpcstatus.RetryAfter(err) == 0 || rpcstatus.Metadata(err)["limit"] != "1" {
		t.Errorf("got %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Errorf("the first call: %v", err)
	}
	go func() { <-entered }()
	if err := ask(t, client); err != nil {
		t.Errorf("the slot is free again: %v", err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	client := dial(t, "pipe", pipe(t, service{unary: answer(nil)}, transport.ServerOptions{}))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", 20<<10))
	if _, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{}); err == nil {
		t.Fatal("20 KiB of metadata were taken")
	}
}

func TestRawGrpcClientsGetStatuses(t *testing.T) {
	l := bufconn.Listen(1 << 16)
	run(t, l, service{unary: answer(nil)}, transport.ServerOptions{Dev: true, Authenticator: operators()})
	conn, err := grpc.NewClient("passthrough:///pipe", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = testgrpc.NewTestServiceClient(conn).UnaryCall(t.Context(), &testgrpc.SimpleRequest{})
	if st := status.Convert(err); st.Code() != codes.InvalidArgument || len(st.Details()) != 2 {
		t.Fatalf("got %v", status.Convert(err))
	}
}
