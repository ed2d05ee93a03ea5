package planner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cellquota/cellquota/controlplane/convert"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
	pb "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// rulesPrefix begins the directive ids of rules. An adjustment id has no slash,
// so the two cannot be taken for each other.
const rulesPrefix = "rules/"

func rulesID(campaign ids.CampaignID, version int64) string {
	return rulesPrefix + string(campaign) + "/" + strconv.FormatInt(version, 10)
}

func parseRulesID(id string) (campaign ids.CampaignID, version int64, ok bool) {
	rest, ok := strings.CutPrefix(id, rulesPrefix)
	name, digits, found := strings.Cut(rest, "/")
	version, err := strconv.ParseInt(digits, 10, 64)
	return ids.CampaignID(name), version, ok && found && err == nil
}

// addressee is a cell and the process that speaks for it.
type addressee struct {
	cell ids.CellID
	to   Reporter
}

// sendRules gives every linked cell the newest rules of each of its campaigns,
// once per version and stream, and again while no answer came.
func (p *Planner) sendRules(ctx context.Context, leader core.Leader, s view.Snapshot) {
	for _, c := range s.Campaigns() {
		if !toldToCells(c) {
			continue
		}
		var due []addressee
		for _, cell := range c.Spec.Cells {
			reporter, linked := p.cells.Reporter(cell)
			if linked && !p.hasRules(cell, c.Spec.ID, reporter.Stream, c.Version) && p.due(rulesID(c.Spec.ID, c.Version), cell, reporter.Stream, "") {
				due = append(due, addressee{cell, reporter})
			}
		}
		if len(due) == 0 {
			continue
		}
		if err := p.sendRulesTo(ctx, leader, c, due); err != nil {
			p.note(ctx, err, "rules were not sent", telemetry.CampaignID, c.Spec.ID)
		}
	}
}

// toldToCells: cells hear of a campaign when all its books exist, and no more
// after it is settled.
func toldToCells(c core.Campaign) bool {
	switch c.State {
	case core.CampaignPublishing:
		return c.FullyBooked()
	case core.CampaignPublished, core.CampaignPaused, core.CampaignClosed:
		return true
	default:
		return false
	}
}

// sendRulesTo reads once for all of them. Who could not be told is due again.
func (p *Planner) sendRulesTo(ctx context.Context, leader core.Leader, c core.Campaign, due []addressee) error {
	id := rulesID(c.Spec.ID, c.Version)
	facts, err := p.store.ReadForSending(ctx, leader, "", core.BookKey{Campaign: c.Spec.ID}, cellsOf(due)...)
	if err != nil || facts.Campaign.Version != c.Version { // the view is behind: the next tick knows better
		for _, a := range due {
			p.forget(id, a.cell)
		}
		return err
	}
	spec := convert.Spec(facts.Campaign.Spec) // shared by the messages: nobody changes it
	var failed error
	for _, a := range due {
		cell := facts.Cells[a.cell]
		if !cell.State.MayRegister() {
			p.forget(id, a.cell)
			continue
		}
		if err := p.cells.Send(ctx, a.cell, a.to.Stream, &pb.Directive{
			DirectiveId: id, Term: convert.Term(leader.Term), FenceVersion: cell.FenceVersion,
			Kind: &pb.Directive_Rules{Rules: rulesWith(spec, facts.Campaign, facts.Route, a.cell)},
		}); err != nil {
			p.forget(id, a.cell)
			failed = err
		}
	}
	return failed
}

func cellsOf(due []addressee) (out []ids.CellID) {
	for _, a := range due {
		out = append(out, a.cell)
	}
	return out
}

// Rules is what one cell is told of a campaign.
func Rules(c core.Campaign, route core.Route, cell ids.CellID) *pb.CampaignRules {
	return rulesWith(convert.Spec(c.Spec), c, route, cell)
}

func rulesWith(spec *pb.CampaignSpec, c core.Campaign, route core.Route, cell ids.CellID) *pb.CampaignRules {
	rules := &pb.CampaignRules{
		Spec: spec, Version: c.Version, State: pb.CampaignState(c.State),
		Buckets: convert.CellDomains(route.Domains, cell),
	}
	for _, sku := range c.PausedSKUs {
		rules.PausedSkus = append(rules.PausedSkus, string(sku))
	}
	for _, sku := range c.FinalSKUs {
		rules.FinalSkus = append(rules.FinalSkus, string(sku))
	}
	rules.Cancelled = c.Cancelled()
	if !c.PublishedAt.IsZero() {
		rules.PublishedAtMs = c.PublishedAt.UnixMilli()
	}
	return rules
}

// candidate is an open adjustment and the record it stands in.
type candidate struct {
	adjustment core.Adjustment
	record     string
	to         Reporter
}

// sendOpen sends, per cell and SKU, the open adjustment with the lowest number:
// the shard takes no other before it. Those of one record are read together.
func (p *Planner) sendOpen(ctx context.Context, leader core.Leader, s view.Snapshot) {
	held := map[ids.CampaignID]bool{}
	due := map[string][]candidate{} // by record
	var order []string
	for _, next := range heads(s.OpenRecords()) {
		a := next.adjustment
		reporter, linked := p.cells.Reporter(a.Cell)
		campaign, known := s.Campaign(a.Key.Campaign)
		if !linked || !known || !toldToCells(campaign) || !p.mayBeGranted(a.Cell, reporter.Stream) ||
			!p.hasRules(a.Cell, a.Key.Campaign, reporter.Stream, 1) || p.heldBack(s, campaign, a, held) || !p.due(a.ID, a.Cell, reporter.Stream, next.record) {
			continue
		}
		if due[next.record] == nil {
			order = append(order, next.record)
		}
		next.to = reporter
		due[next.record] = append(due[next.record], next)
	}
	for _, record := range order {
		if err := p.sendAdjustments(ctx, leader, record, due[record]); err != nil {
			p.note(ctx, err, "adjustments were not sent", "record_id", record)
		}
	}
}

// heldBack tells whether a grant waits for cells that were not compared; held
// keeps the answer for each campaign. Returns take units from nobody else.
func (p *Planner) heldBack(s view.Snapshot, c core.Campaign, a core.Adjustment, held map[ids.CampaignID]bool) bool {
	if a.Kind != core.KindGrant {
		return false
	}
	waits, asked := held[c.Spec.ID]
	if !asked {
		waits = len(p.waitsFor(s, c)) > 0
		held[c.Spec.ID] = waits
	}
	return waits
}

// heads gives the lowest open (fence version, number) of each cell and SKU, in a
// fixed order.
func heads(records []core.Record) []candidate {
	type place struct {
		cell ids.CellID
		key  core.BookKey
	}
	lowest := map[place]candidate{}
	for _, r := range records {
		for _, a := range r.Adjustments {
			at := place{a.Cell, a.Key}
			head, found := lowest[at]
			if !a.Open() || a.Number == 0 || found && !before(a.Step, head.adjustment.Step) {
				continue
			}
			lowest[at] = candidate{adjustment: a, record: r.ID}
		}
	}
	out := make([]candidate, 0, len(lowest))
	for _, c := range lowest {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b candidate) int { return cmp.Compare(a.adjustment.ID, b.adjustment.ID) })
	return out
}

func before(a, b core.Step) bool {
	return cmp.Or(cmp.Compare(a.FenceVersion, b.FenceVersion), cmp.Compare(a.Number, b.Number)) < 0
}

// sendAdjustments sends adjustments of one record, each to its cell, on one read of
// etcd. Who could not be sent to is due again.
func (p *Planner) sendAdjustments(ctx context.Context, leader core.Leader, record string, due []candidate) error {
	var to []ids.CellID
	for _, c := range due {
		to = append(to, c.adjustment.Cell)
	}
	facts, err := p.store.ReadForSending(ctx, leader, record, due[0].adjustment.Key, to...)
	if err == nil && facts.Record.ID != record {
		err = fmt.Errorf("%w: %s", core.ErrUnknownRecord, record)
	}
	at := map[string]int{}
	for i, a := range facts.Record.Adjustments {
		at[a.ID] = i
	}
	failed := err
	for _, c := range due {
		sendErr := err
		if i, found := at[c.adjustment.ID]; err == nil && found {
			sendErr = p.sendAdjustment(ctx, leader, facts, facts.Record.Adjustments[i], c.to)
		}
		if sendErr != nil {
			p.forget(c.adjustment.ID, c.adjustment.Cell)
			failed = sendErr
		}
	}
	return failed
}

func (p *Planner) sendAdjustment(ctx context.Context, leader core.Leader, facts store.Facts, a core.Adjustment, to Reporter) error {
	if !a.Open() || !sendable(facts, a) {
		return nil
	}
	return p.cells.Send(ctx, a.Cell, to.Stream, &pb.Directive{
		DirectiveId: a.ID, Term: convert.Term(leader.Term), FenceVersion: a.FenceVersion,
		Kind: &pb.Directive_Adjustment{Adjustment: &pb.AdjustmentOrder{
			AdjustmentId: a.ID, CampaignId: string(a.Key.Campaign), SkuId: string(a.Key.SKU), Number: a.Number,
			Kind: pb.AdjustmentKind(a.Kind), Units: a.Units.Int32(), BookRecordId: facts.Record.ID, Void: voids(facts, a),
		}},
	})
}

// sendable: the step belongs to the cell's present fence version and state; one
// of an older version is reclaim's to end.
func sendable(f store.Facts, a core.Adjustment) bool {
	cell := f.Cells[a.Cell]
	if a.FenceVersion != cell.FenceVersion {
		return false
	}
	switch cell.State {
	case core.CellActive:
		return toldToCells(f.Campaign)
	case core.CellDraining:
		return true
	default:
		return false
	}
}

// voids: a grant that no shard has applied when its cell began to drain is void. Its
// number is taken all the same, or the returns behind it would wait for ever; a shard
// that has applied it says so, and it is given back.
func voids(f store.Facts, a core.Adjustment) bool {
	return a.Kind == core.KindGrant && f.Cells[a.Cell].State == core.CellDraining
}
