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
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/transport"
)

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
		srv.GracefulStop()
	}
}
