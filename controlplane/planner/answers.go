package planner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// The handlers that link calls, from the goroutine of the stream that brought the
// message. They may wait for etcd, under ctx.

// OnDirectiveResult books what became of a directive. An error means that it was
// not booked: the directive will be sent again and the shard will give the same
// answer.
func (p *Planner) OnDirectiveResult(ctx context.Context, cell ids.CellID, reporter Reporter, r *pb.DirectiveResult) error {
	if !r.GetDone() {
		return nil
	}
	if version, isSwitch := parseSwitchID(r.GetDirectiveId()); isSwitch {
		p.switched(ctx, cell, reporter.Stream, version, r.GetDetail())
		return nil
	}
	if operation, isRebuild := parseRebuildID(r.GetDirectiveId()); isRebuild {
		return p.rebuilt(ctx, cell, operation, r.GetDetail())
	}
	campaign, version, isRules := parseRulesID(r.GetDirectiveId())
	if isRules && r.GetDetail() != "" { // not installed: sent again after a while
		p.log.WarnContext(ctx, "a cell refused rules", telemetry.Event, "rules_refused", telemetry.CampaignID, campaign, telemetry.CellID, cell, "detail", r.GetDetail())
		return nil
	}
	record, leader := p.answered(r.GetDirectiveId(), cell)
	defer p.Wake()
	if change, isNotice := strings.CutPrefix(r.GetDirectiveId(), noticePrefix); isNotice {
		return p.recorded(ctx, leader, cell, record, change, r.GetDetail())
	}
	if isRules {
		p.gotRules(cell, campaign, reporter.Stream, version)
		return nil
	}
	outcome := convert.FromOutcome(r.GetOutcome())
	if outcome == 0 {
		return fmt.Errorf("%w: the answer to %s has no outcome", core.ErrBroken, r.GetDirectiveId())
	}
	if record == "" { // sent by an earlier leader, answered before, or never sent to this cell
		found, ok := p.view.Snapshot().RecordOf(r.GetDirectiveId())
		if !ok {
			return fmt.Errorf("%w: %s", core.ErrUnknownRecord, r.GetDirectiveId())
		}
		if a := found.Adjustments[found.Find(r.GetDirectiveId())]; a.Cell != cell {
			return fmt.Errorf("%w: cell %s answers %s, which is cell %s's", core.ErrBroken, cell, a.ID, a.Cell)
		}
		record = found.ID
	}
	settled, err := p.settler.settle(ctx, leader, record, store.Answer{AdjustmentID: r.GetDirectiveId(), Outcome: outcome})
	if errors.Is(err, core.ErrContradiction) || errors.Is(err, core.ErrBroken) {
		p.log.ErrorContext(ctx, "a shard's answer does not fit the journal", append([]any{
			telemetry.Event, "answer_contradicts", telemetry.AdjustmentID, r.GetDirectiveId(), telemetry.CellID, cell,
		}, telemetry.Failure(err, rpcstatus.Reason(err), false)...)...)
	}
	if err == nil && settled.Changed {
		p.log.InfoContext(ctx, "adjustment settled", telemetry.Event, "adjustment_settled", telemetry.AdjustmentID, r.GetDirectiveId(),
			telemetry.CellID, cell, telemetry.NewState, settled.Adjustment.State.String(), "outcome", outcome.String())
	}
	return err
}

// OnTermRaised compares a shard's facts, read after its term row was raised to
// this leader's term, with the books. nil: the cell may be granted units over
// this stream. core.ErrRestored: the shard knows more than etcd; nothing is
// granted to anyone any more, and the stream should be refused. core.ErrNotLeader:
// the term is not this leader's. ErrOlderFacts: read the shard again.
func (p *Planner) OnTermRaised(ctx context.Context, cell ids.CellID, reporter Reporter, m *pb.TermRaised) error {
	leader, leads := p.leader()
	if !leads || convert.FromTerm(m.GetTerm()) != leader.Term {
		return fmt.Errorf("%w: the shard's term is %d", core.ErrNotLeader, m.GetTerm().GetCount())
	}
	facts := Shard{Cell: cell, FenceVersion: m.GetFenceVersion()}
	for _, s := range m.GetStocks() {
		stock, err := convert.FromStock(s)
		if err != nil {
			return fmt.Errorf("%w: %w", core.ErrBroken, err)
		}
		facts.Stocks = append(facts.Stocks, stock)
	}
	if r, stands := p.view.Snapshot().Restored(); stands {
		return r.Refuses()
	}
	if err := p.agree(ctx, facts); err != nil {
		return err
	}
	p.mu.Lock()
	p.memory.compared[cell], p.memory.known[cell] = reporter.Stream, true
	p.mu.Unlock()
	p.Wake()
	return nil
}
