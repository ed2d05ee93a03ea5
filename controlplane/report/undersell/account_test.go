package undersell_test

import (
	"errors"
	"testing"

	"github.com/cellquota/cellquota/allocator/quantity"
	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/internal/ids"
)

// one is a book of 100: reserve 60, and cell-1 with 40.
func one() (core.Book, core.Campaign, undersell.Holding) {
	q := quantity.Must
	return core.Book{
			Key: core.BookKey{Campaign: "c", SKU: "s"}, SaleLimit: q(100), Reserve: q(60),
			Allocations: []core.Allocation{{Cell: "cell-1", Granted: q(40), FenceVersion: 1, State: core.CellActive}},
		}, core.Campaign{Spec: core.CampaignSpec{ID: "c", Reclaim: core.ReclaimManual}, State: core.CampaignClosed},
		undersell.Holding{Cell: core.Cell{Spec: core.CellSpec{ID: "cell-1"}, State: core.CellActive, FenceVersion: 1}}
}

// Every unit has exactly one cause.
func TestEveryUnitHasItsCause(t *testing.T) {
	type sums map[undersell.Cause]int64
	for name, c := range map[string]struct {
		set       func(*core.Book, *core.Campaign, *undersell.Holding)
		stock     shards.Unsold
		open      bool
		confirmed int64
		want      sums
		err       error
	}{
		"left, reserved and sold": {
			stock: shards.Unsold{Granted: 40, Available: 10, Reserved: 5, Confirmed: 25}, confirmed: 25, want: sums{undersell.Unallocated: 60, undersell.LeftInCell: 15},
		},
		"released after the end, and reviewed": {
			stock:     shards.Unsold{Granted: 40, Available: 12, Reserved: 3, Confirmed: 25, UnderReview: 2, Parked: 4, ReleasedAfterEnd: 5},
			confirmed: 25, want: sums{undersell.Unallocated: 60, undersell.LeftInCell: 4, undersell.ReleasedAfterEnd: 5, undersell.UnderReview: 6},
		},
		"more released than is available: some was returned since": {
			stock: shards.Unsold{Granted: 40, Available: 3, Confirmed: 37, ReleasedAfterEnd: 9}, confirmed: 37, want: sums{undersell.Unallocated: 60, undersell.ReleasedAfterEnd: 3},
		},
		"more parked than is available": {
			stock: shards.Unsold{Granted: 40, Available: 3, Confirmed: 37, Parked: 9, ReleasedAfterEnd: 2}, confirmed: 37, want: sums{undersell.Unallocated: 60, undersell.UnderReview: 3},
		},
		"unreachable": {
			set:  func(_ *core.Book, _ *core.Campaign, h *undersell.Holding) { h.Err = shards.ErrUnreachable },
			want: sums{undersell.Unallocated: 60, undersell.Frozen: 40},
		},
		"fenced": {
			set: func(_ *core.Book, _ *core.Campaign, h *undersell.Holding) {
				h.Cell.State, h.Cell.ProofID = core.CellFenced, "cell-1/2"
			},
			stock: shards.Unsold{Granted: 30, Reserved: 5, Confirmed: 25}, confirmed: 25, want: sums{undersell.Unallocated: 60, undersell.Frozen: 15},
		},
		"sealed for good by reclaim: NEVER": {
			set: func(_ *core.Book, c *core.Campaign, h *undersell.Holding) {
				c.Spec.Reclaim, h.Cell.ProofID = core.ReclaimNever, "cell-1/2"
			},
			stock: shards.Unsold{Granted: 30, Available: 2, Confirmed: 28}, confirmed: 28, want: sums{undersell.Unallocated: 60, undersell.LeftInCell: 2, undersell.Frozen: 10},
		},
		"fenced and reclaimed after its SKU had settled": {
			set: func(b *core.Book, _ *core.Campaign, h *undersell.Holding) {
				b.Settled = true
				h.Cell.State, h.Cell.ProofID, h.Cell.Reclaimed = core.CellFenced, "cell-1/2", true
			},
			stock: shards.Unsold{Granted: 30, Confirmed: 30}, confirmed: 30, want: sums{undersell.Unallocated: 60, undersell.Frozen: 10},
		},
		"restored after that": {
			set: func(b *core.Book, _ *core.Campaign, h *undersell.Holding) {
				b.Settled, h.Cell.ProofID, h.Cell.Reclaimed = true, "cell-1/2", true
			},
			stock: shards.Unsold{Granted: 30, Confirmed: 30}, confirmed: 30, want: sums{undersell.Unallocated: 60, undersell.Frozen: 10},
		},
		"restored before its fence was booked": {
			set:   func(_ *core.Book, _ *core.Campaign, h *undersell.Holding) { h.Cell.ProofID = "cell-1/2" },
			stock: shards.Unsold{Granted: 30, Available: 2, Confirmed: 28}, confirmed: 28, want: sums{undersell.Unallocated: 60, undersell.LeftInCell: 2, undersell.Frozen: 10},
		},
		"written off, whatever a copy of the shard says": {
			set: func(b *core.Book, _ *core.Campaign, _ *undersell.Holding) {
				b.Allocations[0].WrittenOff = quantity.Must(40)
			},
			stock: shards.Unsold{Granted: 40, Confirmed: 40}, want: sums{undersell.Unallocated: 60, undersell.WrittenOff: 40},
		},
		"a grant on its way": {
			stock: shards.Unsold{Granted: 30, Available: 30}, open: true, want: sums{undersell.Unallocated: 60, undersell.LeftInCell: 40},
		},
		"fewer in the shard than allocated, and nothing on its way": {stock: shards.Unsold{Granted: 30, Available: 30}, err: undersell.ErrMoving},
		"reclaimed, and the book did not follow": {
			set: func(_ *core.Book, _ *core.Campaign, h *undersell.Holding) {
				h.Cell.State, h.Cell.ProofID, h.Cell.Reclaimed = core.CellFenced, "cell-1/2", true
			},
			stock: shards.Unsold{Granted: 30, Reserved: 5, Confirmed: 25}, err: undersell.ErrMoving,
		},
		"more in the shard than allocated": {stock: shards.Unsold{Granted: 41, Available: 41}, open: true, err: undersell.ErrMoving},
		"a row that does not add up":       {stock: shards.Unsold{Granted: 40, Available: 10, Reserved: -70, Confirmed: 100}, err: undersell.ErrMoving},
	} {
		t.Run(name, func(t *testing.T) {
			book, campaign, holding := one()
			holding.Stock = c.stock
			if c.set != nil {
				c.set(&book, &campaign, &holding)
			}
			got, err := undersell.Take(book, campaign, map[ids.CellID]undersell.Holding{"cell-1": holding}, c.open)
			if !errors.Is(err, c.err) || c.err != nil {
				if !errors.Is(err, c.err) {
					t.Fatalf("err = %v, want %v", err, c.err)
				}
				return
			}
			if got.Confirmed != c.confirmed || got.Confirmed+got.Unsold() != 100 {
				t.Errorf("confirmed %d, unsold %d", got.Confirmed, got.Unsold())
			}
			for _, cause := range undersell.Causes() {
				if got.Of(cause) != c.want[cause] {
					t.Errorf("%s: %d, want %d (%+v)", cause, got.Of(cause), c.want[cause], got.Cells)
				}
			}
			if len(got.ByCause()) != len(c.want) {
				t.Errorf("causes %+v, want %v", got.ByCause(), c.want)
			}
		})
	}
}
