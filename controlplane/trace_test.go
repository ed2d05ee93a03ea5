package controlplane

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/cellquota/cellquota/controlplane/client"
	"github.com/cellquota/cellquota/internal/config"
	"github.com/cellquota/cellquota/internal/testkit"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// A call that comes with a traceparent is a span of this service in its caller's trace.
func TestACallGoesOnInItsCallersTrace(t *testing.T) {
	recorder, provider, propagator := tracetest.NewSpanRecorder(), otel.GetTracerProvider(), otel.GetTextMapPropagator()
	flush, err := tracing(t.Context(), Config{Common: config.Common{Trace: config.Trace{Sample: 1, Endpoint: "127.0.0.1:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	ours, ok := otel.GetTracerProvider().(*sdktrace.TracerProvider)
	if !ok {
		t.Fatalf("the provider is a %T", otel.GetTracerProvider())
	}
	ours.RegisterSpanProcessor(recorder)
	t.Cleanup(func() {
		otel.SetTracerProvider(provider)
		otel.SetTextMapPropagator(propagator)
		gone, cancel := context.WithCancel(context.Background())
		cancel() // nobody collects here: nothing is waited for
		_ = flush(gone)
	})
	r, _ := replica(t, testkit.Etcd(t, 1))
	ready(t, r)
	caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})
	ctx := trace.ContextWithSpanContext(testkit.Deadline(t), caller)
	if _, err := dial(t, r, client.Options{Token: "token"}).Reports.GetStatus(ctx, &pb.GetStatusRequest{}); err != nil {
		t.Fatal(err)
	}
	var called, served sdktrace.ReadOnlySpan
	testkit.Eventually(t, 20*time.Second, func() error {
		for _, s := range recorder.Ended() {
			if s.Name() != "cellquota.v1.ReportService/GetStatus" {
				continue
			}
			switch s.SpanKind() {
			case trace.SpanKindClient:
				called = s
			case trace.SpanKindServer:
				served = s
			}
		}
		if called == nil || served == nil {
			return errors.New("no span of the call")
		}
		return nil
	})
	if called.Parent().SpanID() != caller.SpanID() || served.Parent().SpanID() != called.SpanContext().SpanID() || served.SpanContext().TraceID() != caller.TraceID() || !served.Parent().IsRemote() {
		t.Errorf("served in trace %s under %s, called in trace %s as %s under %s", served.SpanContext().TraceID(), served.Parent().SpanID(),
			called.SpanContext().TraceID(), called.SpanContext().SpanID(), called.Parent().SpanID())
	}
	name, _ := served.Resource().Set().Value("service.name")
	if name.AsString() != "cellquota-controlplane" {
		t.Errorf("service.name is %q", name.AsString())
	}
}
