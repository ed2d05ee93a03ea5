package admission

import (
	"context"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// instrument gives every command and every pipeline a span. The plugin renders the
// arguments of a pipeline as text even where nobody keeps them (a thousand calls, users
// among them), so that pipelines have a hook of our own, which tells how many there were.
func instrument(pool redis.UniversalClient) {
	everyPipeline := func([]redis.Cmder) bool { return true }
	if err := redisotel.InstrumentTracing(pool, redisotel.WithDBStatement(false), redisotel.WithCommandsFilter(everyPipeline)); err != nil {
		panic("admission: " + err.Error()) // only for a client type the plugin does not know
	}
	pool.AddHook(pipelineSpans{otel.Tracer("github.com/cellquota/cellquota/cell/admission")})
}

type pipelineSpans struct{ tracer trace.Tracer }

// DialHook implements redis.Hook.
func (pipelineSpans) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (pipelineSpans) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (s pipelineSpans) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, span := s.tracer.Start(ctx, "redis.pipeline", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.Int("db.redis.num_cmd", len(cmds))))
		defer span.End()
		err := next(ctx, cmds)
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		return err
	}
}
