package api

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// tracerName is the scope of the edge's spans.
const tracerName = "github.com/cellquota/cellquota/edge/api"

// begin gives a call its span, or continues the caller's trace; his baggage stays outside. Spans are named by endpoints, a closed set.
// It does what a general middleware does, but for attributes: those are made only for a span that is
// recorded, since most are not and this is the edge's hottest code.
func (s *Server) begin(r *http.Request, name string) (context.Context, trace.Span) {
	within := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return s.tracer.Start(within, name, trace.WithSpanKind(trace.SpanKindServer))
}

// finish records what the call came to. The path is the endpoint's, with its parameters open: no trace
// holds who asked for what.
func finish(span trace.Span, e *endpoint, r *http.Request, rep *reply) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String("http.request.method", method(r.Method)),
		attribute.Int("http.response.status_code", rep.status),
		attribute.String("cellquota.layer", string(rep.layer)),
		attribute.String("cellquota.code", rep.code),
	)
	if e != nil {
		span.SetAttributes(attribute.String("http.route", e.path))
	}
	if rep.status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, rep.code)
	}
}

// method is one of the methods there are, or _OTHER.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	default:
		return "_OTHER"
	}
}
