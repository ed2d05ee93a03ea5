package undersell

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/internal/ids"
)

// ErrMoving: a shard and the book do not agree, because a unit was in motion while
// they were read. Read again.
var ErrMoving = errors.New("units were in motion while they were counted")

// Cause is why units are unsold.
type Cause string

// The causes, as the contract names them.
const (
	Unallocated      Cause = "UNALLOCATED"
	LeftInCell       Cause = "LEFT_IN_CELL"
	ReleasedAfterEnd Cause = "RELEASED_AFTER_END"
	Frozen           Cause = "FROZEN"
	WrittenOff       Cause = "WRITTEN_OFF"
	UnderReview      Cause = "UNDER_REVIEW"
)

// Causes lists them in the contract's order.
func Causes() []Cause {
	return []Cause{Unallocated, LeftInCell, ReleasedAfterEnd, Frozen, WrittenOff, UnderReview}
}

// Units of one cause; Cell is empty for the reserve.
type Units struct {
	Cause Cause      `json:"cause"`
	Cell  ids.CellID `json:"cell_id,omitempty"`
	Units int64      `json:"units"`
}

// Account is where one SKU's units are. SaleLimit = Confirmed + Σ Cells.
type Account struct {
	SKU       ids.SKUID `json:"sku_id"`
	SaleLimit int64     `json:"sale_limit"`
	Confirmed int64     `json:"confirmed"`
	// Cells are the unsold units per cell and cause, the reserve first; none is 0.
	Cells []Units `json:"cells"`
}

// ByCause sums the units per cause, in the contract's order; causes of 0 are left out.
func (a Account) ByCause() []Units {
	var out []Units
	for _, cause := range Causes() {
		if n := a.Of(cause); n > 0 {
			out = append(out, Units{Cause: cause, Units: n})
		}
	}
	return out
}

// Of gives the units of one cause.
func (a Account) Of(cause Cause) (units int64) {
	for _, u := range a.Cells {
		if u.Cause == cause {
			units += u.Units
		}
	}
	return units
}

// Unsold gives Σ over all causes.
func (a Account) Unsold() (units int64) {
	for _, u := range a.Cells {
		units += u.Units
	}
	return units
}

// Holding is what is known of one cell: its record and its shard's stock row of the
// SKU; Err when the shard did not answer.
type Holding struct {
	Cell  core.Cell
	Stock shards.Unsold
	Err   error
}

// Take makes the account of a book. cells holds every cell of the book; open tells
// that an adjustment of the SKU has no answer yet, so that a shard may hold less
// than the book allocates. ErrMoving.
func Take(book core.Book, campaign core.Campaign, cells map[ids.CellID]Holding, open bool) (Account, error) {
	out := Account{SKU: book.Key.SKU, SaleLimit: book.SaleLimit.Int64()}
	out.add(Unallocated, "", book.Reserve.Int64())
	for _, a := range book.Allocations {
		holding, known := cells[a.Cell]
		if !known {
			holding.Err = fmt.Errorf("%w: %s", core.ErrUnknownCell, a.Cell)
		}
		if err := out.cell(a, holding, campaign.Spec.Reclaim == core.ReclaimNever || book.Settled, open); err != nil {
			return Account{}, err
		}
	}
	if sum := out.Confirmed + out.Unsold(); sum != out.SaleLimit {
		return Account{}, fmt.Errorf("%w: %s: confirmed %d and unsold %d, the limit is %d", ErrMoving, book.Key, out.Confirmed, out.Unsold(), out.SaleLimit)
	}
	slices.SortStableFunc(out.Cells, func(a, b Units) int { return cmp.Compare(a.Cell, b.Cell) })
	return out, nil
}

func (a *Account) add(cause Cause, cell ids.CellID, units int64) {
	if units > 0 {
		a.Cells = append(a.Cells, Units{Cause: cause, Cell: cell, Units: units})
	}
}

// cell adds one allocation's units. What was written off is not looked at: the
// shard is lost, and a copy of it that answers proves nothing. stays: a fence's
// sealed units stay in the allocation, by the campaign's rule or because the SKU
// had settled before.
func (a *Account) cell(allocation core.Allocation, holding Holding, stays, open bool) error {
	id, units := allocation.Cell, allocation.Granted.Int64()-allocation.WrittenOff.Int64()
	a.add(WrittenOff, id, allocation.WrittenOff.Int64())
	if units == 0 {
		return nil
	}
	if holding.Err != nil {
		a.add(Frozen, id, units)
		return nil //nolint:nilerr // the account says FROZEN, and names the cell
	}
	s := holding.Stock
	outside := units - s.Granted // allocated, and not in the shard
	frozen := mayNotSell(holding.Cell)
	sealed := holding.Cell.ProofID != "" && (stays || !holding.Cell.Reclaimed)
	cut := holding.Cell.State == core.CellFencing || holding.Cell.State == core.CellRegressed // its book follows later
	if outside < 0 || outside > 0 && !open && !sealed && !cut {
		return fmt.Errorf("%w: %s, cell %s: the book allocates %d, the shard holds %d", ErrMoving, a.SKU, id, units, s.Granted)
	}
	a.Confirmed += s.Confirmed
	if frozen {
		a.add(Frozen, id, units-s.Confirmed)
		return nil
	}
	review := s.UnderReview + min(s.Parked, s.Available)
	released := min(s.ReleasedAfterEnd, max(0, s.Available-s.Parked))
	if sealed {
		a.add(Frozen, id, outside)
		outside = 0
	}
	a.add(LeftInCell, id, s.Granted-s.Confirmed-review-released+outside)
	a.add(ReleasedAfterEnd, id, released)
	a.add(UnderReview, id, review)
	return nil
}

// mayNotSell: what the cell holds is neither on sale nor free for others.
func mayNotSell(c core.Cell) bool {
	switch c.State {
	case core.CellFencing, core.CellFenced, core.CellRestoring, core.CellRegressed:
		return true
	default:
		return false
	}
}
