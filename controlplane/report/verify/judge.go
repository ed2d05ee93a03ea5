package verify

import (
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/controlplane/report/shards"
	"github.com/cellquota/cellquota/controlplane/report/undersell"
	"github.com/cellquota/cellquota/internal/ids"
)

// judgeBooks checks I1 and the second half of I3 on the control plane's side.
func judgeBooks(t *tally, cut Cut) {
	for _, b := range cut.Books {
		if err := b.Check(); err != nil {
			t.breach(I1, string(b.Key.Campaign), string(b.Key.SKU), "", "%v", err)
		}
	}
	for what, err := range cut.Unreadable {
		if key, isBook := strings.CutPrefix(what, "books: "); isBook {
			t.breach(I1, "", "", "", "%s: %v", key, err)
			continue
		}
		t.miss(what, err.Error(), I1, I3)
	}
	for _, p := range cut.Physical {
		if err := p.Check(); err != nil {
			t.breach(I3, "", string(p.SKU), "", "%v", err)
		}
	}
	t.says(I1, "%d books at revision %d: sale_limit = reserve + allocations", len(cut.Books), cut.Revision)
}

// sums of one SKU over the shards that answered.
type sums struct{ granted, available, reserved, confirmed int64 }

// judgeSums checks I2's second half and I3 for one book that did not change during the cut. It
// answers the sums, and false when a shard that may hold units of it did not answer.
func judgeSums(t *tally, b core.Book, shards []shardCut) (sums, bool) {
	campaign, sku := string(b.Key.Campaign), string(b.Key.SKU)
	var total sums
	whole := true
	for _, s := range shards {
		allocation, _ := b.Allocation(s.cell.Spec.ID)
		if s.err != nil {
			if !allocation.Granted.IsZero() && allocation.WrittenOff != allocation.Granted {
				t.miss("cell "+string(s.cell.Spec.ID)+" "+b.Key.String(), s.err.Error(), I2, I3)
				whole = false
			}
			continue
		}
		row := s.stocks[b.Key]
		if row.Granted > allocation.Granted.Int64() {
			t.breach(I2, campaign, sku, string(s.cell.Spec.ID), "the shard holds %d units, the book allocates %s", row.Granted, allocation.Granted)
		}
		total.granted += row.Granted
		total.available += row.Available
		total.reserved += row.Reserved
		total.confirmed += row.Confirmed
	}
	if held := total.reserved + total.confirmed; held > b.SaleLimit.Int64() {
		t.breach(I3, campaign, sku, "", "reserved %d + confirmed %d over all shards exceed the sale limit %s", total.reserved, total.confirmed, b.SaleLimit)
	}
	if held := b.Reserve.Int64() + total.granted; held > b.SaleLimit.Int64() {
		t.breach(I3, campaign, sku, "", "reserve %s + granted %d over all shards exceed the sale limit %s", b.Reserve, total.granted, b.SaleLimit)
	}
	return total, whole
}

// judgeEnd checks I10 for a book whose campaign is closed and drained, by the account
// that undersell makes; else it is skipped.
func judgeEnd(t *tally, b core.Book, campaign core.Campaign, cuts []shardCut) {
	held := map[ids.CellID]undersell.Holding{}
	for _, s := range cuts {
		row := s.stocks[b.Key]
		held[s.cell.Spec.ID] = undersell.Holding{Cell: s.cell, Err: s.err, Stock: unsold(row)}
	}
	if _, err := undersell.Take(b, campaign, held, false); err != nil {
		t.breach(I10, string(b.Key.Campaign), string(b.Key.SKU), "", "nothing is under way, and yet: %v", err)
	}
}

// drained: nothing of the book can move any more, and every shard that holds units
// of it was read.
func drained(total sums, whole, closed, open bool) bool {
	return closed && whole && !open && total.reserved == 0
}

func unsold(row shards.Stock) shards.Unsold {
	return shards.Unsold{SKU: row.SKU, Granted: row.Granted, Available: row.Available, Reserved: row.Reserved, Confirmed: row.Confirmed}
}

// frozen is what a cell's allocation holds beyond its shard's granted because its last fence is not
// booked yet, or never will be (never: the campaign's `reclaim: NEVER`, or the SKU had settled).
func frozen(b core.Book, cuts []shardCut, never bool) int64 {
	var units int64
	for _, s := range cuts {
		fenced := s.cell.State == core.CellFencing || s.cell.ProofID != "" && (never || !s.cell.Reclaimed)
		if a, ok := b.Allocation(s.cell.Spec.ID); ok && fenced && s.err == nil {
			units += a.Granted.Int64() - s.stocks[b.Key].Granted
		}
	}
	return units
}
