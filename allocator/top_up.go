package allocator

import (
	"fmt"

	"github.com/cellquota/cellquota/allocator/quantity"
)

// TopUp is what a top-up of one cell is decided from. The caller leaves out
// cells that may not be granted anything: suspect, draining or fenced ones, and
// those that own no bucket of the campaign.
type TopUp struct {
	FirstGrant  quantity.Quantity // what the cell was granted at publish
	Reserve     quantity.Quantity // the present central reserve
	Available   quantity.Quantity // the cell's last reported available
	LowWaterPct Percent           // of FirstGrant: at or below it the cell is low
	TranchePct  Percent           // of Reserve: the size of one tranche
}

// TopUpReason says why a tranche has the size it has.
type TopUpReason uint8

// The reasons. The zero value is none of them.
const (
	TopUpDue     TopUpReason = iota + 1 // the cell is low and gets the tranche
	NotLow                              // the cell still has more than the low-water mark
	ReserveEmpty                        // the cell is low, but nothing is left to give
)

var topUpReasonNames = [...]string{TopUpDue: "DUE", NotLow: "NOT_LOW", ReserveEmpty: "RESERVE_EMPTY"}

// String gives the reason as a word for logs and metrics.
func (r TopUpReason) String() string {
	if r >= TopUpDue && int(r) < len(topUpReasonNames) {
		return topUpReasonNames[r]
	}
	return fmt.Sprintf("TopUpReason(%d)", uint8(r))
}

// Tranche decides the next grant from the reserve. A cell is low when its
// available is at or below LowWaterPct of its first grant. A tranche is
// TranchePct of the *present* reserve, so tranches shrink as the reserve does
// and no single cell strands its last units (G-06); but at least 1 unit while
// there is one, so the reserve can always be drawn to the end.
//
// Two cells that are low in the same round are decided one after the other,
// each with the reserve that the one before left.
func Tranche(t TopUp) (quantity.Quantity, TopUpReason) {
	if t.Available.Cmp(t.LowWaterPct.Of(t.FirstGrant)) > 0 {
		return quantity.Quantity{}, NotLow
	}
	if t.Reserve.IsZero() {
		return quantity.Quantity{}, ReserveEmpty
	}
	part := t.TranchePct.Of(t.Reserve)
	if part.IsZero() {
		part = quantity.Must(1)
	}
	return part, TopUpDue
}
