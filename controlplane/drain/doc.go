// Package drain takes a cell out of service while it lives: it sells nothing new and
// gives back what it has.
//
// Job: the operation drain-cell. Accepting it (reclaim.Orders, any replica) makes the
// cell DRAINING in one transaction: from then on no book gives it a unit, a grant that
// no shard has applied is void, and its processes refuse first attempts. Driver, the
// leader's, carries the operation on:
//
//	RETURNS  what its shard has available goes back, per SKU one numbered return
//	ORDERS   unpaid orders can be paid until they settle; what is released meanwhile
//	         goes back too
//	BUCKETS  it is home to nobody in a sale that is not over: an operator hands its
//	         buckets over, before, meanwhile or afterwards
//
// It ends DONE when nothing of that is left. Until then its detail names everything
// that is in the way, with numbers. The cell stays DRAINING: it is retired, or drain is
// aborted and it sells again.
//
// # Promise
//
// step is a pure function over facts (records and the shard's own rows, read as
// cellquota_reader); nothing in memory decides, so a driver that dies anywhere is
// followed by one that reads the same facts. A return's id is a digest of the operation
// and the version of the book that it was decided on: a repeat finds its record, and the
// shard decides each number once.
//
// What the rows say is advice whom to ask for how much. The units are the cell's until
// its shard has applied the return (I1); that it is empty in the end is proved by the
// fencer, when the cell is retired.
//
// A sale that is over, and waits to be settled, is left alone but for its orders: its
// account is about to be taken from the shards. A cell that dies meanwhile is fenced;
// the fence takes the cell from its drain.
//
// # Neighbours
//
// reclaim (accepts, aborts, retires, fences), core (verbs of the book), store (Move),
// view; planner calls Step, sends the returns and books the answers; api calls Preview.
package drain
