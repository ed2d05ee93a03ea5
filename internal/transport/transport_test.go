package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
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
	if strings.Count(text, "rpc_panic") != 2 || !strings.Contains(text, secret) || !strings.Contains(text, "transport_test.go") {
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

func TestPrincipals(t *testing.T) {
	var seen transport.Principal
	o := pipe(t, service{
		unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			seen, _ = transport.PrincipalFrom(ctx)
			return &testgrpc.SimpleResponse{}, nil
		},
		stream: func(s testgrpc.TestService_FullDuplexCallServer) error {
			seen, _ = transport.PrincipalFrom(s.Context())
			return nil
		},
	}, transport.ServerOptions{Authorizer: func(_ context.Context, p transport.Principal, method string) error {
		if p.Role == "cell" || method != "/grpc.testing.TestService/UnaryCall" && p.Role == "sre" {
			return fmt.Errorf("%w: %s may not", rpcstatus.ErrPermissionDenied, p.Role)
		}
		return nil
	}})
	token := func(s string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return s, nil }
	}
	cases := map[string]struct {
		workload string
		token    func(context.Context) (string, error)
		want     error
		name     string
	}{
		"workload":              {"edge/edge-1", nil, nil, "edge/edge-1"},
		"operator":              {"", token(alice), nil, "alice"},
		"wrong token":           {"", token("guess"), rpcstatus.ErrUnauthenticated, ""},
		"nobody":                {"", nil, rpcstatus.ErrUnauthenticated, ""},
		"malformed workload":    {"edge", nil, rpcstatus.ErrUnauthenticated, ""},
		"not allowed":           {"cell/cell-1", nil, rpcstatus.ErrPermissionDenied, ""},
		"token source is empty": {"", token(""), rpcstatus.ErrUnauthenticated, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			seen = transport.Principal{}
			o.Workload, o.Token = c.workload, c.token
			err := ask(t, dial(t, "pipe", o))
			if !errors.Is(err, c.want) || seen.Name != c.name {
				t.Fatalf("got %v, seen %+v", err, seen)
			}
			if c.name == "alice" && !slices.Equal(seen.Regions, []string{"east"}) {
				t.Errorf("regions %v", seen.Regions)
			}
		})
	}
	o.Workload, o.Token = "edge/edge-1", nil
	stream, err := dial(t, "pipe", o).FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, _ = stream.Recv(); seen.Name != "edge/edge-1" {
		t.Errorf("a stream has a principal too: %+v", seen)
	}
	o.Workload, o.Token = "", token(alice)
	if stream, err = dial(t, "pipe", o).FullDuplexCall(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, rpcstatus.ErrPermissionDenied) {
		t.Errorf("a stream is authorised too: %v", err)
	}
}

func TestTwoTokensAreNone(t *testing.T) {
	c := transport.Caller{Metadata: metadata.Pairs("authorization", "Bearer a", "authorization", "Bearer b")}
	if _, ok := c.Bearer(); ok {
		t.Error("which one?")
	}
	c.Metadata = metadata.Pairs("authorization", "bearer abc")
	if token, ok := c.Bearer(); !ok || token != "abc" {
		t.Errorf("got %q, %v", token, ok)
	}
}

func TestWithoutAnAuthenticatorOnlyHealthAnswers(t *testing.T) {
	l := bufconn.Listen(1 << 16)
	run(t, l, service{unary: answer(nil)}, transport.ServerOptions{Dev: true})
	o := transport.DialOptions{
		Dev: true, DefaultTimeout: 10 * time.Second,
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	}
	if err := ask(t, dial(t, "pipe", o)); !errors.Is(err, rpcstatus.ErrUnauthenticated) {
		t.Errorf("got %v", err)
	}
	conn, err := transport.Dial("pipe", o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	got, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("got %v, %v", got, err)
	}
	reflected, err := reflectpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := &reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_ListServices{}}
	if err := reflected.Send(request); err != nil {
		t.Fatal(err)
	}
	listed, err := reflected.Recv()
	if err != nil || !strings.Contains(listed.String(), "grpc.testing.TestService") {
		t.Errorf("reflection in development: %v, %v", listed, err)
	}
}

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

func TestPlainTextIsRefusedUnlessDevAndLoopback(t *testing.T) {
	if _, err := transport.Listen("127.0.0.1:0", transport.ServerOptions{}); !errors.Is(err, transport.ErrPlainText) {
		t.Errorf("listen without dev: %v", err)
	}
	if _, err := transport.Listen("0.0.0.0:0", transport.ServerOptions{Dev: true}); !errors.Is(err, transport.ErrPlainText) {
		t.Errorf("listen on all interfaces: %v", err)
	}
	for addr, o := range map[string]transport.DialOptions{
		"127.0.0.1:1":    {},
		"10.0.0.1:1":     {Dev: true},
		"[2001:db8::]:1": {Dev: true},
	} {
		if _, err := transport.Dial(addr, o); !errors.Is(err, transport.ErrPlainText) {
			t.Errorf("dial %s: %v", addr, err)
		}
	}
	for _, addr := range []string{"", "nohost", ":1", "host:"} {
		if _, err := transport.Dial(addr, transport.DialOptions{Dev: true}); err == nil || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("dial %q: %v", addr, err)
		}
	}
	if _, err := transport.DialAny(nil, transport.DialOptions{Dev: true}); err == nil {
		t.Error("no address: no error")
	}
}

func TestAServerWithoutTLSAndDevRefusesEveryConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	run(t, l, service{unary: answer(nil)}, transport.ServerOptions{Authenticator: operators()})
	client := dial(t, l.Addr().String(), transport.DialOptions{Dev: true, Workload: "cell/cell-1", DefaultTimeout: 10 * time.Second})
	if err := ask(t, client); !errors.Is(err, rpcstatus.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
}

// foreign is a connection whose other end claims to be on another machine.
type foreign struct{ net.Conn }

func (foreign) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

func TestANameThatLeadsElsewhereIsRefusedAtTheHandshake(t *testing.T) {
	o := pipe(t, service{unary: answer(nil)}, transport.ServerOptions{})
	inner := o.Dialer
	o.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := inner(ctx, addr)
		return foreign{conn}, err
	}
	err := ask(t, dial(t, "cell.example", o))
	if !errors.Is(err, rpcstatus.ErrUnavailable) || !strings.Contains(err.Error(), "plain text is refused") {
		t.Fatalf("got %v", err)
	}
}

func TestDialAnyFindsTheOneThatAnswers(t *testing.T) {
	gone, err := transport.Listen("127.0.0.1:0", transport.ServerOptions{Dev: true})
	if err != nil {
		t.Fatal(err)
	}
	addrs := []string{gone.Addr().String()}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	var servers []*grpc.Server
	for i := range 2 {
		o := transport.ServerOptions{Dev: true, Authenticator: operators()}
		l, err := transport.Listen("127.0.0.1:0", o)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("server-%d", i)
		servers = append(servers, run(t, l, service{unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			return &testgrpc.SimpleResponse{Username: name}, nil
		}}, o))
		addrs = append(addrs, l.Addr().String())
	}
	conn, err := transport.DialAny(addrs, transport.DialOptions{
		Dev: true, Workload: "cell/cell-1", WaitForReady: true, DefaultTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := testgrpc.NewTestServiceClient(conn)
	for i, srv := range servers {
		got, err := client.UnaryCall(t.Context(), &testgrpc.SimpleRequest{})
		if err != nil || got.GetUsername() != fmt.Sprintf("server-%d", i) {
			t.Fatalf("got %v, %v", got, err)
		}
		srv.Stop()
	}
}

func TestHeadersAreBounded(t *testing.T) {
	client := dial(t, "pipe", pipe(t, service{unary: answer(nil)}, transport.ServerOptions{}))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", 20<<10))
	if _, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{}); err == nil {
		t.Fatal("20 KiB of metadata were taken")
	}
}

func TestForgedWorkloadsNeedThisMachine(t *testing.T) {
	// The plain client says it is a cell; the authenticator looks at where it comes from.
	auth := transport.DevWorkloads()
	md := metadata.Pairs("cellquota-dev-workload", "cell/cell-1")
	remote := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	here := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	for name, c := range map[string]struct {
		caller transport.Caller
		ok     bool
	}{
		"here":      {transport.Caller{Metadata: md, Addr: here}, true},
		"elsewhere": {transport.Caller{Metadata: md, Addr: remote}, false},
		"encrypted": {transport.Caller{Metadata: md, Addr: here, Encrypted: true}, false},
		"nowhere":   {transport.Caller{Metadata: md}, false},
	} {
		p, err := auth(t.Context(), c.caller)
		if (err == nil) != c.ok || c.ok && (p.Name != "cell/cell-1" || p.Role != "cell") {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
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
