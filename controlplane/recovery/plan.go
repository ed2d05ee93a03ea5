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

// planBooks decides what each SKU is set to. Pure. books are etcd's; settled tells
// campaigns whose books are no longer changed.
func planBooks(books []core.Book, shards []facts, cells map[ids.CellID]core.Cell, limits []core.ConfirmedLimit, settled func(ids.CampaignID) bool) []BookPlan {
	plans := map[core.BookKey]*BookPlan{}
	held := map[core.BookKey][]core.Allocation{}
	plan := func(key core.BookKey) *BookPlan {
		if plans[key] == nil {
			plans[key] = &BookPlan{Key: key}
		}
		return plans[key]
	}
	for _, b := range books {
		if !settled(b.Key.Campaign) {
			plan(b.Key).Stored = b
		}
	}
	for _, shard := range shards {
		for _, s := range shard.stocks {
			if settled(s.Key.Campaign) || plans[s.Key] == nil && s.Granted.IsZero() && s.LastNumber == 0 {
				continue
			}
			plan(s.Key).Floor += s.Granted.Int64()
			held[s.Key] = append(held[s.Key], holding(s, shard, cells[shard.cell]))
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
	return out
}

func (p *BookPlan) decide(held []core.Allocation) {
	for _, a := range p.Stored.Allocations {
		p.Floor += a.WrittenOff.Int64()
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

// fencedVersion is the version of the last fence: the row's own, or the one below
// a restore's.
func fencedVersion(shard facts) int64 {
	if shard.row.State == "SETTLE_ONLY" {
		return max(shard.row.Version.Int64()-1, 1)
	}
	return shard.row.Version.Int64()
}

// shardStates are the words of the fence row as states of a cell.
var shardStates = map[string]core.CellState{
	"ACTIVE": core.CellActive, "SETTLE_ONLY": core.CellRestoring, "FENCED": core.CellFenced,
}

// planCell gives a cell's record as its shard shows it, and whether it differs. A
// shard behind the record is left to the operation that the record belongs to: a
// fence that was ordered and not carried out.
func planCell(cell core.Cell, shard facts) (core.Cell, bool) {
	version, state := shard.row.Version.Int64(), shardStates[shard.row.State]
	switch {
	case version < cell.FenceVersion || state == 0:
		return cell, false
	case version == cell.FenceVersion && (state == cell.State || state == core.CellActive && cell.State == core.CellDraining):
		return cell, false
	}
	cell.FenceVersion, cell.State, cell.InstanceGroup = version, state, shard.row.Group
	cell.OperationID, cell.Reclaimed = "", true // what the fence sealed is in the shard's own figures
	cell.Version++
	if state != core.CellActive {
		cell.ProofID = core.ProofID(cell.Spec.ID, fencedVersion(shard))
	}
	return cell, true
}
