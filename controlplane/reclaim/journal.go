package reclaim

import (
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/view"
	"github.com/cellquota/cellquota/fencing"
	"github.com/cellquota/cellquota/internal/ids"
)

// journal gives the records of one (cell, SKU), those with something open of
// this cell apart. From the view: since the fence was ordered no transaction adds
// any (each compares the cells), and the caller waited for a revision behind it;
// what is open is read again inside the transaction.
func journal(s view.Snapshot, key core.BookKey, cell ids.CellID) (open, closed []core.Record) {
	records := s.Records(key.Campaign, 0, everything)
	slices.Reverse(records) // oldest first
	for _, r := range records {
		if r.Key != key {
			continue
		}
		concerns, isOpen := false, false
		for _, a := range r.Adjustments {
			if a.Cell == cell {
				concerns, isOpen = true, isOpen || a.Open()
			}
		}
		switch {
		case isOpen:
			open = append(open, r)
		case concerns:
			closed = append(closed, r)
		}
	}
	return open, closed
}

// sides gives the control plane's side of each SKU of a cell, as a proof is trimmed
// by it. Each campaign's journal is read once.
func sides(s view.Snapshot, cell ids.CellID) func(fencing.SKU) (fencing.Book, bool) {
	journals := map[ids.CampaignID]map[core.BookKey][]core.Record{}
	return func(sku fencing.SKU) (fencing.Book, bool) {
		key := keyOf(sku)
		book, known := s.Book(key)
		if !known {
			return fencing.Book{}, false
		}
		if journals[key.Campaign] == nil {
			journals[key.Campaign] = map[core.BookKey][]core.Record{}
			for _, r := range s.Records(key.Campaign, 0, everything) {
				journals[key.Campaign][r.Key] = append(journals[key.Campaign][r.Key], r)
			}
		}
		return bookOf(cell, book, journals[key.Campaign][key], 0), true
	}
}

func find(records []core.Record, adjustmentID string) (record, adjustment int) {
	for at, r := range records {
		if i := r.Find(adjustmentID); i >= 0 {
			return at, i
		}
	}
	return -1, -1
}

// The record of a reclaim says, in its parameters, how many units it brought to
// the reserve: sealed ones, voided grants and finished returns. A top-up gives
// away exactly that, also after a crash.

const freedFormat = "to_reserve=%d"

func freedText(p fencing.ReclaimPlan) string { return fmt.Sprintf(freedFormat, p.ToReserve()) }

func freed(r core.Record) int64 {
	var n int64
	if _, err := fmt.Sscanf(r.Parameters, freedFormat, &n); err != nil {
		return 0
	}
	return max(n, 0)
}

// Sealed is the record that a reclaim of one SKU would have left: recovery writes it
// for a fence whose reclaim etcd forgot or never had, so that none is tried again on
// books that were taken from the shards. With frozen the units stay in the cell's
// allocation, as under `reclaim: NEVER`; else they are in the reserve.
func Sealed(cell ids.CellID, version int64, key core.BookKey, units quantity.Quantity, frozen bool) core.Record {
	r := core.Record{ID: SealID(cell, version, key), Key: key, Parameters: fmt.Sprintf(freedFormat, 0)}
	if !frozen {
		r.Parameters = fmt.Sprintf(freedFormat, units.Int64())
		r.Adjustments = []core.Adjustment{{
			ID: r.ID, Key: key, Cell: cell, Kind: core.KindSeal, Units: units, State: core.StateDone, Outcome: core.OutcomeApplied,
			Step: core.Step{FenceVersion: version}, Evidence: core.EvidenceStoreFence,
		}}
	}
	return r
}

// reclaims gives the records of the reclaim of the standing fence.
func (w *work) reclaims(s view.Snapshot) []core.Record {
	var out []core.Record
	for _, b := range s.Books("") {
		if r, booked := s.Record(SealID(w.cell.Spec.ID, w.proof.Version.Int64(), b.Key)); booked {
			out = append(out, r)
		}
	}
	return out
}

func quantityOf(n int64) (quantity.Quantity, error) { return quantity.New(n) }
