package settle

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/campaignreport"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
)

// cellEnd is one cell of a campaign that is over.
type cellEnd struct {
	cell core.Cell
	// err: its shard did not answer; else what it said.
	err  error
	said shards.Ending
	// unread is why its mirror cannot be told to be empty, or how many admissions it
	// counts; "" where nothing can be on its way.
	unread string
}

// ending is everything that is looked at before a campaign settles.
type ending struct {
	campaign   core.Campaign
	now        time.Time
	after      time.Duration
	archive    bool
	operations []core.Operation // open ones about the campaign or one of its SKUs
	open       int              // journal records that a shard has not answered
	cells      []cellEnd
	late       []string // processes that do not serve the closed version
	unsound    []string // sums of its report that do not hold
}

// blockers lists, with numbers, what has to happen before the campaign settles; a
// campaign that is not closed has none. Pure.
func (e ending) blockers() (out []string) {
	if e.campaign.State != core.CampaignClosed {
		return nil
	}
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !e.archive {
		add("no archive_dir: there is nowhere to keep the journal")
	}
	if from := e.campaign.EndedAt().Add(e.after); e.now.Before(from) {
		add("it ended less than settle.after (%s) ago", e.after)
	}
	for _, op := range e.operations {
		add("operation %s (%s) is %s", op.ID, op.Kind, op.State)
	}
	if e.open > 0 {
		add("%d journal records have no answer from a shard", e.open)
	}
	for _, c := range e.cells {
		for _, why := range c.blockers(e.campaign.Cancelled()) {
			add("cell %s: %s", c.cell.Spec.ID, why)
		}
	}
	for _, process := range e.late {
		add("does not serve the closed campaign: %s", process)
	}
	for _, sum := range e.unsound {
		add("its report does not add up: %s", sum)
	}
	return out
}

func (c cellEnd) blockers(cancelled bool) (out []string) {
	count := func(n int64, format string) {
		if n > 0 {
			out = append(out, fmt.Sprintf(format, n))
		}
	}
	switch s := c.cell.State; {
	case s == core.CellFencing, s == core.CellRestoring, s == core.CellRegressed, s == core.CellFenced && !c.cell.Reclaimed:
		out = append(out, fmt.Sprintf("it is %s: reclaim it, or write it off", s))
	}
	if c.err != nil {
		return append(out, "its shard does not answer: "+c.err.Error())
	}
	count(c.said.Reserved, "%d reservations are RESERVED")
	count(c.said.UnderReview, "%d reservations are in MANUAL_REVIEW")
	if cancelled {
		count(c.said.PaidKept, "%d paid orders are not refunded")
	}
	count(c.said.Refunds, "%d refunds are under way")
	count(c.said.OutboxPending, "%d outbox rows are not delivered")
	count(c.said.OutboxParked, "%d outbox rows are parked")
	count(c.said.Parked, "%d parked messages are not reviewed")
	count(c.said.Findings, "%d findings are not repaired")
	if c.unread != "" {
		out = append(out, c.unread)
	}
	return out
}

// Blockers lists what a closed campaign still waits for before it settles; any
// replica may ask. What only the leader knows, whether every process serves the
// closed version, is left out by others.
func (d *Driver) Blockers(ctx context.Context, c core.Campaign) []string {
	if c.State != core.CampaignClosed {
		return nil
	}
	if _, reported := c.Report(); reported {
		return nil // its account was taken: it settles
	}
	seen := d.look(ctx, d.View.Snapshot(), c, false)
	if len(seen.blockers()) == 0 {
		seen.unsound = d.unsound(ctx, c)
	}
	return seen.blockers()
}

// unsound lists the sums of a campaign's report that do not hold now; one whose units
// move is looked at again.
func (d *Driver) unsound(ctx context.Context, c core.Campaign) []string {
	result, err := d.accounts.Read(ctx, c.Spec.ID)
	if err != nil {
		return []string{err.Error()}
	}
	report, err := campaignreport.Make(result, d.Clock.Now())
	if err != nil {
		return []string{err.Error()}
	}
	return unsound(report)
}

func unsound(r campaignreport.Report) (out []string) {
	for _, b := range r.Breaches {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s", b.SKU, b.Cell))+": "+b.Detail)
	}
	for _, u := range r.Unread {
		if !u.Lost {
			out = append(out, fmt.Sprintf("%s was not read: %s", u.Cell, u.Why))
		}
	}
	return out
}

// look gathers an ending. What costs more is looked at when what costs less shows
// nothing: the shards, then every process's version and mirror, and then the shards
// once more, since a message that a mirror does not count any more has its row.
func (d *Driver) look(ctx context.Context, s view.Snapshot, c core.Campaign, leads bool) ending {
	e := ending{campaign: c, now: d.Clock.Now(), after: d.cfg.After, archive: d.Archive != nil}
	for _, op := range s.OpenOperations() {
		if campaign, _, ok := op.About(); ok && campaign == c.Spec.ID {
			e.operations = append(e.operations, op)
		}
	}
	for _, r := range s.OpenRecords() {
		if r.Key.Campaign == c.Spec.ID {
			e.open++
		}
	}
	e.cells = d.ends(ctx, s, c)
	if len(e.blockers()) > 0 {
		return e
	}
	sells := selling(e.cells)
	if leads {
		if e.late = d.Cells.CampaignReady(c.Spec.ID, c.Version, sells); len(e.late) > 0 {
			return e
		}
	}
	for i := range e.cells {
		if maySell(e.cells[i].cell) {
			e.cells[i].unread = d.unread(ctx, s, c, e.cells[i].cell.Spec.ID)
		}
	}
	if len(e.blockers()) > 0 || len(sells) == 0 {
		return e
	}
	e.cells = d.ends(ctx, s, c)
	return e
}

// maySell: processes of the cell may have accepted what no shard has decided. Those
// of a fenced cell are refused by version, and a retired one has none.
func maySell(c core.Cell) bool { return c.State != core.CellFenced && c.State != core.CellRetired }

func selling(cells []cellEnd) (out []ids.CellID) {
	for _, c := range cells {
		if maySell(c.cell) {
			out = append(out, c.cell.Spec.ID)
		}
	}
	return out
}

// unread asks a live process of the cell what its mirrors count.
func (d *Driver) unread(ctx context.Context, s view.Snapshot, c core.Campaign, cell ids.CellID) string {
	for _, book := range s.Books(c.Spec.ID) {
		if a, ever := book.Allocation(cell); !ever || a.LastNumber == 0 && a.Granted.IsZero() {
			continue
		}
		m, err := d.Mirrors.Mirror(ctx, cell, book.Key)
		switch {
		case err != nil:
			return "nobody can say what its mirror accepted: " + err.Error()
		case !m.Present:
			return "it has no mirror of " + string(book.Key.SKU) + " that could say what was accepted"
		case m.Outstanding > 0 || m.Stream > 0:
			return fmt.Sprintf("%d accepted requests for %s have no outcome, %d are not in the log", m.Outstanding, book.Key.SKU, m.Stream)
		}
	}
	return ""
}

// ends reads the shards of the cells that ever held units of the campaign, several
// at once.
func (d *Driver) ends(ctx context.Context, s view.Snapshot, c core.Campaign) []cellEnd {
	held := map[ids.CellID]bool{}
	for _, book := range s.Books(c.Spec.ID) {
		for _, a := range book.Allocations {
			lost := !a.WrittenOff.IsZero() && a.WrittenOff == a.Granted
			held[a.Cell] = held[a.Cell] || !lost && (!a.Granted.IsZero() || a.LastNumber > 0)
		}
	}
	var cells []core.Cell
	for _, cell := range s.Cells() {
		if held[cell.Spec.ID] && (cell.State != core.CellRetired || holds(s, c, cell.Spec.ID)) {
			cells = append(cells, cell)
		}
	}
	return each(cells, atOnce, func(cell core.Cell) cellEnd {
		said, err := d.said(ctx, cell, c.Spec.ID)
		return cellEnd{cell: cell, said: said, err: err}
	})
}

// holds tells whether the books still allocate units to the cell.
func holds(s view.Snapshot, c core.Campaign, cell ids.CellID) bool {
	for _, book := range s.Books(c.Spec.ID) {
		if a, ok := book.Allocation(cell); ok && a.Granted != a.WrittenOff {
			return true
		}
	}
	return false
}

// said asks one shard.
func (d *Driver) said(ctx context.Context, cell core.Cell, campaign ids.CampaignID) (shards.Ending, error) {
	snapshot, err := d.Shards.Snapshot(ctx, cell.Spec.Shard.ReaderDSNFile)
	if err != nil {
		return shards.Ending{}, err
	}
	defer snapshot.Close(ctx)
	fence, err := snapshot.Fence(ctx)
	if err != nil {
		return shards.Ending{}, err
	}
	if fence.Cell != string(cell.Spec.ID) {
		return shards.Ending{}, fmt.Errorf("%w: it belongs to cell %q", shards.ErrUnreachable, fence.Cell)
	}
	return snapshot.Ending(ctx, string(campaign))
}
