package lifecycle

import (
	"context"
	"os/signal"
	"syscall"
)

// SignalContext returns a context that ends on the first SIGINT or SIGTERM. The
// second one kills the process as if nobody had listened, so that a person at a
// terminal is never stuck in a drain. Call stop when done.
func SignalContext(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
