package telemetry

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// MaxLinks bounds the links of one batch's span; the attribute batch.size tells
// how many members it had.
const MaxLinks = 32

const tracerName = "github.com/cellquota/cellquota"

// StartBatch starts a span for work that is done for size members at once, each of
// which came with a W3C traceparent or "". The span is a child of the first
// sampled member's, and linked to the next MaxLinks sampled ones: a span has one
// parent only. End it with EndSpan. What is known only afterwards, as whose work it was, is told with
// trace.WithTimestamp of the beginning.
//
// A batch without a sampled member has no span: ctx comes back as it was, and
// nothing is allocated. Where this process exports nothing, one span context is
// read per batch, however large it is.
func StartBatch(ctx context.Context, name string, size int, traceparent func(i int) string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	first := nextSampled(0, size, traceparent)
	if first == size {
		return ctx, noop.Span{}
	}
	parent := extract(ctx, traceparent(first))
	ctx, span := otel.Tracer(tracerName).Start(parent, name, opts...)
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(attribute.Int("batch.size", size))
	links := 0
	for i := nextSampled(first+1, size, traceparent); i < size && links < MaxLinks; i = nextSampled(i+1, size, traceparent) {
		if sc := trace.SpanContextFromContext(extract(context.Background(), traceparent(i))); sc.IsValid() {
			span.AddLink(trace.Link{SpanContext: sc})
			links++
		}
	}
	return ctx, span
}

// EndSpan ends a span; when err is not nil it keeps it and marks the span as failed.
func EndSpan(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Traceparent is ctx's W3C context, for what is done or told later than ctx lives; "" without one.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

func nextSampled(from, size int, traceparent func(i int) string) int {
	for i := from; i < size; i++ {
		if sampled(traceparent(i)) {
			return i
		}
	}
	return size
}

// sampled reads the flag of a traceparent without reading the rest.
func sampled(traceparent string) bool {
	const length = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	return len(traceparent) >= length && strings.IndexByte("13579bdf", traceparent[length-1]) >= 0
}

// extract gives ctx the member's span context. One that is malformed changes nothing.
func extract(ctx context.Context, traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}
