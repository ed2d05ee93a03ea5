package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/cellquota/cellquota/internal/telemetry"
)

// logged runs write on a logger and returns its lines, parsed.
func logged(t *testing.T, level *slog.LevelVar, write func(*slog.Logger)) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	write(telemetry.NewLogger(&out, "cell", level))
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("not one JSON object a line: %q: %v", line, err)
		}
		lines = append(lines, fields)
	}
	return lines
}

func TestLoggerWritesJSONWithTheComponent(t *testing.T) {
	lines := logged(t, nil, func(l *slog.Logger) {
		l.Debug("not shown")
		l.Info("two\nlines", telemetry.CampaignID, "c1", telemetry.FenceVersion, 7)
	})
	if len(lines) != 1 {
		t.Fatalf("%d lines, want INFO only", len(lines))
	}
	got := lines[0]
	if got["component"] != "cell" || got["campaign_id"] != "c1" || got["fence_version"] != 7.0 || got["msg"] != "two\nlines" {
		t.Fatalf("got %v", got)
	}
	if _, present := got["trace_id"]; present {
		t.Error("no span, no trace id")
	}
}

func TestLoggerAddsTheSpan(t *testing.T) {
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	ctx := trace.ContextWithSpanContext(context.Background(), span)
	lines := logged(t, nil, func(l *slog.Logger) { l.With("a", 1).InfoContext(ctx, "x") })
	if lines[0]["trace_id"] != span.TraceID().String() || lines[0]["span_id"] != span.SpanID().String() || lines[0]["a"] != 1.0 {
		t.Fatalf("got %v", lines[0])
	}
}

func TestLoggerFollowsItsLevel(t *testing.T) {
	var level slog.LevelVar
	lines := logged(t, &level, func(l *slog.Logger) {
		level.Set(slog.LevelError)
		l.Warn("hidden")
		level.Set(slog.LevelDebug)
		l.Debug("shown")
	})
	if len(lines) != 1 || lines[0]["msg"] != "shown" {
		t.Fatalf("got %v", lines)
	}
}

type wordy struct{ Text string }

func TestLoggerCutsLongStringsWhereverTheyHide(t *testing.T) {
	long := strings.Repeat("é", 1000)
	lines := logged(t, nil, func(l *slog.Logger) {
		l.With("kept", long).Info(long, "string", long, "error", errors.New(long), "bytes", []byte(long),
			"struct", wordy{long}, slog.Group("group", "inner", long), "short", wordy{"s"}, "nil", nil)
	})
	group, _ := lines[0]["group"].(map[string]any)
	for name, value := range map[string]any{
		"msg": lines[0]["msg"], "kept": lines[0]["kept"], "string": lines[0]["string"], "error": lines[0]["error"],
		"bytes": lines[0]["bytes"], "struct": lines[0]["struct"], "inner": group["inner"],
	} {
		s, ok := value.(string)
		if !ok || len(s) > 1024+16 || len(s) < 1000 || !strings.HasSuffix(s, "[cut]") || !utf8.ValidString(s) {
			t.Errorf("%s: %d bytes, %.20q…", name, len(s), s)
		}
	}
	if short, _ := lines[0]["short"].(map[string]any); short["Text"] != "s" {
		t.Errorf("a short value stays as it is: %v", lines[0]["short"])
	}
}

func TestParseLevel(t *testing.T) {
	for s, want := range map[string]slog.Level{"debug": slog.LevelDebug, "INFO": slog.LevelInfo, "Warn": slog.LevelWarn, "error": slog.LevelError} {
		if got, err := telemetry.ParseLevel(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	if _, err := telemetry.ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), "log_level") {
		t.Errorf("got %v", err)
	}
}
