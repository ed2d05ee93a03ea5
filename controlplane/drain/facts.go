package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
)

// look gathers the facts of one cell. The rows may be newer than the records: what they
// show as decided is not asked for again, and what the records show as open is waited for.
func (d *Driver) look(ctx context.Context, s view.Snapshot, cell core.Cell) Facts {
	f := Facts{Live: len(s.Instances(cell.Spec.ID)) > 0}
	rows, err := d.Shards.Stocks(ctx, cell.Spec)
	if err != nil {
		f.Unread = fmt.Sprintf("the shard of cell %s cannot be read: %v", cell.Spec.ID, err)
		return f
	}
	stocks := map[core.BookKey]core.StockFacts{}
	for _, r := range rows {
		stocks[r.Key] = r
	}
	open := undecided(s, cell.Spec.ID)
	for _, b := range s.Books("") {
		campaign, known := s.Campaign(b.Key.Campaign)
		a, has := b.Allocation(cell.Spec.ID)
		row := stocks[b.Key]
		if b.Settled || !has && row.Granted.IsZero() {
			continue
		}
		f.SKUs = append(f.SKUs, SKU{
			Book: b, Gives: known && campaign.State != core.CampaignClosed && !b.Final, Granted: free(a), Available: row.Available, Reserved: row.Reserved, Open: open[b.Key],
		})
	}
	slices.SortFunc(f.SKUs, func(a, b SKU) int { return strings.Compare(a.Book.Key.String(), b.Book.Key.String()) })
	f.Buckets = homes(s, cell.Spec.ID)
	return f
}

// free is what may still be given back of an allocation.
func free(a core.Allocation) quantity.Quantity {
	units, err := a.Granted.Sub(a.WrittenOff)
	if err != nil {
		return quantity.Quantity{}
	}
	return units
}

// undecided counts the adjustments of a cell that its shard has not answered.
func undecided(s view.Snapshot, cell ids.CellID) map[core.BookKey]int {
	out := map[core.BookKey]int{}
	for _, r := range s.OpenRecords() {
		for _, a := range r.Adjustments {
			if a.Cell == cell && a.Open() && a.Number > 0 {
				out[r.Key]++
			}
		}
	}
	return out
}

// homes lists the sales that are not over in which the cell is somebody's home, or will
// be when a handover that was ordered ends.
func homes(s view.Snapshot, cell ids.CellID) (out []Buckets) {
	for _, c := range s.Campaigns() {
		if c.State == core.CampaignClosed || c.State == core.CampaignSettled {
			continue
		}
		route, _ := s.Route(c.Spec.ID)
		if owned := core.Owned(route.Domains)[string(cell)]; owned > 0 || route.Moving(cell) {
			out = append(out, Buckets{string(c.Spec.ID), owned})
		}
	}
	slices.SortFunc(out, func(a, b Buckets) int { return strings.Compare(a.Campaign, b.Campaign) })
	return out
}

// Preview gives what a drain of the cell would ask back now, and what else would be in
// the way of its end.
func (d *Driver) Preview(ctx context.Context, id ids.CellID) (units []core.SKUUnits, blockers []string, err error) {
	cell, err := d.Store.Cell(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	s, err := d.View.WaitFor(ctx, cell.ModRevision)
	if err != nil {
		return nil, nil, err
	}
	f := d.look(ctx, s, cell)
	todo := step(f)
	if f.Unread != "" {
		return nil, []string{f.Unread}, nil
	}
	for _, a := range todo.Asks {
		units = append(units, core.SKUUnits{Key: a.Book.Key, Units: a.Units})
	}
	for i := range f.SKUs {
		f.SKUs[i].Gives = false // what it is asked for is in units
	}
	if rest := step(f); !rest.Done {
		blockers = strings.Split(rest.Detail, "; ")
	}
	return units, blockers, nil
}
