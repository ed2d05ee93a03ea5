// Package retention empties what a settled campaign leaves in its cell, and keeps what must stay.
//
// Job: for every campaign that is SETTLED here for archive_after, by the database's clock:
//
//	mirror   its keys leave Redis, head first: marks, records, streams (records have an end of
//	         their own too, close + status_retention)
//	ledger   its entries move from their partition into cellquota.ledger_archive, a bounded page
//	         per transaction, after what the ledger began and ended at was noted; the last step
//	         compares both, entry by entry in sums, and only then drops the partition
//	inbox    rows older than replay go: no log and no backup has their message any more, and
//	         the campaign's receipts ended when it was archived. Parked ones stay
//
// Bounds: the ledger has one partition per campaign that is not archived, and one for what comes
// after an archive (a fence seals what was left); the inbox has the rows of campaigns that are
// not archived, and of replay's time. Outbox rows are cell/outbox's matter: those that left go
// after outbox.keep.
//
// What stays for ever: the archived ledger in the views, immutable; orders, payments, refunds,
// reservations and buyers, so that a late callback is recorded and answered, and I4 holds. A late
// refund gives money back and no unit.
//
// Every write is in shard's transaction function, under the fence; a fenced cell archives
// nothing. Every step is repeated without effect, by any number of processes, and a process that
// dies leaves what the next one goes on from: where the copy stands is in the shard.
//
// # Neighbours
//
// shard has the statements and the step function of the schema; admission discards mirrors; wire
// starts the loop with the role outbox, whose process empties what has left.
package retention
