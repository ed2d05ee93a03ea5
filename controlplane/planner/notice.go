package planner

import (
	"context"
	"fmt"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// A change of a limit moves no unit in any shard, but one shard has to record its
// id before it is acknowledged: an etcd that is restored to before the change then
// contradicts a shard (compare.go), and a raise cannot be handed out twice.

// noticePrefix begins the directive ids of notices, before the adjustment's.
const noticePrefix = "notice/"

// sendNotices tells one cell of each limit change that is not recorded yet: the
// first of the book's that can be told anything.
func (p *Planner) sendNotices(ctx context.Context, leader core.Leader, s view.Snapshot) {
	for _, r := range s.OpenRecords() {
		for _, a := range r.Adjustments {
			if a.Kind != core.KindLimit || !a.Open() {
				continue
			}
			cell, to, found := p.recorder(s, a.Key)
			if !found || !p.due(noticePrefix+a.ID, cell, to.Stream, r.ID) {
				continue
			}
			if err := p.sendNotice(ctx, leader, r, a, cell, to); err != nil {
				p.forget(noticePrefix+a.ID, cell)
				p.note(ctx, err, "limit change was not told", telemetry.AdjustmentID, a.ID, telemetry.CellID, cell)
			}
		}
	}
}

// recorder gives a cell of the book whose shard can be told.
func (p *Planner) recorder(s view.Snapshot, key core.BookKey) (ids.CellID, Reporter, bool) {
	book, _ := s.Book(key)
	for _, a := range book.Allocations {
		reporter, linked := p.cells.Reporter(a.Cell)
		if linked && p.mayBeGranted(a.Cell, reporter.Stream) && p.hasRules(a.Cell, key.Campaign, reporter.Stream, 1) {
			return a.Cell, reporter, true
		}
	}
	return "", Reporter{}, false
}

func (p *Planner) sendNotice(ctx context.Context, leader core.Leader, r core.Record, a core.Adjustment, cell ids.CellID, to Reporter) error {
	facts, err := p.store.ReadForSending(ctx, leader, r.ID, a.Key, cell)
	if err != nil {
		return err
	}
	if at := facts.Record.Find(a.ID); at < 0 || !facts.Record.Adjustments[at].Open() || !facts.Cell.State.MayRegister() {
		return nil
	}
	return p.cells.Send(ctx, cell, to.Stream, &pb.Directive{
		DirectiveId: noticePrefix + a.ID, Term: convert.Term(leader.Term), FenceVersion: facts.Cell.FenceVersion,
		Kind: &pb.Directive_BookNotice{BookNotice: &pb.BookNotice{
			CampaignId: string(a.Key.Campaign), SkuId: string(a.Key.SKU), BookRecordId: facts.Record.ID,
		}},
	})
}

// recorded books that a shard has recorded a limit change. A refusal books nothing:
// it is told again, perhaps to another cell.
func (p *Planner) recorded(ctx context.Context, leader core.Leader, cell ids.CellID, record, change, refusal string) error {
	if refusal != "" {
		p.log.WarnContext(ctx, "a cell did not record a limit change", telemetry.Event, "notice_refused", telemetry.AdjustmentID, change, telemetry.CellID, cell, "detail", refusal)
		return nil
	}
	if record == "" {
		found, ok := p.view.Snapshot().RecordOf(change)
		if !ok {
			return fmt.Errorf("%w: %s", core.ErrUnknownRecord, change)
		}
		record = found.ID
	}
	_, err := p.store.Settle(ctx, leader, record, change, core.OutcomeApplied)
	return err
}
