package core

import (
	"maps"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/internal/ids"
)

// Verbs of a SKU's limit. A raise adds to the reserve. A lowering takes the
// reserve at once and keeps its target in the book; units that cells return
// follow by Shrink, until limit and target meet or EndLowering gives up what
// nobody has available. While a target stands no unit leaves the reserve for a
// cell (Grant).
//
// The adjustment of kind LIMIT that explains such a change carries, as its Units,
// the limit that stands after it.

// SetLimit asks for another limit. One at or above the present one adds the
// difference to the reserve and ends a lowering that is under way; a lower one
// becomes the target, and takes what the reserve has. ErrFinal, ErrSettled.
func (b Book) SetLimit(limit quantity.Quantity) (Book, error) {
	if err := atLeastOne("sale_limit", limit); err != nil {
		return Book{}, err
	}
	if b.Final {
		return Book{}, numbered(ErrFinal, "campaign_id", b.Key.Campaign, "sku_id", b.Key.SKU)
	}
	if err := b.MayBegin(); err != nil {
		return Book{}, err
	}
	next := b.clone()
	if limit.Cmp(b.SaleLimit) < 0 {
		next.LimitTarget = limit
		next, _, err := next.Shrink()
		return next, err
	}
	more, err := limit.Sub(b.SaleLimit)
	if err != nil {
		return Book{}, err
	}
	if next.Reserve, err = b.Reserve.Add(more); err != nil {
		return Book{}, err
	}
	next.SaleLimit, next.LimitTarget = limit, quantity.Quantity{}
	return next, next.Check()
}

// Shrink takes what the reserve has of what the limit still stands above its
// target; moved is false where there is nothing to take. At the target the
// lowering is over and the book has none any more. ErrSettled.
func (b Book) Shrink() (next Book, moved bool, err error) {
	if err := b.MayBegin(); err != nil {
		return Book{}, false, err
	}
	above, err := b.SaleLimit.Sub(b.LimitTarget)
	if err != nil || b.LimitTarget.IsZero() {
		return b, false, err
	}
	take := quantity.Min(above, b.Reserve)
	next = b.clone()
	if next.Reserve, err = b.Reserve.Sub(take); err != nil {
		return Book{}, false, err
	}
	if next.SaleLimit, err = b.SaleLimit.Sub(take); err != nil {
		return Book{}, false, err
	}
	if next.SaleLimit == next.LimitTarget {
		next.LimitTarget = quantity.Quantity{}
	}
	return next, !take.IsZero(), next.Check()
}

// EndLowering gives up the rest of a lowering: the limit stays where it is. ErrSettled:
// the account of the book was taken.
func (b Book) EndLowering() (Book, error) {
	if err := b.MayBegin(); err != nil {
		return Book{}, err
	}
	next := b.clone()
	next.LimitTarget = quantity.Quantity{}
	return next, next.Check()
}

// BelowFloor is ErrBelowFloor with the numbers: a limit cannot go below what is
// sold and reserved.
func BelowFloor(limit, floor quantity.Quantity) error {
	return numbered(ErrBelowFloor, "sale_limit", limit, "floor", floor)
}

// Lowering is ErrLowering with the numbers of a book.
func Lowering(b Book) error {
	return numbered(ErrLowering, "sale_limit", b.SaleLimit, "limit_target", b.LimitTarget)
}

// LimitState is the journal's state of a limit change when it is written: it
// awaits the word of one shard that has recorded it, if any cell holds units that
// are not written off.
func (b Book) LimitState() JournalState {
	for _, a := range b.Allocations {
		if a.Granted.Cmp(a.WrittenOff) > 0 {
			return StateBooked
		}
	}
	return StateDone
}

// SetLimit gives the stock with another limit of a campaign that holds one
// already; changed is false for the limit that it has. ErrStockShort where the
// limits of all campaigns would not fit any more.
func (p PhysicalStock) SetLimit(campaign ids.CampaignID, limit quantity.Quantity) (next PhysicalStock, changed bool, err error) {
	present, holds := p.Limits[campaign]
	switch {
	case !holds:
		return PhysicalStock{}, false, broken("physical stock of %s: %s holds no limit", p.SKU, campaign)
	case present == limit:
		return p, false, nil
	}
	if sum := p.held(campaign) + limit.Int64(); sum > p.Units.Int64() {
		return PhysicalStock{}, false, numbered(ErrStockShort, "sku_id", p.SKU, "physical_stock", p.Units, "limits", sum, "sale_limit", limit)
	}
	next = p
	next.Limits = maps.Clone(p.Limits)
	next.Limits[campaign] = limit
	next.Version++
	return next, true, next.Check()
}
