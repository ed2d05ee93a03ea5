package payment_test

import (
	"context"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/propagation"

	"github.com/cellquota/cellquota/cell/payment"
	"github.com/cellquota/cellquota/cell/shard/shardtest"
)

// TestAStepsRowsKeepItsTrace: what a payment and a cancelling leave in the outbox carries the W3C context of
// the call that brought them, however many shared the transaction.
func TestAStepsRowsKeepItsTrace(t *testing.T) {
	b := shardtest.New(t, 2)
	s, err := payment.New(b.Store, payment.Config{}, slog.New(slog.DiscardHandler), nil)
	b.Must(err)
	ctx, cancel := context.WithCancel(b.Ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	traced := func(parent string) context.Context {
		return propagation.TraceContext{}.Extract(b.Ctx, propagation.MapCarrier{"traceparent": parent})
	}
	const callback = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	const user = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-00"
	_, err = s.Callback(traced(callback), payment.Callback{Order: b.Orders[0], Payment: "p", Amount: shardtest.Price, Status: payment.Succeeded})
	b.Must(err)
	_, err = s.Callback(traced(callback), payment.Callback{Order: b.Orders[0], Payment: "second", Amount: shardtest.Price, Status: payment.Succeeded})
	b.Must(err)
	_, err = s.Cancel(traced(user), b.Orders[1], "u1")
	b.Must(err)
	for kind, want := range map[string]string{
		"paid": callback, "order-paid": callback, "refund-requested": callback, "release": user, "order-closed": user,
	} {
		var got string
		b.Must(b.Admin.QueryRow(b.Ctx, "SELECT traceparent FROM cellquota.outbox WHERE event_type = $1", kind).Scan(&got))
		if got != want {
			t.Errorf("%s carries %q, want %q", kind, got, want)
		}
	}
}
