package transport

import (
	"context"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
)

// Bounds that hold where an option is left at zero.
const (
	// DefaultMaxMessage bounds one message in either direction, in bytes.
	DefaultMaxMessage = 4 << 20
	// MaxSnapshot bounds what the control plane sends in one message, in bytes: the
	// routes of every campaign to an edge, the books of a campaign of 100,000
	// (cell, SKU) pairs to a command. Who asks it takes as much.
	MaxSnapshot = 64 << 20
	// DefaultMaxInflight bounds the unary calls a server runs at once.
	DefaultMaxInflight = 4096
	// DefaultMaxStreams bounds the calls of one connection.
	DefaultMaxStreams = 1024
	// DefaultKeepalive is how long a connection may be silent before it is
	// probed; grpc allows clients no less than 10 s.
	DefaultKeepalive = 10 * time.Second
	// keepaliveTimeout is how long a probe may stay unanswered.
	keepaliveTimeout = 3 * time.Second
	// maxRequestHeaders bounds what a caller sends beside the message, in bytes.
	maxRequestHeaders = 16 << 10
	// maxAnswerHeaders is larger: the details of an error come as a trailer.
	maxAnswerHeaders = 256 << 10
)

// ServerOptions say what a server is.
type ServerOptions struct {
	// Log receives panics and errors that are hidden from callers. Required.
	Log *slog.Logger
	// Dev allows plain text on this machine and turns reflection on.
	Dev bool
	// TLS is the server's identity; required unless Dev.
	TLS *TLS
	// Authenticator says who calls. Without one only health checks are answered.
	Authenticator Authenticator
	// Authorizer says whether a principal may call a method. Without one every
	// principal may call every method.
	Authorizer Authorizer
	// Failed, if not nil, is told of every call that was refused or whose handler
	// failed, after its principal was asked for: the zero one when nobody is known.
	// It sees the error before it is mapped, and must not block.
	Failed func(p Principal, fullMethod string, err error)
	// Stopping ends streams with UNAVAILABLE when it is closed
	// (lifecycle.Group.Stopping); unary calls run on.
	Stopping <-chan struct{}
	// Health is served as grpc.health.v1; nil makes one that serves from the start.
	Health *health.Server
	// MaxMessage, MaxInflight and MaxStreams override the defaults above.
	MaxMessage int
	// MaxSend bounds what the server sends where that is more than it takes; 0: MaxMessage.
	MaxSend     int
	MaxInflight int
	MaxStreams  uint32
	// Keepalive overrides DefaultKeepalive; at least 1 s.
	Keepalive time.Duration
	// Extra server options, for what a test needs.
	Extra []grpc.ServerOption
}

// DialOptions say how a server is reached.
type DialOptions struct {
	// Dev allows plain text on this machine.
	Dev bool
	// TLS is the caller's identity; required unless Dev.
	TLS *TLS
	// Peer is who the server must be by its certificate; zero: whoever has one for
	// the address.
	Peer Peer
	// Workload is "cell/ID" or "edge/ID": in development, where no certificate
	// says it, the name the caller goes by (see DevWorkloads).
	Workload string
	// Token, if not nil, is asked for the bearer token of each call.
	Token func(ctx context.Context) (string, error)
	// DefaultTimeout is given to unary calls that have no deadline; 0: none,
	// and the server refuses them.
	DefaultTimeout time.Duration
	// WaitForReady lets calls wait, within their deadline, for a connection
	// instead of failing at once.
	WaitForReady bool
	// Pulse, if not 0, is how often the server is asked for its health while a call
	// or a stream waits for it; one that does not answer within 3 s ends them with
	// ErrSilent. Without it a frozen server is noticed by the keep-alive alone.
	Pulse time.Duration
	// MaxMessage and Keepalive override the defaults above.
	MaxMessage int
	Keepalive  time.Duration
	// Dialer replaces the network, for a test on bufconn.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
	// Extra dial options, for what a test needs.
	Extra []grpc.DialOption
}

// or returns v, or fallback where v is zero.
func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
