package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// record collects the spans of this process until the test ends.
func record(t *testing.T, options ...sdktrace.TracerProviderOption) *tracetest.SpanRecorder {
	t.Helper()
	recorder, before := tracetest.NewSpanRecorder(), otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(recorder))...))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	return recorder
}

// member is the traceparent of the n-th of a batch, n from 1.
func member(n int, flags string) string { return fmt.Sprintf("00-%032x-%016x-%s", n, n, flags) }

func batch(ctx context.Context, members []string, err error) {
	_, span := telemetry.StartBatch(ctx, "work", len(members), func(i int) string { return members[i] })
	telemetry.EndSpan(span, err)
}

// A batch's span belongs to its first sampled member's trace and names the others, up to a bound.
func TestBatchSpan(t *testing.T) {
	recorder := record(t)
	members := []string{"", member(1, "00"), "nonsense that is long enough to be one, but is none 01", member(2, "01"), member(3, "03"), member(4, "00")}
	for n := range 2 * telemetry.MaxLinks {
		members = append(members, member(10+n, "01"))
	}
	batch(t.Context(), members[1:], errors.New("the database is away"))
	spans := recorder.Ended()
	if len(spans) != 1 {
		t.Fatalf("%d spans", len(spans))
	}
	s := spans[0]
	if s.Name() != "work" || s.Parent().TraceID().String() != member(2, "01")[3:35] || s.SpanContext().TraceID() != s.Parent().TraceID() || !s.Parent().IsRemote() {
		t.Errorf("span %s of trace %s under %s", s.Name(), s.SpanContext().TraceID(), s.Parent().TraceID())
	}
	if links := s.Links(); len(links) != telemetry.MaxLinks || links[0].SpanContext.TraceID().String() != member(3, "03")[3:35] {
		t.Errorf("%d links: %v", len(links), links)
	}
	if s.Status().Code != codes.Error || s.Status().Description != "the database is away" {
		t.Errorf("status %v", s.Status())
	}
	batch(t.Context(), members[:3], nil)
	if n := len(recorder.Ended()); n != 1 {
		t.Errorf("a batch that nobody samples has %d spans", n-1)
	}
}

// Tracing costs nothing per message where nobody traces, and little where only others do.
func TestBatchSpanCostsLittle(t *testing.T) {
	var members [500]string
	traceparent := func(i int) string { return members[i] }
	once := func() {
		_, span := telemetry.StartBatch(t.Context(), "work", len(members), traceparent)
		telemetry.EndSpan(span, nil)
	}
	for i := range members {
		members[i] = member(i+1, "00")
	}
	record(t)
	if n := testing.AllocsPerRun(20, once); n > 0 {
		t.Errorf("%v allocations where nobody traces", n)
	}
	for i := range members {
		members[i] = member(i+1, "01")
	}
	record(t, sdktrace.WithSampler(sdktrace.NeverSample()))
	if n := testing.AllocsPerRun(20, once); n > 20 {
		t.Errorf("%v allocations for 500 messages where this process exports nothing", n)
	}
}
