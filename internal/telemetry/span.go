package telemetry

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// StartSpan starts a span for work of this process: a child of ctx's, or a trace of
// its own. fields are pairs of a field's name, of fields.go, and its value; a field
// without a value is left out. End it with EndSpan.
func StartSpan(ctx context.Context, name string, fields ...string) (context.Context, trace.Span) {
	ctx, span := otel.Tracer(tracerName).Start(ctx, name)
	if !span.IsRecording() {
		return ctx, span
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] != "" {
			span.SetAttributes(attribute.String(fields[i], fields[i+1]))
		}
	}
	return ctx, span
}
