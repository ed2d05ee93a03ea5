package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
)

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
