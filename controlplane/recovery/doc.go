// Package recovery brings the control plane back after etcd lost its past.
//
// Two jobs. Witness reads the shard of a cell whose processes are silent, under the
// fencer's role, so that a new leader can compare it with the books. And the
// operation recover-store sets the books to what the shards hold:
//
//	TERMS      raise every shard's term row to this leader's; where one knows a
//	           higher term, raise /term above it and let a next leader go on
//	CELLS      each cell's record takes its shard's fence version, state and group
//	CAMPAIGNS  each campaign takes the highest rules that a shard was told, under a
//	           version above them; one that etcd does not know is made from them
//	BOOKS      per SKU: the journal learns what the shards decided, open adjustments
//	           are ended as the shard ended them, and the book's allocations become
//	           what the shards were granted; the rest of the confirmed limit is the
//	           reserve
//	CONFIRM    /restored is deleted, and a new leadership begins
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
// What no shard remembers is not recovered: operations that had begun, top-ups
// that no shard had taken, approvals and audit of the lost time.
//
// # Neighbours
//
// fencing/fencer reads shards; store writes; planner calls Step and, as Witness,
// reads silent cells; api/recovery.go takes the order.
package recovery
