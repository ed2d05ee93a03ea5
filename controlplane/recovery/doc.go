// Package recovery brings the control plane back after etcd lost its past.
//
// Two jobs. Witness reads the shard of a cell whose processes are silent, under the
// fencer's role, so that a new leader can compare it with the books. And the
// operation recover-store sets the books to what the shards hold:
//
//	TERMS      raise every shard's term row to this leader's; where one knows a
//	           higher term, raise /term above it and let a next leader go on. Waits,
//	           by name, for a shard that does not answer, and for a cell that etcd does
//	           not know and a campaign, a book or the loss itself names
//	CELLS      each cell's record takes its shard's fence version, state and group, and
//	           its switch: it stays paused, at a version above what the shard was told.
//	           Each fence that etcd forgot gets its proof; a restore that was lost half
//	           way gets an operation that finishes it
//	CAMPAIGNS  each campaign takes the highest rules that a shard was told, under a
//	           version above them; one that etcd does not know is made from them
//	BOOKS      the journal learns what the shards decided and what fences sealed, open
//	           adjustments are ended as the shard ended them; each physical stock takes
//	           the limits of all its campaigns at once; and per SKU the book's
//	           allocations become what the shards were granted (and, under `reclaim:
//	           NEVER`, what is frozen); the rest of the confirmed limit is the reserve
//	OPERATIONS those that move units, or wait for a word, end; those of cells go on
//	TOKENS     every bearer token of etcd is revoked
//	CONFIRM    /restored is deleted, /cluster keeps this leader's term, so that a replica
//	           that was away learns of the recovery, and a new leadership begins
//
// # Promise
//
// Nothing is granted while it runs: /restored stands, and every transaction here
// is conditional on it. A shard's granted cannot move meanwhile either, because
// only a leader's adjustment moves it and every shard has this leader's term. So
// each step can be repeated by the next leader from the records alone: it reads
// the shards again and writes what differs.
//
// I1 holds in every book that is written. I2 holds because allocations are the
// shards' own figures. I3 holds because the least limit is the sum of them, and a
// limit below it blocks the operation before it changes anything.
//
// A fence's sealed units are in the recovered reserve, so its seal is written as booked:
// a fence that stood unreclaimed in the backup has nothing left to reclaim, and the next
// one's sums come out.
//
// What no shard remembers is not recovered: operations that had begun, top-ups
// that no shard had taken, approvals and audit of the lost time. Nothing of it is
// carried out a second time (ADR 0011).
//
// # Neighbours
//
// fencing/fencer reads shards; store writes; planner calls Step and, as Witness,
// reads silent cells; api/recovery.go takes the order.
package recovery
