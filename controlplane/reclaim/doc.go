// Package reclaim takes the right to write from a cell, its unsold units with
// proof, hands them to others, and gives the right back.
//
// Orders (any replica) accept what an operator asks for: one transaction writes
// the operation and, for a fence, the cell's record as FENCING with the next
// version, so that from the moment of acceptance no book gives the cell a unit.
// Driver (the leader) carries operations on, one stored step after the other:
//
//	FENCING      raise the shard's term, fence it, store the proof; cell FENCED
//	RECLAIMING   per SKU one book transaction with the moves of fencing.PlanReclaim
//	TOP_UP       grant exactly what came back to the other live cells, by weight
//	RESTORING    cell RESTORING at the next version; shard SETTLE_ONLY
//	SETTLE_ONLY  after the close grace: shard ACTIVE, then cell ACTIVE
//
// A cell whose shard is gone for good has a way of its own (write_off.go, attest.go):
//
//	ATTESTING    approved by a second person and the shard still silent: the cell is
//	             taken from its fence, their word stored as the proof; cell FENCED
//	RECLAIMING   per SKU one book transaction with the moves of fencing.PlanWriteOff
//	RETIRING     cell RETIRED; its shard is never used again
//
// A cell whose shard went back in time (REGRESSED, controlplane/link) is restored by
// way of recover.go, in which no unit moves but to cover what it holds twice:
//
//	REGRESSED    the shard above every witness, settle-only, told what has to be reached;
//	             cell RESTORING, and what was seen before is held against it no more
//	REPLAYING    the adjustments that the books know, by fencing.PlanRecovery, each with
//	             the outcome it had; what is missing for one comes from the reserve
//	MESSAGES     the cell's log is read again up to where anybody saw it; then SETTLE_ONLY
//
// # Promise
//
// Which step is next is derived from the cell's record, the operation's finished
// steps and the journal (resume.go), by the tables of package fencing; nothing in
// memory decides. So a driver that dies on any line is followed by another that
// does what was left, and every effect is idempotent: the shard's functions by
// fence version, proofs and records by their keys, grants by ids derived from the
// operation.
//
// Units move by name only: a grant that the proof does not know is voided, one
// that it knows is accounted, a return that it applied is finished, sealed units
// go to the reserve, and the allocation must then be what the proof says is
// reserved and confirmed. Where it is not, nothing of that SKU moves and the
// operation ends FAILED with the numbers.
//
// A shard that lacks what was seen of it proves nothing: the fence ends FAILED, nothing is
// sealed, and the cell is REGRESSED.
//
// A shard that cannot be reached leaves the cell FENCING and the operation
// waiting, with the reason in its detail; it is tried again until it answers. The
// operation cannot be aborted. A write-off touches nothing before it is approved, and
// ends without effect when the shard answers first. What it marks stays in the cell's
// allocation for ever, so a shard that comes back later sells nobody else's units.
//
// # Neighbours
//
// fencing (tables, plans), fencing/fencer (the shard), store, view, allocator
// (who gets how much); planner calls Step, api calls Orders.
package reclaim
