// Package undersell says where every unit is that was not sold (I10).
//
// Job: one account per SKU, from the book and every cell's shard:
//
//	sale_limit = confirmed + Σ units by cause
//
//	UNALLOCATED         the central reserve: granted to nobody
//	LEFT_IN_CELL        available in a cell, or reserved and not paid yet, or on its way to or from it
//	RELEASED_AFTER_END  came back to a cell when the sale was over: an unpaid order closed, a refund restocked
//	FROZEN              in a cell that cannot be asked, or that may not sell: its fence is not booked,
//	                    its restore not done, or its units stay with it: by `reclaim: NEVER`,
//	                    or because the SKU had settled before
//	WRITTEN_OFF         in a cell that is lost; may or may not have been sold
//	UNDER_REVIEW        a person has to look: a reservation in MANUAL_REVIEW, a parked message
//
// Promise: the sum is exact, or there is no account (ErrMoving): units are never
// guessed to make it fit. A cell that does not answer has all its units FROZEN and
// is named. Before the end RELEASED_AFTER_END is 0.
//
// Account is pure; Reader reads the shards. A book that moved while the shards were
// read is read again a few times.
//
// # Neighbours
//
// report/shards reads PostgreSQL as the reader; api serves GetUndersell;
// report/campaignreport adds what shards count, for settle's archive; report/verify holds them against I10.
package undersell
