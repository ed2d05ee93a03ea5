package recovery

import (
	"maps"
	"slices"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/reclaim"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/internal/ids"
)

// empty tells whether a shard has no fence row: its cell was never installed.
func empty(shard facts) bool { return shard.row.Cell == "" }

// storedBy gives what etcd has, with the campaigns as the shards show them.
func storedBy(s view.Snapshot, shards []facts) stored {
	return stored{
		books: s.Books(""), cells: s.CellsByID(), stocks: s.Stock, campaigns: campaignsOf(s, shards), settled: settled(s),
		booked: func(cell ids.CellID, version int64, key core.BookKey) bool {
			id := reclaim.SealID(cell, version, key)
			record, known := s.Record(id)
			return known && record.Find(id) >= 0
		},
	}
}

// campaignsOf are the campaigns that etcd or a shard knows, as they are recovered;
// one whose rules cannot be read stays as etcd has it, and is named by its step.
func campaignsOf(s view.Snapshot, shards []facts) map[ids.CampaignID]core.Campaign {
	out := map[ids.CampaignID]core.Campaign{}
	for _, c := range s.Campaigns() {
		out[c.Spec.ID] = c
	}
	for id, t := range toldBy(shards) {
		stored, known := out[id]
		if next, differs, err := t.recovered(stored, known); err == nil && differs {
			out[id] = next
		}
	}
	return out
}

// unknownCells names the cells that a campaign, a book or whoever found the loss
// names, and of which etcd has no record: they were provisioned in the past that was
// lost, and what they hold nobody else can say.
func unknownCells(s view.Snapshot, shards []facts) []string {
	gone, names := settled(s), map[string]bool{}
	name := func(id ids.CellID) {
		if _, known := s.Cell(id); id != "" && !known {
			names[string(id)] = true
		}
	}
	if r, stands := s.Restored(); stands {
		name(r.Cell)
	}
	for id, c := range campaignsOf(s, shards) {
		if gone(id) || c.State == core.CampaignDraft {
			continue
		}
		for _, cell := range c.Spec.Cells {
			name(cell)
		}
	}
	for _, b := range s.Books("") {
		for _, a := range b.Allocations {
			if !gone(b.Key.Campaign) && a.WrittenOff.IsZero() {
				name(a.Cell)
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
