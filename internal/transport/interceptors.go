package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"

	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// recovered turns a panic into INTERNAL and logs it with its stack.
func recovered(log *slog.Logger) recovery.Option {
	return recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		method, _ := grpc.Method(ctx)
		log.ErrorContext(ctx, "handler panicked", "event", "rpc_panic", "method", method,
			"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		return rpcstatus.ToStatus(rpcstatus.ErrInternal)
	})
}

// errNoDeadline tells a caller's programmer what is missing.
var errNoDeadline = rpcstatus.With(
	fmt.Errorf("%w: every unary call needs a deadline", rpcstatus.ErrInvalidArgument),
	nil, []rpcstatus.Violation{{Field: "grpc-timeout", Rule: "must be set"}}, 0)

func deadlineRequired(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if _, ok := ctx.Deadline(); !ok {
		return nil, errNoDeadline
	}
	return handler(ctx, req)
}

// inflight refuses a unary call when room calls run already: waiting here would
// only hide the overload and spend the caller's deadline.
func inflight(room int) grpc.UnaryServerInterceptor {
	slots := make(chan struct{}, room)
	full := rpcstatus.With(fmt.Errorf("%w: too many calls at once", rpcstatus.ErrExhausted),
		map[string]string{"limit": strconv.Itoa(room)}, nil, 100*time.Millisecond)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if open(info.FullMethod) {
			return handler(ctx, req)
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			return handler(ctx, req)
		default:
			return nil, full
		}
	}
}

// errStopping is the cause of a stream's end at shutdown.
var errStopping = rpcstatus.With(
	fmt.Errorf("%w: the server is stopping; connect again", rpcstatus.ErrUnavailable),
	nil, nil, 100*time.Millisecond)

// endOnStop ends the context of each stream when stopping is closed. Otherwise a
// watch that nobody ends would use up the whole shutdown grace.
func endOnStop(stopping <-chan struct{}) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, cancel := context.WithCancelCause(ss.Context())
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			select {
			case <-stopping:
				cancel(errStopping)
			case <-ctx.Done():
			}
		}()
		err := handler(srv, withContext{ss, ctx})
		stopped := errors.Is(context.Cause(ctx), errStopping)
		cancel(nil)
		<-watching
		if stopped && (err == nil || errors.Is(err, context.Canceled)) {
			return errStopping
		}
		return err
	}
}

// defaultTimeout gives unary calls without a deadline one.
func defaultTimeout(d time.Duration) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if _, ok := ctx.Deadline(); !ok && d > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, d)
			defer cancel()
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}
