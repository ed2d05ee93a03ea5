package planner

import (
	"context"
	"strconv"
	"strings"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// switchPrefix begins the directive ids of a cell's switch.
const switchPrefix = "switch/"

func switchID(version int64) string { return switchPrefix + strconv.FormatInt(version, 10) }

func parseSwitchID(id string) (version int64, ok bool) {
	digits, ok := strings.CutPrefix(id, switchPrefix)
	version, err := strconv.ParseInt(digits, 10, 64)
	return version, ok && err == nil
}

// sendSwitches tells every linked cell whether it is paused, as of each version of
// its record, once per stream, and again while no answer came.
func (p *Planner) sendSwitches(ctx context.Context, leader core.Leader, s view.Snapshot) {
	for _, c := range s.Cells() {
		cell, id := c.Spec.ID, switchID(c.Version)
		reporter, linked := p.cells.Reporter(cell)
		if !linked || p.hasSwitch(cell, reporter.Stream, c.Version) || !p.due(id, cell, reporter.Stream, "") {
			continue
		}
		if err := p.sendSwitch(ctx, leader, c, reporter); err != nil {
			p.forget(id, cell)
			p.note(ctx, err, "a cell was not told whether it is paused", telemetry.CellID, cell)
		}
	}
}

func (p *Planner) sendSwitch(ctx context.Context, leader core.Leader, c core.Cell, to Reporter) error {
	cell := c.Spec.ID
	facts, err := p.store.ReadForSending(ctx, leader, "", core.BookKey{}, cell)
	if err != nil {
		return err
	}
	if facts.Cell.Version != c.Version || !facts.Cell.State.MayRegister() {
		p.forget(switchID(c.Version), cell)
		return nil // the view is behind: the next tick knows better
	}
	return p.cells.Send(ctx, cell, to.Stream, &pb.Directive{
		DirectiveId: switchID(c.Version), Term: convert.Term(leader.Term), FenceVersion: facts.Cell.FenceVersion,
		Kind: &pb.Directive_CellSwitch{CellSwitch: &pb.CellSwitch{Paused: facts.Cell.Paused, Version: facts.Cell.Version, Reason: facts.Cell.PauseReason}},
	})
}

// switched notes that the cell's shard has this version of the switch. A refusal is
// logged and the directive sent again after a while.
func (p *Planner) switched(ctx context.Context, cell ids.CellID, stream uint64, version int64, refusal string) {
	if refusal != "" {
		p.log.WarnContext(ctx, "a cell refused its switch", telemetry.Event, "switch_refused", telemetry.CellID, cell, "version", version, "detail", refusal)
		return
	}
	p.answered(switchID(version), cell)
	p.mu.Lock()
	defer p.mu.Unlock()
	if in := p.memory.switches[cell]; in.stream != stream || in.version < version {
		p.memory.switches[cell] = installed{stream, version}
	}
}

func (p *Planner) hasSwitch(cell ids.CellID, stream uint64, version int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.memory.switches[cell]
	return in.stream == stream && in.version >= version
}
