package transport

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// Dial returns a connection to the server at addr ("host:port"; "bufconn" with a
// Dialer of a test). It does not wait for the server: the first call connects,
// and lost connections come back by themselves within seconds. Errors of calls
// are sentinels (rpcstatus.FromStatus). Close it when done.
func Dial(addr string, o DialOptions) (*grpc.ClientConn, error) {
	if o.Dialer != nil {
		return connect("passthrough:///"+addr, o)
	}
	return DialAny([]string{addr}, o)
}

// DialAny returns a connection to one of several equal servers: the first that
// answers, and another one when that is lost.
func DialAny(addrs []string, o DialOptions) (*grpc.ClientConn, error) {
	if len(addrs) == 0 {
		return nil, errors.New("dial: no address")
	}
	state := resolver.State{}
	for _, addr := range addrs {
		host, err := checkAddr(addr, o)
		if err != nil {
			return nil, err
		}
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{
			Addresses: []resolver.Address{{Addr: addr, ServerName: host}},
		})
	}
	list := manual.NewBuilderWithScheme("cellquota")
	list.InitialState(state)
	o.Extra = append([]grpc.DialOption{grpc.WithResolvers(list)}, o.Extra...)
	return connect("cellquota:///"+strings.Join(addrs, ","), o)
}

// checkAddr refuses early what the handshake would refuse: an address that is
// plainly not on this machine.
func checkAddr(addr string, o DialOptions) (host string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("dial %q: must be host:port", addr)
	}
	if o.TLS != nil {
		return host, nil
	}
	ip := net.ParseIP(host)
	if !o.Dev || (ip != nil && !ip.IsLoopback()) {
		return "", fmt.Errorf("dial %s: %w", addr, ErrPlainText)
	}
	return host, nil
}

func connect(target string, o DialOptions) (*grpc.ClientConn, error) {
	if o.TLS == nil && !o.Dev {
		return nil, fmt.Errorf("dial %s: %w", target, ErrPlainText)
	}
	opts := append(o.bounds(),
		grpc.WithTransportCredentials(secure(o.TLS, o.Dev, o.Peer)),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler()),
	)
	if o.Pulse > 0 { // outermost: what it says is a sentinel already
		p := newPulse(o.Pulse)
		opts = append(opts, grpc.WithChainUnaryInterceptor(p.unary), grpc.WithChainStreamInterceptor(p.stream))
	}
	opts = append(opts,
		grpc.WithChainUnaryInterceptor(rpcstatus.UnaryClient(), defaultTimeout(o.DefaultTimeout)),
		grpc.WithChainStreamInterceptor(rpcstatus.StreamClient()),
	)
	if o.Token != nil {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{o.Token, o.Dev && o.TLS == nil}))
	}
	if o.Workload != "" && o.TLS == nil {
		opts = append(opts, grpc.WithPerRPCCredentials(workload(o.Workload)))
	}
	if o.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(o.Dialer))
	}
	conn, err := grpc.NewClient(target, append(opts, o.Extra...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	return conn, nil
}

func (o DialOptions) bounds() []grpc.DialOption {
	message, probe := or(o.MaxMessage, DefaultMaxMessage), or(o.Keepalive, DefaultKeepalive)
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(message), grpc.MaxCallSendMsgSize(message),
			grpc.WaitForReady(o.WaitForReady)),
		grpc.WithMaxHeaderListSize(maxAnswerHeaders),
		grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: probe, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
	}
}
