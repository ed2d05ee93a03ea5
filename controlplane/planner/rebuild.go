package planner

import (
	"context"
	"fmt"
	"strings"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// rebuildPrefix begins the directive ids of rebuilds, before the operation's.
const rebuildPrefix = "mirror/"

// StepRebuild is the one step of a rebuild of mirrors.
const StepRebuild = "REBUILDING"

// sendRebuilds tells the cell of every open rebuild, and tells it again until it
// answers that its mirrors are made: the directive is idempotent by its id.
func (p *Planner) sendRebuilds(ctx context.Context, leader core.Leader, s view.Snapshot) {
	for _, op := range s.OpenOperations() {
		if op.Kind != core.OperationRebuild {
			continue
		}
		cell, _, _ := op.Mirrors()
		id := rebuildPrefix + op.ID
		reporter, linked := p.cells.Reporter(cell)
		why := fmt.Sprintf("cell %s makes them", cell)
		if !linked {
			why = fmt.Sprintf("no process of cell %s is linked to the leader", cell)
		}
		if op.Step != StepRebuild || op.Detail != why {
			p.note(ctx, p.rebuilding(ctx, leader, op.ID, why), "a rebuild's step was not stored", fieldsOf(op)...)
		}
		if !linked || !p.due(id, cell, reporter.Stream, "") {
			continue
		}
		if err := p.sendRebuild(ctx, leader, op, reporter); err != nil {
			p.forget(id, cell)
			p.note(ctx, err, "a cell was not told to rebuild", fieldsOf(op)...)
		}
	}
}

func (p *Planner) rebuilding(ctx context.Context, leader core.Leader, id, why string) error {
	return p.changeOperation(ctx, leader, id, func(_ *store.Tx, op core.Operation) core.Operation { return op.Waits(StepRebuild, why) })
}

func (p *Planner) sendRebuild(ctx context.Context, leader core.Leader, op core.Operation, to Reporter) error {
	cell, campaign, sku := op.Mirrors()
	facts, err := p.store.ReadForSending(ctx, leader, "", core.BookKey{}, cell)
	if err != nil {
		return err
	}
	if !facts.Cell.State.MayRegister() {
		return p.endOperation(ctx, leader, op.ID, core.OperationFailed, fmt.Sprintf("cell %s is %s", cell, facts.Cell.State))
	}
	return p.cells.Send(ctx, cell, to.Stream, &pb.Directive{
		DirectiveId: rebuildPrefix + op.ID, Term: convert.Term(leader.Term), FenceVersion: facts.Cell.FenceVersion,
		Kind: &pb.Directive_MirrorRebuild{MirrorRebuild: &pb.MirrorRebuild{CampaignId: string(campaign), SkuId: string(sku)}},
	})
}

// parseRebuildID gives the operation of a rebuild's directive.
func parseRebuildID(id string) (operation string, ok bool) {
	return strings.CutPrefix(id, rebuildPrefix)
}

// rebuilt ends a rebuild that its cell answered: its mirrors are made, or it has none
// such.
func (p *Planner) rebuilt(ctx context.Context, cell ids.CellID, operation, refusal string) error {
	_, leader := p.answered(rebuildPrefix+operation, cell)
	state, detail := core.OperationDone, ""
	if refusal != "" {
		state, detail = core.OperationFailed, fmt.Sprintf("cell %s: %s", cell, refusal)
	}
	p.log.InfoContext(ctx, "mirrors were rebuilt", telemetry.Event, "mirrors_rebuilt", telemetry.CellID, cell, "operation_id", operation, "detail", refusal)
	return p.endOperation(ctx, leader, operation, state, detail)
}
