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
	campaign, sku, _ := op.About()
	ctx, span := telemetry.StartSpan(ctx, "operation "+op.Kind,
		telemetry.Operation, op.Kind, telemetry.OperationID, op.ID, telemetry.Step, op.Step,
		telemetry.CampaignID, string(campaign), telemetry.SKUID, string(sku), telemetry.CellID, string(op.AboutCell()))
	err := step(ctx)
	if errors.Is(err, core.ErrNotLeader) || errors.Is(err, errMoved) {
		telemetry.EndSpan(span, nil)
		return err
	}
	telemetry.EndSpan(span, err)
	return err
}
