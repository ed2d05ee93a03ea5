package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// NewServer returns a server with the chain of the package comment and health;
// the caller registers its services and runs Serve. It cannot fail: a server
// that lacks TLS and Dev refuses every connection (Listen says so beforehand).
func NewServer(o ServerOptions) *grpc.Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Health == nil {
		o.Health = health.NewServer()
	}
	srv := grpc.NewServer(append(o.bounds(), append(o.chain(), o.Extra...)...)...)
	healthpb.RegisterHealthServer(srv, o.Health)
	if o.Dev {
		// Reflection lists the services when it is asked, also later ones.
		reflection.Register(srv)
	}
	return srv
}

// chain lists what a call passes, outermost first.
func (o ServerOptions) chain() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(secure(o.TLS, o.Dev, Peer{})),
		grpc.StatsHandler(otelgrpc.NewServerHandler()),
		grpc.ChainUnaryInterceptor(
			recovery.UnaryServerInterceptor(recovered(o.Log)),
			rpcstatus.UnaryServer(o.Log),
			deadlineRequired,
			inflight(or(o.MaxInflight, DefaultMaxInflight)),
			principalUnary(o),
		),
		grpc.ChainStreamInterceptor(
			recovery.StreamServerInterceptor(recovered(o.Log)),
			rpcstatus.StreamServer(o.Log),
			endOnStop(o.Stopping),
			principalStream(o),
		),
	}
}

func (o ServerOptions) bounds() []grpc.ServerOption {
	message, probe := or(o.MaxMessage, DefaultMaxMessage), or(o.Keepalive, DefaultKeepalive)
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(message),
		grpc.MaxSendMsgSize(or(o.MaxSend, message)),
		grpc.MaxHeaderListSize(maxRequestHeaders),
		grpc.MaxConcurrentStreams(or(o.MaxStreams, DefaultMaxStreams)),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: probe, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: DefaultKeepalive / 2, PermitWithoutStream: true,
		}),
	}
}

// Listen takes addr for a server with these options. Without TLS it refuses,
// with ErrPlainText, unless Dev is set and the address is on loopback.
func Listen(addr string, o ServerOptions) (net.Listener, error) {
	if o.TLS == nil && !o.Dev {
		return nil, fmt.Errorf("grpc_addr %s: %w", addr, ErrPlainText)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("grpc_addr: %w", err)
	}
	if o.TLS == nil && !local(l.Addr()) {
		return nil, errors.Join(fmt.Errorf("grpc_addr %s: %w", addr, ErrPlainText), l.Close())
	}
	return l, nil
}

// Serve returns the member of a lifecycle.Group that runs srv on l. It ends with
// nil when srv was drained or stopped, and stops it when its context ends.
func Serve(srv *grpc.Server, l net.Listener) func(context.Context) error {
	return func(ctx context.Context) error {
		end := context.AfterFunc(ctx, srv.Stop)
		defer end()
		if err := srv.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("grpc server %v: %w", l.Addr(), err)
		}
		return nil
	}
}

// Drain returns the stop hook of a lifecycle.Group: health turns NOT_SERVING (h
// may be nil), no new call is taken, running ones finish. Calls that still run
// when its context ends are cut off, which is an error.
func Drain(srv *grpc.Server, h *health.Server) func(context.Context) error {
	return func(ctx context.Context) error {
		if h != nil {
			h.Shutdown()
		}
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			srv.GracefulStop()
		}()
		select {
		case <-drained:
			return nil
		case <-ctx.Done():
			srv.Stop() // makes GracefulStop return
			<-drained
			return fmt.Errorf("calls were cut off: %w", ctx.Err())
		}
	}
}
