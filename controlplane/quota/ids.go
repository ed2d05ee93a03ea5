package quota

import (
	"strconv"
	"strings"

	"github.com/cellquota/cellquota/controlplane/core"
	"github.com/cellquota/cellquota/internal/ids"
)

// Ids of the records and adjustments that an operation makes. A transfer's keep the
// caller's prefix, so that `quota history` shows them side by side. Those of a
// lowering or of a rebalance are digests behind a prefix that no caller may bring: however long the
// names, they are within what shards take.

// ReturnID names the return of a transfer, in journal and shard.
func ReturnID(transfer string) string { return transfer + ".return" }

// GrantID names the grant of a transfer.
func GrantID(transfer string) string { return transfer + ".grant" }

// limitID names the records by which a lowering goes on from a version of the book.
func limitID(operation, what string, bookVersion int64) string {
	return "limit." + core.Digest(operation, what, strconv.FormatInt(bookVersion, 10))
}

// limitReturnID names one cell's return inside such a record.
func limitReturnID(record string, cell ids.CellID) string {
	return "limit." + core.Digest(record, string(cell))
}

// born tells apart two rebalances under one id: an operation is forgotten after
// operations.keep, its journal is not.
func born(op core.Operation) string { return strconv.FormatInt(op.StartedAt.UnixNano(), 10) }

// roundID names the record of a SKU's n-th round of a rebalance.
func roundID(op core.Operation, sku ids.SKUID, n int) string {
	return "rebalance." + core.Digest(op.ID, born(op), "round", string(sku), strconv.Itoa(n))
}

// moveReturnID and moveGrantID name the adjustments of the move at a place of a plan.
func moveReturnID(op core.Operation, at int) string {
	return "rebalance." + core.Digest(op.ID, born(op), "return", strconv.Itoa(at))
}

func moveGrantID(op core.Operation, at int) string {
	return "rebalance." + core.Digest(op.ID, born(op), "grant", strconv.Itoa(at))
}

// keyOf gives the book that an operation of this room is about.
func keyOf(op core.Operation) core.BookKey {
	campaign, sku, _ := strings.Cut(op.Subject, "/")
	return core.BookKey{Campaign: ids.CampaignID(campaign), SKU: ids.SKUID(sku)}
}
