// Package fencer carries a fence out on a shard: the only I/O beside the pure core of package fencing.
//
// Job: under the role cellquota_fencer, which may call the shard's fence functions and read its
// tables and write nothing itself, install a cell's first fence row, fence it and bring home the
// proof, restore it settle-only, activate it; and hand buckets over from one shard to another: close
// them, export their buyers and answered requests in pages, import the pages, open them.
//
// Promise: every verb is idempotent by its fence version and may be repeated after any error. A
// proof is only returned after its transaction committed and was acknowledged as durable; a commit
// whose outcome is not known, or that ended with "canceling wait for synchronous replication", is
// ErrUnknownOutcome, never a proof.
//
// Neighbours: the functions stand in cell/shard/migrations; only the control plane imports this
// package, inside the replica that drives the operation.
package fencer
