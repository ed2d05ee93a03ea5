package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/store"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// publishing is one publish at one tick.
type publishing struct {
	p        *Planner
	leader   core.Leader
	s        view.Snapshot
	op       core.Operation
	campaign core.Campaign
}

// outcome of a step at this tick.
type outcome struct {
	done   bool
	detail string // what it did, or why it waits
}

func did(format string, args ...any) (outcome, error) {
	return outcome{done: true, detail: fmt.Sprintf(format, args...)}, nil
}

func waits(format string, args ...any) (outcome, error) {
	return outcome{detail: fmt.Sprintf(format, args...)}, nil
}

// publishSteps is the machine: the steps of a publish, in order. Each looks at
// etcd and the cells, does what is left to do, and says done or why it waits.
// stored marks steps whose own last transaction records that they are done.
var publishSteps = []struct {
	name   string
	run    func(publishing, context.Context) (outcome, error)
	stored bool
}{
	{core.StepRoute, publishing.route, true},
	{core.StepBooks, publishing.books, false},
	{core.StepRules, publishing.rules, false},
	{core.StepGrants, publishing.grants, false},
	{core.StepReady, publishing.ready, false},
	{core.StepPublished, publishing.published, true},
	{core.StepOnSale, publishing.onSale, false},
}

// publish takes every open publish one step on. Steps that wait for nothing
// follow within milliseconds: each write changes the view, which asks for the
// next tick.
func (p *Planner) publish(ctx context.Context, leader core.Leader, s view.Snapshot) {
	for _, op := range s.OpenOperations() {
		if op.Kind != core.OperationPublish {
			continue
		}
		campaign, known := s.Campaign(ids.CampaignID(op.Subject))
		if !known {
			continue
		}
		run := publishing{p: p, leader: leader, s: s, op: op, campaign: campaign}
		p.note(ctx, traced(ctx, op, run.step), "publish waits", fieldsOf(op)...)
	}
}

func (r publishing) step(ctx context.Context) error {
	if r.op.Step == core.StepGiveUp {
		return r.giveUp(ctx)
	}
	for i, step := range publishSteps {
		if r.op.DoneStep(step.name) {
			continue
		}
		if r.campaign.State == core.CampaignClosed {
			return r.p.endOperation(ctx, r.leader, r.op.ID, core.OperationDone, "the campaign was closed meanwhile")
		}
		got, err := step.run(r, ctx)
		switch {
		case refusedForGood(err):
			return r.begunGiveUp(ctx, err)
		case err != nil:
			return err
		case !got.done:
			return r.say(ctx, step.name, got.detail)
		case step.stored:
			return nil
		}
		if i == len(publishSteps)-1 {
			return r.p.finishStep(ctx, r.leader, r.op.ID, step.name, got.detail, "")
		}
		return r.p.finishStep(ctx, r.leader, r.op.ID, step.name, got.detail, publishSteps[i+1].name)
	}
	return nil
}

// refusedForGood: a SKU does not fit or a cell cannot be granted units; waiting
// does not cure it.
func refusedForGood(err error) bool {
	for _, sentinel := range []error{core.ErrStockShort, core.ErrCellState, core.ErrNotReclaimed, core.ErrUnknownCell, rpcstatus.ErrInvalidArgument} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// begin reads campaign and operation for a step's transaction and refuses when
// they are not where this publish left them: a view that is late must not open
// books for a publish that is being given up, nor take back those of one that
// goes on.
func (r publishing) begin(tx *store.Tx) (core.Campaign, core.Operation, error) {
	if err := tx.Lead(r.leader); err != nil {
		return core.Campaign{}, core.Operation{}, err
	}
	op, known, err := tx.Operation(r.op.ID)
	if err != nil {
		return core.Campaign{}, core.Operation{}, err
	}
	campaign, exists, err := tx.Campaign(r.campaign.Spec.ID)
	if err != nil {
		return core.Campaign{}, core.Operation{}, err
	}
	if !known || !exists || op.State.Terminal() || campaign.OperationID != r.op.ID || campaign.State != core.CampaignPublishing ||
		(op.Step == core.StepGiveUp) != (r.op.Step == core.StepGiveUp) {
		return core.Campaign{}, core.Operation{}, errMoved
	}
	return campaign, op, nil
}

// errMoved: somebody moved the campaign; the next tick looks again.
var errMoved = errors.New("the campaign moved meanwhile")

// route deals the buckets. They are frozen from here on.
func (r publishing) route(ctx context.Context) (outcome, error) {
	_, err := r.p.store.Update(ctx, "route "+r.op.Subject, func(tx *store.Tx) error {
		campaign, op, err := r.begin(tx)
		if err != nil {
			return err
		}
		cells, err := tx.Cells()
		if err != nil {
			return err
		}
		_, known, err := tx.Route(campaign.Spec.ID)
		if err != nil {
			return err
		}
		if !known {
			domains, err := campaign.Spec.Deal(cells)
			if err != nil {
				return err
			}
			route := core.Route{Campaign: campaign.Spec.ID, Version: 1, Domains: domains}
			if err := tx.PutRoute(route); err != nil {
				return err
			}
		}
		dealt := fmt.Sprintf("buckets dealt to %d cells", len(campaign.Spec.Cells))
		return errors.Join(tx.PutOperation(op.Finished(core.StepRoute, dealt, core.StepBooks, tx.Now())),
			tx.Audit(core.Audit{Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "campaign " + op.Subject, Reason: dealt}))
	})
	return outcome{done: err == nil}, err
}

// books opens one book after the other: stock, book, record and the campaign's list
// in one transaction, as many books at once as etcd's bounds allow; the campaign with
// all its SKUs is read and written each time. Nothing is sent before all exist.
func (r publishing) books(ctx context.Context) (outcome, error) {
	booked := map[ids.SKUID]bool{}
	for _, id := range r.campaign.BookedSKUs {
		booked[id] = true
	}
	missing := slices.DeleteFunc(slices.Clone(r.campaign.Spec.SKUs), func(sku core.SKUSpec) bool { return booked[sku.ID] })
	for some := range slices.Chunk(missing, booksAtOnce(len(r.campaign.Spec.Cells))) {
		if err := r.book(ctx, some); err != nil {
			return outcome{}, err
		}
	}
	return did("%d books opened", len(r.campaign.Spec.SKUs))
}

// booksAtOnce bounds one transaction: each book takes eight of etcd's 128 operations,
// and their first grants together are no more than those of one book of 1,000 cells.
func booksAtOnce(cells int) int {
	const most, grants = 10, 1_000
	return max(1, min(most, grants/max(1, cells)))
}

func (r publishing) book(ctx context.Context, skus []core.SKUSpec) error {
	_, err := r.p.store.Update(ctx, "book "+r.campaign.Key(skus[0].ID).String(), func(tx *store.Tx) error {
		campaign, _, err := r.begin(tx)
		if err != nil {
			return err
		}
		cells, err := tx.Cells()
		if err != nil {
			return err
		}
		before := len(campaign.BookedSKUs)
		for _, sku := range skus {
			if slices.Contains(campaign.BookedSKUs, sku.ID) {
				continue
			}
			if err := errors.Join(takeStock(tx, campaign, sku), r.open(tx, campaign, sku, cells)); err != nil {
				return err
			}
			campaign = campaign.Booked(sku.ID)
		}
		if len(campaign.BookedSKUs) == before {
			return nil
		}
		return tx.PutCampaign(campaign)
	})
	return err
}

// takeStock puts the limit of a SKU on its physical stock. core.ErrStockShort.
func takeStock(tx *store.Tx, campaign core.Campaign, sku core.SKUSpec) error {
	stock, _, err := tx.Stock(sku.ID)
	if err != nil {
		return err
	}
	stock, changed, err := stock.Take(sku.ID, campaign.Spec.ID, sku.PhysicalStock, sku.SaleLimit)
	if err != nil || !changed {
		return err
	}
	return tx.PutStock(stock)
}

// open makes a SKU's book and the record of its first grants.
func (r publishing) open(tx *store.Tx, campaign core.Campaign, sku core.SKUSpec, cells map[ids.CellID]core.Cell) error {
	key := campaign.Key(sku.ID)
	plan, err := campaign.Spec.Plan(sku, cells)
	if err != nil {
		return err
	}
	book, steps, err := core.NewBook(key, plan, cells)
	if err != nil {
		return err
	}
	id := core.PublishRecordID(key)
	book = book.Stamp(id)
	record := core.Record{
		ID: id, Key: key, Actor: r.op.Actor, Reason: "publish", OperationID: r.op.ID, BookVersion: book.Version, At: tx.Now(), Parameters: core.Digest("publish", key.String()),
	}
	for i, g := range plan.Grants {
		if g.Units.IsZero() {
			continue
		}
		record.Adjustments = append(record.Adjustments, core.Adjustment{
			ID: core.FirstGrantID(key, ids.CellID(g.Cell)), Key: key, Cell: ids.CellID(g.Cell), Kind: core.KindGrant, Units: g.Units,
			State: core.StateBooked, Step: steps[i], Actor: r.op.Actor, Reason: "publish", CreatedAt: record.At,
		})
	}
	_, _, e1 := tx.Book(key)
	_, _, e2 := tx.Record(id)
	return errors.Join(e1, e2, tx.PutBook(book), tx.PutRecord(record),
		tx.Audit(core.Audit{Actor: r.op.Actor, Method: actor, OperationID: r.op.ID, Subject: "book " + key.String(), Reason: "publish"}))
}

// rules waits until the shard of every cell that may sell has the rules.
func (r publishing) rules(context.Context) (outcome, error) {
	if missing := r.withoutRules(r.campaign.Version); len(missing) > 0 {
		return waits("rules are on their way to %s", few(missing))
	}
	return did("rules installed in %d cells", len(r.selling()))
}

func (r publishing) withoutRules(version int64) (missing []string) {
	for _, cell := range r.selling() {
		reporter, linked := r.p.cells.Reporter(cell)
		if !linked || !r.p.hasRules(cell, r.campaign.Spec.ID, reporter.Stream, version) {
			missing = append(missing, string(cell))
		}
	}
	return missing
}

// selling are the campaign's cells that may be granted units now; one that was
// fenced meanwhile is not waited for.
func (r publishing) selling() []ids.CellID {
	var out []ids.CellID
	for _, id := range r.campaign.Spec.Cells {
		if c, known := r.s.Cell(id); known && c.State == core.CellActive {
			out = append(out, id)
		}
	}
	return out
}

// grants waits until every first grant is answered; those of a cell that was
// fenced meanwhile are reclaim's to end.
func (r publishing) grants(context.Context) (outcome, error) {
	selling := map[ids.CellID]int64{} // the fence version of each
	for _, id := range r.selling() {
		c, _ := r.s.Cell(id)
		selling[id] = c.FenceVersion
	}
	var open []string
	for _, record := range r.s.OpenRecords() {
		if record.OperationID != r.op.ID {
			continue
		}
		for _, a := range record.Adjustments {
			if version, sells := selling[a.Cell]; a.Open() && sells && a.FenceVersion == version {
				open = append(open, a.ID)
			}
		}
	}
	if len(open) > 0 {
		if why := r.p.Restored(); why != "" {
			return waits("nothing is granted: %s", why)
		}
		if why := r.p.holds(r.s, r.campaign); why != "" {
			return waits("first grants are held: %s", why)
		}
		return waits("first grants are on their way: %s", few(open))
	}
	return did("first grants applied")
}

// ready waits until everyone who will serve the sale has this version.
func (r publishing) ready(ctx context.Context) (outcome, error) {
	late, missing := r.unready(ctx, core.StepReady)
	if len(missing) > 0 {
		return waits("not ready: %s", few(missing))
	}
	return did("every live cell and edge serves version %d%s", r.campaign.Version, late)
}

// unready lists who does not serve the campaign's version: processes of cells,
// for as long as it takes, and edges for ack_timeout; late names the edges that
// are not waited for any more.
func (r publishing) unready(ctx context.Context, step string) (late string, missing []string) {
	missing = r.p.cells.CampaignReady(r.campaign.Spec.ID, r.campaign.Version, r.selling())
	behind := r.p.edges.Behind(ctx, r.campaign.Spec.ID, r.campaign.Version)
	switch {
	case len(behind) == 0:
	case r.p.waited(r.op.ID+"/"+step) < r.p.cfg.AckTimeout:
		missing = append(missing, behind...)
	default:
		late = "; late: " + strings.Join(behind[:min(5, len(behind))], ", ")
	}
	return late, missing
}

// published puts the campaign on sale.
func (r publishing) published(ctx context.Context) (outcome, error) {
	_, err := r.p.store.Update(ctx, "publish "+r.op.Subject, func(tx *store.Tx) error {
		campaign, op, err := r.begin(tx)
		if err != nil {
			return err
		}
		next, _, err := campaign.Step(core.EventPublished)
		if err != nil {
			return err
		}
		next.PublishedAt = tx.Now()
		return errors.Join(tx.PutCampaign(next),
			tx.PutOperation(op.Finished(core.StepPublished, fmt.Sprintf("version %d", next.Version), core.StepOnSale, tx.Now())),
			tx.Audit(core.Audit{Actor: op.Actor, Method: actor, OperationID: op.ID, Subject: "campaign " + op.Subject, Reason: "published"}))
	})
	return outcome{done: err == nil}, err
}

// onSale waits until everyone serves the published version.
func (r publishing) onSale(ctx context.Context) (outcome, error) {
	if missing := r.withoutRules(r.campaign.Version); len(missing) > 0 {
		return waits("rules are on their way to %s", few(missing))
	}
	late, missing := r.unready(ctx, core.StepOnSale)
	if len(missing) > 0 {
		return waits("not serving yet: %s", few(missing))
	}
	return did("on sale in %d cells%s", len(r.selling()), late)
}
