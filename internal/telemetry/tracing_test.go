package telemetry_test

import (
	"context"
	"math"
	"net"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/cellquota/cellquota/internal/telemetry"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// carry runs a span under the parent of another process and returns what this
// process would send on.
func carry(t *testing.T) string {
	t.Helper()
	in := propagation.MapCarrier{"traceparent": parent}
	ctx := otel.GetTextMapPropagator().Extract(t.Context(), in)
	ctx, span := otel.Tracer("test").Start(ctx, "work")
	defer span.End()
	out := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, out)
	return out["traceparent"]
}

func TestContextIsCarriedWithoutAnExporter(t *testing.T) {
	shutdown, err := telemetry.InitTracing(t.Context(), "cellquota-cell", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shutdown(context.Background()) }()
	if got := carry(t); !strings.Contains(got, "0af7651916cd43dd8448eb211c80319c") || strings.Contains(got, "b7ad6b7169203331") {
		t.Fatalf("got %q, want the same trace and a span of our own", got)
	}
	_, span := otel.Tracer("test").Start(t.Context(), "root")
	if !span.SpanContext().IsValid() {
		t.Error("without a parent there is a trace id all the same")
	}
}

func TestSpansAreExported(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// A collector that keeps the bytes of what it is sent, whatever the method.
	got := make(chan string, 8)
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var request emptypb.Empty
		if err := s.RecvMsg(&request); err != nil {
			return err
		}
		got <- string(request.ProtoReflect().GetUnknown())
		return s.SendMsg(&emptypb.Empty{})
	}))
	go func() { _ = srv.Serve(l) }()
	defer srv.Stop()
	shutdown, err := telemetry.InitTracing(t.Context(), "cellquota-edge", l.Addr().String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	carry(t) // its parent was sampled, so the ratio of 0 does not count
	if err := shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sent := <-got; !strings.Contains(sent, "cellquota-edge") || !strings.Contains(sent, "work") {
		t.Fatalf("sent %q", sent)
	}
}

func TestTracingRefusesNonsense(t *testing.T) {
	for _, ratio := range []float64{-1, 1.5, math.NaN()} {
		if _, err := telemetry.InitTracing(t.Context(), "x", "", ratio); err == nil {
			t.Errorf("%v: no error", ratio)
		}
	}
	if _, err := telemetry.InitTracing(t.Context(), "", "", 1); err == nil {
		t.Error("no name: no error")
	}
}
