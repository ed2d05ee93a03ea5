// Package shard is the only door to a cell's PostgreSQL: what is true about stock, orders and
// payments of one cell (the mirror and the log are copies and hopes).
//
// # The one transaction
//
// Every write is a verb of Store and runs in inTx, READ COMMITTED:
//
//	BEGIN
//	SELECT pg_advisory_xact_lock_shared(key)   -- in a statement of its own
//	SELECT require_fence(version, group, need) -- reads the row after the lock was had
//	… the verb …
//	COMMIT
//
// The fencer takes the same lock exclusively. So a writer in flight is seen by the seal, and a
// writer that waited behind a fencer reads the new row and is refused (K01, K22). REPEATABLE READ, or
// lock and read in one statement, would let it commit on the old row: both were measured.
//
// A batch of the log (ApplyOrders) and asks of customers themselves (ApplyDirect: admission DATABASE, and
// the baseline while Redis is away) are the same transaction; the second has no position, and leaves no
// row of what it refused.
//
// # What callers can rely on
//
//   - Nothing is decided from what was read before a lock: rows are locked in one statement and read
//     in it or a later one; rows affected are compared with what was meant (a difference rolls back).
//   - Locks are taken in one order: positions, orders (by id), stock (by campaign and SKU), mirrors.
//   - Serialisation failures, deadlocks and lock time-outs are retried a bounded number of times.
//   - A commit whose answer was lost, or that ended with PostgreSQL's warning about its standby, is
//     ErrUnknownCommit. The verb is called again with the same ids: it first locks the rows it would
//     have changed, which waits for the old transaction, and then sees what became of it.
//   - Buckets are handed over by functions of the schema that only the fencer's role may call
//     (fencing/fencer). A place that came with them is CARRIED: its user gets no order here. A request
//     that came with its answer keeps it; on a schema of step 3 there are none.
//   - Times are the database's (cellquota.now()); no decision uses this process's clock.
//
// # Neighbours
//
// cell/reservation decides (pure tables), cell/orders, cell/payment and cell/closer call the verbs,
// cell/outbox and cell/rebuild carry what they leave behind to the mirror. The SQL lies in the .sql
// files beside the Go, one file per subject; migrations holds the schema.
package shard
