package routes

import (
	"time"

	"github.com/hashicorp/go-memdb"

	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
)

// Key is one key's state as the control plane has it; its bytes are a file of this edge.
type Key struct {
	Use string // permit, receipt or payment
	signed.Status
}

// Snapshot is one immutable state of the copy. The nil Snapshot is empty.
type Snapshot struct {
	Revision int64     // of the control plane's view
	At       time.Time // when it was applied here
	txn      *memdb.Txn
}

// Campaign returns the campaign of that id; false also for one that is quarantined.
func (s *Snapshot) Campaign(id ids.CampaignID) (*route.Campaign, bool) {
	c, ok := s.first(campaigns, string(id)).(*route.Campaign)
	return c, ok
}

// Cell returns the cell of that id, or nil.
func (s *Snapshot) Cell(id ids.CellID) *route.Cell {
	c, _ := s.first(cells, string(id)).(*route.Cell)
	return c
}

// first returns the object of that id, or nil. A read transaction may be shared: looking up reads
// an immutable tree.
func (s *Snapshot) first(table, id string) any {
	if s == nil || s.txn == nil {
		return nil
	}
	o, err := s.txn.First(table, byID, id)
	if err != nil {
		return nil // only for a table or an index that the schema does not have
	}
	return o
}

// Campaigns yields every campaign, in order of their ids.
func (s *Snapshot) Campaigns(yield func(*route.Campaign) bool) {
	each(s, campaigns, yield)
}

// Cells yields every cell, in order of their ids.
func (s *Snapshot) Cells(yield func(*route.Cell) bool) {
	each(s, cells, yield)
}

// KeyStates are the states of the keys of a use; none: the control plane has said nothing about them.
func (s *Snapshot) KeyStates(use signed.Use) (out []signed.Status) {
	each(s, keys, func(k Key) bool {
		if k.Use == string(use) {
			out = append(out, k.Status)
		}
		return true
	})
	return out
}

func each[T any](s *Snapshot, table string, yield func(T) bool) {
	if s == nil || s.txn == nil {
		return
	}
	it, err := s.txn.Get(table, byID)
	if err != nil {
		return
	}
	for o := it.Next(); o != nil; o = it.Next() {
		if v, ok := o.(T); ok && !yield(v) {
			return
		}
	}
}
