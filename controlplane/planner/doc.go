// Package planner is the leader's loop: it finishes what was intended.
//
// Intents are written by any replica (package intent) or left behind by a caller
// that died; they stand in etcd as campaigns in PUBLISHING, journal records with
// open adjustments, and operations that have not ended. Every tick reads a
// snapshot of the view and takes these numbered steps:
//
//  1. close:    campaigns whose close_at has passed become CLOSED
//  2. publish:  each PUBLISHING campaign goes one step on (publish.go has the table)
//  3. join:     cells that joined after the publish get an allocation of 0 in every book
//  4. rules:    each linked cell gets the newest rules of each of its campaigns, and
//     whether an operator paused it (switch.go)
//  5. adjust:   each open adjustment is sent to its cell, in the order of numbers;
//     each limit change that no shard has recorded to one cell of its book
//  6. operate:  each open operation of another kind is handed to the driver of its kind,
//     once a second person has approved it where that is needed (approvals.go); one
//     that was rejected, or that nobody decided in time, is ended ABORTED
//  7. supply:   AUTO top-ups and rebalances of each SKU on sale (supply.go), at the
//     loop's own pace and only when every cell has been compared
//
// Nothing in memory decides: a tick that is repeated, by this leader or the
// next, comes to the same etcd. What memory holds only spares work: what was
// sent over which stream, and which shards this leader has compared.
//
// # When a directive may be sent
//
// Never from the view: the view finds candidates; ReadForSending then reads
// record, book, campaign and cell in one linearizable transaction that verifies
// the leader, and only what that read shows is sent. And only to a cell whose
// reporter, over its present stream, has raised the shard's term row to this
// leader's term and whose facts then agreed with the books (compare.go). A shard
// that knows a number or a record that etcd does not have means that etcd lost its
// past: core.ErrRestored, and this leader grants nothing to anyone any more.
//
// # A thousand cells
//
// What goes to many cells at once is read once: the rules of a campaign, the
// adjustments of one record. What comes back at once is booked together, record by
// record (settler.go): a thousand answers to one publish are some ten transactions.
// So a tick costs in proportion to the cells, and not to their square.
//
// # Traces
//
// Each step of an operation, a publish's too, is a span "operation KIND" of its own
// trace (span.go): operation, operation_id, step, campaign_id, sku_id, cell_id, and
// the error that the step came back with. A driver that stores why an operation
// waits has no error: the operation's own detail says it.
//
// # Neighbours
//
// link implements Cells and calls the On… handlers; reclaim, quota and settle
// implement Operations for their kinds (ByKind); edges' acknowledgements come
// through Edges, which package api implements.
package planner
