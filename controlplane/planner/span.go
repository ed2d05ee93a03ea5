package planner

import (
	"context"
	"errors"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// traced runs one step of an operation under a span of its own, "operation KIND", that
// says what the operation is about and keeps the step's error. That the lead was lost
// or that somebody moved the campaign meanwhile is no fault of the operation.
func traced(ctx context.Context, op core.Operation, step func(context.Context) error) error {
	ctx, span := telemetry.StartSpan(ctx, "operation "+op.Kind, namesOf(op)...)
	err := step(ctx)
	if errors.Is(err, core.ErrNotLeader) || errors.Is(err, errMoved) {
		telemetry.EndSpan(span, nil)
		return err
	}
	telemetry.EndSpan(span, err)
	return err
}

// namesOf gives the fields that a span or a line of an operation carries, in pairs; one
// may have no value.
func namesOf(op core.Operation) []string {
	campaign, sku, _ := op.About()
	return []string{
		telemetry.Operation, op.Kind, telemetry.OperationID, op.ID, telemetry.Step, op.Step,
		telemetry.CampaignID, string(campaign), telemetry.SKUID, string(sku), telemetry.CellID, string(op.AboutCell()),
	}
}

// fieldsOf is namesOf for a line: what has a value.
func fieldsOf(op core.Operation) (out []any) {
	names := namesOf(op)
	for i := 0; i < len(names); i += 2 {
		if names[i+1] != "" {
			out = append(out, names[i], names[i+1])
		}
	}
	return out
}
