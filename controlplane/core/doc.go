// Package core holds the control plane's words as plain Go types and the rules
// that bind them: cells, campaigns, books, adjustments, journal records, routes,
// physical stock, proofs, operations. It knows no proto, no etcd, no gRPC, no
// clock: times come in as values.
//
// # The book
//
// A Book is the record of one SKU of one campaign: its sale limit, the central
// reserve, and one Allocation per cell. Its law is I1:
//
//	sale_limit = reserve + Σ allocation.granted
//
// Every change is a verb of Book (Grant, ProposeReturn, BookReturn, VoidGrant,
// SealBack, WriteOff, Rebase) that copies the book, edits the copy, checks I1
// and gives the copy back; the receiver never changes, and a refused verb gives
// nothing. Who stores the result stamps it with the id of the journal record
// that explains it (Stamp).
//
// # Numbered adjustments
//
// Grants and returns of one (cell, SKU) are numbered from 1 under each fence
// version of the cell. The book takes the number, when the grant is booked or
// the return's intent is written; the shard applies exactly last + 1 of its own
// version. A higher fence version starts again at 1 (Rebase happens inside the
// first step under it).
//
//	GRANT   reserve → cell   BOOKED  → shard applies → DONE
//	RETURN  cell → reserve   PROPOSED → shard applies → book moves → DONE
//	SEAL    cell → reserve   evidence of a fence; DONE at once, no number
//
// settle.go has the table of what a shard's answer makes of an adjustment.
//
// # Errors
//
// errors.go lists every sentinel and what a caller may do about it. Numbers
// travel beside them (rpcstatus.With). ErrBroken means that a promise of this
// package does not hold; nothing may be stored then.
//
// # Neighbours
//
// allocator does the arithmetic of splits; store keeps these types in etcd and
// is the only package that reads or writes them there; view mirrors them;
// planner, reclaim and the handlers decide with them.
package core
