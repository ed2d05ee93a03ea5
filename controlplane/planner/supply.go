package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/supply"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/telemetry"
)

// The AUTO steps: top-ups from the reserve and rebalances, where a SKU's policy asks
// for them. One transaction per SKU and pass, whose id comes from the version of the
// book that it was decided on: whoever repeats it, this leader or the next, finds
// the same record, and nobody books it twice.

// supply is one pass over the SKUs on sale.
func (p *Planner) supply(ctx context.Context, leader core.Leader) {
	s := p.view.Snapshot()
	if p.Restored() != "" {
		return
	}
	for _, c := range s.Campaigns() {
		if c.ReadState(p.clock.Now()) != core.CampaignOpen || len(p.waitsFor(s, c)) > 0 {
			continue // not on sale, or a cell that did not speak yet may hold what etcd has forgotten
		}
		route, _ := s.Route(c.Spec.ID)
		owned, busy := core.Owned(route.Domains), busySKUs(s, c.Spec.ID)
		for _, sku := range c.Spec.SKUs {
			if ctx.Err() != nil {
				return
			}
			book, known := s.Book(c.Key(sku.ID))
			if !known || busy[sku.ID] || busy[""] || !stocks(c, sku.ID, book) {
				continue
			}
			on := onSale{campaign: c, sku: sku, book: book, route: route.Version, positions: p.positions(s, c, book, owned)}
			p.note(ctx, p.supplySKU(ctx, leader, on), "a SKU was not supplied", telemetry.CampaignID, c.Spec.ID, telemetry.SKUID, sku.ID)
		}
	}
}

// onSale is one SKU as a pass found it.
type onSale struct {
	campaign  core.Campaign
	sku       core.SKUSpec
	book      core.Book
	route     int64 // the route's version
	positions []supply.Position
}

// supplySKU tops up; where there is nothing to top up, it rebalances. Another
// version of the book is no error: the next pass decides on that.
func (p *Planner) supplySKU(ctx context.Context, leader core.Leader, on onSale) error {
	booked, err := p.autoTopUp(ctx, leader, on)
	if err == nil && !booked {
		err = p.autoRebalance(ctx, leader, on)
	}
	if errors.Is(err, core.ErrVersion) || errors.Is(err, core.ErrFinal) || errors.Is(err, core.ErrStaleCell) || errors.Is(err, errNoMore) {
		return nil
	}
	return err
}

// errNoMore: what a pass decided on is not so any more in etcd.
var errNoMore = errors.New("no more to be supplied")

// stocks tells whether the planner moves units of a SKU by itself at all: not while
// its limit is being lowered, the SKU is paused, or it is final.
func stocks(c core.Campaign, sku ids.SKUID, book core.Book) bool {
	return !book.Final && book.LimitTarget.IsZero() && !slices.Contains(c.PausedSKUs, sku) && !slices.Contains(c.FinalSKUs, sku)
}

// busySKUs gives the SKUs that an open operation moves units of, "" for one that
// moves all of the campaign's.
func busySKUs(s view.Snapshot, campaign ids.CampaignID) map[ids.SKUID]bool {
	busy := map[ids.SKUID]bool{}
	for _, op := range s.OpenOperations() {
		subject, sku, ok := op.About()
		if !ok || subject != campaign {
			continue // of a cell, whose state says what may be done, or of another campaign
		}
		if op.Kind == core.OperationCancel || op.Kind == core.OperationHandOver {
			continue // nothing moves before a second person agreed, and then the campaign is closed; buckets are no units
		}
		if op.Kind != core.OperationRebalance { // whose moves name its SKUs
			busy[sku] = true
		}
		for _, m := range op.Moves {
			busy[m.SKU] = true
		}
	}
	return busy
}

// positions lists the cells of a campaign and those that the book names, in order
// of ids, as this leader sees them.
func (p *Planner) positions(s view.Snapshot, c core.Campaign, book core.Book, owned map[string]int) []supply.Position {
	names := slices.Clone(c.Spec.Cells)
	for _, a := range book.Allocations {
		names = append(names, a.Cell)
	}
	slices.Sort(names)
	var out []supply.Position
	for _, id := range slices.Compact(names) {
		cell, known := s.Cell(id)
		if !known {
			continue
		}
		pos := supply.Position{Cell: cell, State: s.CellState(cell), Owns: owned[string(id)] > 0}
		pos.Allocation, _ = book.Allocation(id)
		pos.Report, pos.Reported = p.cells.Report(id, book.Key)
		if reporter, linked := p.cells.Reporter(id); !linked || !p.mayBeGranted(id, reporter.Stream) {
			pos.Barred = "its shard was not compared with the books over its present stream"
		} else if p.freezes != nil {
			pos.Barred = p.freezes.Why(id, book.Key)
		}
		out = append(out, pos)
	}
	return out
}

// rules are the supply's, for a SKU whose campaign ends at closeAt.
func (p *Planner) rules(closeAt time.Time) supply.Rules {
	now := p.clock.Now()
	return supply.Rules{Now: now, StaleAfter: p.cfg.ReportStaleAfter, Horizon: max(0, min(p.cfg.RebalanceHorizon, closeAt.Sub(now)))}
}

// ProposeRebalance plans a rebalance of a campaign's SKUs (all for "") as this
// leader would make it now, and names what was left out. It changes nothing.
// core.ErrNotLeader where this replica does not lead: it hears no reports.
func (p *Planner) ProposeRebalance(s view.Snapshot, c core.Campaign, only ids.SKUID) (moves []core.RebalanceMove, versions map[ids.SKUID]int64, skipped []string, err error) {
	if _, leads := p.leader(); !leads {
		leader, _ := s.Leader()
		return nil, nil, nil, core.NotLeader(leader.Address)
	}
	route, _ := s.Route(c.Spec.ID)
	owned, busy := core.Owned(route.Domains), busySKUs(s, c.Spec.ID)
	versions = map[ids.SKUID]int64{}
	planned := 0
	for _, sku := range c.Spec.SKUs {
		if only != "" && sku.ID != only {
			continue
		}
		book, known := s.Book(c.Key(sku.ID))
		switch {
		case !known:
			skipped = append(skipped, string(sku.ID)+": it has no book yet")
			continue
		case busy[sku.ID] || busy[""]:
			skipped = append(skipped, string(sku.ID)+": another operation moves units of it")
			continue
		case !stocks(c, sku.ID, book):
			skipped = append(skipped, string(sku.ID)+": it is final, paused, or its limit is being lowered")
			continue
		}
		plan, err := supply.Rebalance(book, p.positions(s, c, book, owned), p.rules(c.Spec.CloseAt), false)
		if err != nil {
			return nil, nil, nil, err
		}
		skipped = append(skipped, plan.Skipped...)
		if over := len(moves) + len(plan.Moves) - supply.MaxMoves; over > 0 {
			plan.Moves = plan.Moves[:len(plan.Moves)-over]
			skipped = append(skipped, fmt.Sprintf("%s: %d moves more than one plan holds (%d)", sku.ID, over, supply.MaxMoves))
		}
		if len(plan.Moves) > 0 {
			if planned++; planned > core.MaxRebalanceSKUs {
				skipped = append(skipped, fmt.Sprintf("%s: one plan moves at most %d SKUs", sku.ID, core.MaxRebalanceSKUs))
				continue
			}
		}
		moves, versions[sku.ID] = append(moves, plan.Moves...), book.Version
	}
	return moves, versions, skipped, nil
}

// Demand tells how many units of a SKU were asked of a cell so far, by its newest
// report; 0 where this replica hears none.
func (p *Planner) Demand(key core.BookKey, cell ids.CellID) uint64 {
	report, _ := p.cells.Report(cell, key)
	return report.Demand()
}
