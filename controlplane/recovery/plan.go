package recovery

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// BookPlan is one SKU as recovery sets it.
type BookPlan struct {
	Key          core.BookKey
	Stored, Next core.Book // Stored is zero where etcd has no book; Next where it is blocked
	Limit        quantity.Quantity
	Confirmed    bool  // a limit was given
	Floor        int64 // what the shards hold
	BlockedBy    string
	short        error // the physical stock does not cover the SKU's limits
}

// CellPlan is what one shard says of itself.
type CellPlan struct {
	Stored    core.Cell
	Version   int64
	State     string
	Group     string
	Term      core.Term
	BlockedBy string // why it could not be read
}

// stored is what a plan asks of etcd.
type stored struct {
	books  []core.Book
	cells  map[ids.CellID]core.Cell
	stocks func(ids.SKUID) (core.PhysicalStock, bool)
	// campaigns are those that etcd and the shards know, as they are recovered.
	campaigns map[ids.CampaignID]core.Campaign
	// settled tells campaigns whose books are no longer changed.
	settled func(ids.CampaignID) bool
	// booked tells whether etcd has booked what a fence sealed of a SKU.
	booked func(cell ids.CellID, version int64, key core.BookKey) bool
}

// frozen are the units that fences of a cell sealed under `reclaim: NEVER` and nobody
// booked back: they stay in the allocation, beside what the shard holds.
func (in stored) frozen(shard facts, key core.BookKey) int64 {
	var sum int64
	if !in.never(key) {
		return 0
	}
	for _, s := range shard.seals {
		if s.key == key && !in.booked(shard.cell, s.version, key) {
			sum += s.units.Int64()
		}
	}
	return sum
}

func (in stored) never(key core.BookKey) bool {
	return in.campaigns[key.Campaign].Spec.Reclaim == core.ReclaimNever
}

// planBooks decides what each SKU is set to. Pure.
func planBooks(in stored, shards []facts, limits []core.ConfirmedLimit) []BookPlan {
	plans := map[core.BookKey]*BookPlan{}
	held := map[core.BookKey][]core.Allocation{}
	plan := func(key core.BookKey) *BookPlan {
		if plans[key] == nil {
			plans[key] = &BookPlan{Key: key}
		}
		return plans[key]
	}
	for _, b := range in.books {
		if !in.settled(b.Key.Campaign) {
			plan(b.Key).Stored = b
		}
	}
	for _, shard := range shards {
		for _, s := range shard.stocks {
			if in.settled(s.Key.Campaign) || plans[s.Key] == nil && s.Granted.IsZero() && s.LastNumber == 0 {
				continue
			}
			h := holding(s, shard, in.cells[shard.cell])
			p := plan(s.Key)
			units, err := quantity.New(s.Granted.Int64() + in.frozen(shard, s.Key))
			if err != nil {
				p.BlockedBy = fmt.Sprintf("what cell %s holds and what its fences sealed: %v", shard.cell, err)
			}
			h.Granted = units
			p.Floor += units.Int64()
			held[s.Key] = append(held[s.Key], h)
		}
		for _, p := range plans { // a cell whose shard has no row of the SKU holds nothing of it
			if a, allocated := p.Stored.Allocation(shard.cell); allocated && !hasCell(held[p.Key], shard.cell) {
				a.Granted, a.FenceVersion, a.LastNumber = quantity.Quantity{}, max(shard.row.Version.Int64(), 1), 0
				held[p.Key] = append(held[p.Key], a)
			}
		}
	}
	for _, l := range limits {
		if p := plans[l.Key]; p != nil {
			p.Limit, p.Confirmed = l.SaleLimit, true
		}
	}
	out := make([]BookPlan, 0, len(plans))
	for key, p := range plans {
		p.decide(held[key])
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b BookPlan) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	fitStocks(in, out)
	return out
}

func (p *BookPlan) decide(held []core.Allocation) {
	for _, a := range p.Stored.Allocations {
		p.Floor += a.WrittenOff.Int64()
	}
	if p.BlockedBy != "" {
		return
	}
	if !p.Confirmed {
		p.BlockedBy = fmt.Sprintf("no limit was confirmed; the shards hold %d units", p.Floor)
		return
	}
	next, err := p.Stored.Recover(p.Key, p.Limit, held)
	if err != nil {
		p.BlockedBy = err.Error()
		return
	}
	p.Next = next
}

// holding is what a shard has of one SKU, as an allocation.
func holding(s core.StockFacts, shard facts, cell core.Cell) core.Allocation {
	return core.Allocation{
		Cell: shard.cell, Granted: s.Granted, FenceVersion: max(s.AdjustmentVersion, 1), LastNumber: s.LastNumber,
		CellVersion: cell.Version, State: max(cell.State, core.CellProvisioned),
	}
}

func hasCell(held []core.Allocation, cell ids.CellID) bool {
	return slices.ContainsFunc(held, func(a core.Allocation) bool { return a.Cell == cell })
}
