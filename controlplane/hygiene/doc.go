// Package hygiene keeps the control plane's etcd small. The leader runs both loops,
// and both end with its lead.
//
//	Compactor  etcd's history: what is older than compact_keep is given up
//	Pruner     records that nobody needs: ended operations with their decided
//	           approvals, and proofs that a later fence replaced
//
// What else grows has its own keeper; docs/reference/etcd-keys.md says for every
// kind of key who bounds it.
//
// # Compaction
//
// The compactor notes etcd's revision ten times per compact_keep and compacts at
// the newest one that is that old, and that this replica's view has reached. So
// a new leader compacts for the first time after compact_keep. Nothing of this
// program reads revisions of the past but a listing (pages at one revision) and a
// watch that is behind: both have compact_keep of time, and begin again when they
// needed more (store.ErrCompacted). Verify and the history of quotas read
// records, not revisions. While etcd is known to have lost its past nothing is
// compacted: its history is what shows how.
//
// # Pruning
//
// An operation goes operations.keep after its end, with its approval, unless a
// cell still names it, or it is about a campaign whose journal is still in etcd: a
// transfer, a limit or a rebalance that is repeated under its id then answers what
// it came to, however late, as a top-up does by its record. Once an operation is gone
// its id is free: a fence that is repeated under it begins a new one. An approval without an operation goes when it was
// decided that long ago; one that is undecided stays.
//
// A proof goes when a later one of its cell stands, it is older than
// operations.keep, no adjustment under the versions it fenced is open, and every unit
// that it sealed is accounted for: booked back, or its book settled or gone. The
// newest proof of a cell stays for ever, as does the one that the cell names. All of
// that, once true, stays true, so that a late view may decide it.
//
// One transaction removes at most a batch and says so in the audit; one round is
// bounded, and the next goes on.
//
// Neighbours: store compacts and removes; view shows; controlplane's root runs both
// with planner and hub.
package hygiene
