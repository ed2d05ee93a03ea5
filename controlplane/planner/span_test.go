package planner_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/intent"
	"github.com/cellquota/cellquota/controlplane/quota"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/testkit"
)

// stumbling refuses its first step, and hands the others on.
type stumbling struct {
	stumbled atomic.Bool
	then     quota.Transfers
}

func (d *stumbling) Step(ctx context.Context, leader core.Leader, op core.Operation) error {
	if !d.stumbled.Swap(true) {
		return errors.New("the shard is away")
	}
	return d.then.Step(ctx, leader, op)
}

// Each step of an operation, a publish's too, is a span that says what it is about, and keeps its error.
func TestEachStepOfAnOperationIsASpan(t *testing.T) {
	recorder, before := tracetest.NewSpanRecorder(), otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	r := autoSale(t, 2, func(*core.SKUSpec) {})
	r.operations.drive(&stumbling{then: quota.Transfers{Deps: quota.Deps{Store: r.store, View: r.view, Clock: clock.System(), Log: slog.New(slog.DiscardHandler)}}})
	_, _, err := r.intent.TransferUnits(testkit.Deadline(t), who, intent.Transfer{ID: "t1", Key: demoKey, From: "cell-1", To: "cell-2", Units: quantity.Must(7), Reason: "slow there"}, false)
	if err != nil {
		t.Fatal(err)
	}
	r.until("t1", core.OperationDone)
	r.stopLead()

	transfer, publish := spansOf(recorder, "t1"), spansNamed(recorder, "operation publish-campaign")
	if len(transfer) < 2 || len(publish) < 2 {
		t.Fatalf("%d spans of the transfer, %d of the publish", len(transfer), len(publish))
	}
	first := transfer[0]
	if first.Name() != "operation transfer-units" || first.Parent().IsValid() {
		t.Errorf("span %s under %s", first.Name(), first.Parent().SpanID())
	}
	for name, want := range map[string]string{
		"operation": "transfer-units", "operation_id": "t1", "step": quota.StepReturn,
		"campaign_id": string(demoKey.Campaign), "sku_id": string(demoKey.SKU), "cell_id": "cell-1",
	} {
		if got := attributeOf(first, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if first.Status().Code != codes.Error || first.Status().Description != "the shard is away" || len(first.Events()) != 1 || first.Events()[0].Name != "exception" {
		t.Errorf("a step that failed: %+v, %+v", first.Status(), first.Events())
	}
	if last := transfer[len(transfer)-1]; last.Status().Code != codes.Unset {
		t.Errorf("a step that got on: %+v", last.Status())
	}
	if attributeOf(publish[0], "campaign_id") != string(demoKey.Campaign) || attributeOf(publish[0], "cell_id") != "" {
		t.Errorf("a publish: %v", publish[0].Attributes())
	}
}

func spansOf(recorder *tracetest.SpanRecorder, operation string) (out []sdktrace.ReadOnlySpan) {
	for _, s := range recorder.Ended() {
		if attributeOf(s, "operation_id") == operation {
			out = append(out, s)
		}
	}
	return out
}

func spansNamed(recorder *tracetest.SpanRecorder, name string) (out []sdktrace.ReadOnlySpan) {
	for _, s := range recorder.Ended() {
		if s.Name() == name {
			out = append(out, s)
		}
	}
	return out
}

func attributeOf(s sdktrace.ReadOnlySpan, name string) string {
	for _, a := range s.Attributes() {
		if string(a.Key) == name {
			return a.Value.AsString()
		}
	}
	return ""
}
