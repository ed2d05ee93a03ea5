// Package link is where cells register, report and are told: the server of
// CellLinkService, and the hub of its streams.
//
// Job: for each process of a cell one stream. Hello is judged against the cell's
// record as etcd has it in the same transaction that puts the process under its
// lease; then Welcome tells the fence version and the term. The process that
// holds its shard's reporter lock is asked to raise the shard's term row, and
// what it then read goes to the leader's planner, as do the results of
// directives. Reports are kept as the newest word on each (cell, SKU).
//
// # Order on one stream
//
//	Hello → Refusal, end
//	Hello → Welcome → RaiseTerm (to the reporter) → TermRaised → directives
//	KeepAlive → the lease is kept, or taken anew when etcd lost it → KeepAliveAck
//
// # Promise
//
// Nothing here is evidence about stock, and nothing that was accepted lives only
// here: a new leader learns everything again from etcd and from the shards. A
// report that is older than what is known, by (fence version, stock version), is
// ignored (K57), whichever stream it came over. A process that reports does not
// by that keep its lease, and one that keeps its lease need not be healthy: its
// faults are shown beside it (K78).
//
// Streams exist under a leadership (Lead) and end with it; other replicas answer
// who leads. A stream also ends, with the reason, when its cell is fenced, given
// to another group or to a higher fence version, when its process registers
// again, when its process does not read, and when it sends faster than the
// planner takes.
//
// # Bounds
//
// Each stream has a queue of outQueue messages and one of inQueue results; a
// queue of messages that stays full while one send hangs for SlowAfter cuts the
// stream, so does a full queue of results. A stream remembers maxAcks campaigns,
// a cell maxUsages SKUs.
//
// # Neighbours
//
// store for leases, view for who leads and which cells changed, planner through
// Events (and the hub is planner.Cells); cell/link is the other end.
package link
