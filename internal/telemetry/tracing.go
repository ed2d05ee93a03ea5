package telemetry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// InitTracing installs the process's tracer provider and propagator and returns
// the function that flushes and ends them.
//
// W3C trace context and baggage are propagated always. With an endpoint
// ("host:port", or "https://host:port" for TLS) spans are also exported by OTLP
// over gRPC, of which sampleRatio (0 to 1) is kept unless the parent was
// sampled. An endpoint of "" exports nothing and still gives every request a
// trace id, so that answers and logs carry one.
func InitTracing(ctx context.Context, serviceName, endpoint string, sampleRatio float64) (shutdown func(context.Context) error, err error) {
	if serviceName == "" {
		return nil, errors.New("tracing: service name must not be empty")
	}
	if math.IsNaN(sampleRatio) || sampleRatio < 0 || sampleRatio > 1 {
		return nil, fmt.Errorf("trace.sample: %v: must be between 0 and 1", sampleRatio)
	}
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", serviceName),
			attribute.String("service.version", Version()))),
	}
	if endpoint == "" {
		opts = append(opts, sdktrace.WithSampler(sdktrace.NeverSample()))
	} else {
		exporter, err := otlptracegrpc.New(ctx, exporterOptions(endpoint)...)
		if err != nil {
			return nil, fmt.Errorf("trace.endpoint: %w", err)
		}
		opts = append(opts,
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(sampleRatio))),
			sdktrace.WithBatcher(exporter))
	}
	provider := sdktrace.NewTracerProvider(opts...)
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(
		propagation.TraceContext{}, propagation.Baggage{}))
	return provider.Shutdown, nil
}

func exporterOptions(endpoint string) []otlptracegrpc.Option {
	if host, secure := strings.CutPrefix(endpoint, "https://"); secure {
		return []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(host)}
	}
	return []otlptracegrpc.Option{
		otlptracegrpc.WithEndpoint(strings.TrimPrefix(endpoint, "http://")),
		otlptracegrpc.WithInsecure(),
	}
}
