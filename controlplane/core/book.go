package core

import (
	"cmp"
	"slices"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/internal/ids"
)

// BookKey names a book: one SKU of one campaign.
type BookKey struct {
	Campaign ids.CampaignID
	SKU      ids.SKUID
}

// String is CAMPAIGN/SKU, as it stands in etcd.
func (k BookKey) String() string { return string(k.Campaign) + "/" + string(k.SKU) }

// Book is the control plane's record of one SKU. It is a value: verbs give a
// changed copy. Written only by the verbs in verbs.go and by Stamp.
type Book struct {
	Key       BookKey
	SaleLimit quantity.Quantity
	Reserve   quantity.Quantity
	Version   int64 // grows by 1 with every stored change, from 1
	// Allocations, ascending by cell id, one per cell.
	Allocations []Allocation
	// LimitTarget is the limit a lowering wants to reach; 0: none under way.
	LimitTarget quantity.Quantity
	// Final: FINAL_SOLD_OUT was declared. Never taken back, also when units come
	// home afterwards (a refund that restocks, then a fence): nobody is granted them.
	Final bool
	// Settled: the campaign's account was taken, and the limit left the physical
	// stock. No step is begun any more; what a shard did is still booked.
	Settled bool
	// LastRecordID is the journal record of the newest change: identities, not
	// counters, show that etcd lost its past.
	LastRecordID string
	// ModRevision is etcd's revision of the key this was read at; 0: not stored.
	ModRevision int64
}

// Allocation is the units of one SKU granted to one cell.
type Allocation struct {
	Cell    ids.CellID
	Granted quantity.Quantity
	// FenceVersion is the cell's of the last step; LastNumber counts under it.
	FenceVersion int64
	LastNumber   int64
	// CellVersion and State are copies of the cell's record at the last step. The
	// truth is /cells/ID.
	CellVersion int64
	State       CellState
	// WrittenOff units stay in Granted: they may or may not have been sold.
	WrittenOff quantity.Quantity
	// FirstGrant of the campaign; low water is measured against it.
	FirstGrant quantity.Quantity
}

// Allocation gives a cell's allocation and whether there is one.
func (b Book) Allocation(cell ids.CellID) (Allocation, bool) {
	at, found := b.find(cell)
	if !found {
		return Allocation{}, false
	}
	return b.Allocations[at], true
}

func (b Book) find(cell ids.CellID) (int, bool) {
	return slices.BinarySearchFunc(b.Allocations, cell, func(a Allocation, id ids.CellID) int { return cmp.Compare(a.Cell, id) })
}

// Allocated gives Σ granted.
func (b Book) Allocated() int64 {
	var total int64
	for _, a := range b.Allocations {
		total += a.Granted.Int64()
	}
	return total
}

// Check verifies the book's law and shape: I1, cells ascending and once each,
// written-off units within the allocation. ErrBroken names what does not hold;
// such a book must not be stored and, when read, is quarantined.
func (b Book) Check() error {
	if b.Key.Campaign == "" || b.Key.SKU == "" {
		return broken("a book without campaign or SKU")
	}
	if sum := b.Reserve.Int64() + b.Allocated(); sum != b.SaleLimit.Int64() {
		return broken("I1 of %s: sale_limit %s, but reserve %s and allocations add up to %d", b.Key, b.SaleLimit, b.Reserve, sum)
	}
	if b.LimitTarget.Cmp(b.SaleLimit) > 0 {
		return broken("%s: limit_target %s is above sale_limit %s", b.Key, b.LimitTarget, b.SaleLimit)
	}
	for i, a := range b.Allocations {
		switch {
		case a.Cell == "" || i > 0 && a.Cell <= b.Allocations[i-1].Cell:
			return broken("%s: cell %q is out of order, unnamed or repeated", b.Key, a.Cell)
		case a.WrittenOff.Cmp(a.Granted) > 0:
			return broken("%s: cell %s has %s of %s units written off", b.Key, a.Cell, a.WrittenOff, a.Granted)
		case a.FenceVersion < 1 || a.LastNumber < 0 || !a.State.Valid():
			return broken("%s: cell %s has fence version %d, number %d, state %s", b.Key, a.Cell, a.FenceVersion, a.LastNumber, a.State)
		}
	}
	return nil
}

// Stamp gives the book as it is stored: next version, explained by the record.
func (b Book) Stamp(recordID string) Book {
	b = b.clone()
	b.Version++
	b.LastRecordID = recordID
	return b
}

func (b Book) clone() Book {
	b.Allocations = slices.Clone(b.Allocations)
	return b
}
