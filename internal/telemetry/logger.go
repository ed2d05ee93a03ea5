package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"
)

// maxString bounds each string of a log line, in bytes.
const maxString = 1024

// cutMark ends a string that was cut.
const cutMark = "…[cut]"

// NewLogger returns a logger that writes one JSON line per event to w, with the
// component's name on each and the trace and span of the context given to the
// …Context methods. Strings beyond 1 KiB, wherever they stand, are cut. level
// may change at any time; nil means INFO for good.
func NewLogger(w io.Writer, component string, level *slog.LevelVar) *slog.Logger {
	var leveler slog.Leveler = slog.LevelInfo
	if level != nil {
		leveler = level
	}
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: leveler, ReplaceAttr: bound})
	return slog.New(traced{h}).With(Component, component)
}

// ParseLevel reads "debug", "info", "warn" or "error", in either case.
func ParseLevel(s string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s)); err != nil {
		return 0, fmt.Errorf("log_level: %q: must be debug, info, warn or error", s)
	}
	return level, nil
}

// traced adds the identity of the context's span to each record.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String(TraceID, span.TraceID().String()), slog.String(SpanID, span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }

// bound cuts what is too long, whatever kind of value it hides in.
func bound(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if s := a.Value.String(); len(s) > maxString {
			a.Value = slog.StringValue(cut(s))
		}
	case slog.KindAny:
		a.Value = boundAny(a.Value)
	default:
	}
	return a
}

func boundAny(v slog.Value) slog.Value {
	switch x := v.Any().(type) {
	case nil, *slog.Source:
		return v
	case error:
		return slog.StringValue(cut(x.Error()))
	case []byte:
		return slog.StringValue(cut(string(x)))
	default:
		text, err := json.Marshal(x)
		if err != nil {
			return slog.StringValue(cut(fmt.Sprintf("%+v", x)))
		}
		if len(text) <= maxString {
			return v
		}
		return slog.StringValue(cut(string(text)))
	}
}

// cut shortens s to maxString bytes of whole characters and marks the place.
func cut(s string) string {
	if len(s) <= maxString {
		return s
	}
	end := maxString
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cutMark
}
