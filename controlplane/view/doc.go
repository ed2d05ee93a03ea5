// Package view is the control plane's mirror of etcd: what every read and every
// loop looks at, in memory, at one revision, with its age.
//
// One goroutine (Run) goes round four named steps:
//
//	list   every key at one revision R, page by page
//	load   into a fresh memdb, which then replaces the old one at once
//	watch  from R + 1, with progress
//	apply  each batch in one memdb transaction, recording the revision it reaches
//
// Any error of list or watch, compaction included, ends the round: the view goes
// on serving what it has and its age grows, Run really waits (jittered, capped),
// and lists again. Deletes are changes like any other; what vanished while
// nobody watched is gone after the next list.
//
// # Promise
//
// A Snapshot never changes, and holds every record as it was at Revision. Age is
// how long ago the view was last known to be current: a quiet etcd is asked how
// far it is, so that age tells a silent watch from a quiet one. WaitFor gives
// read-your-writes. Objects in a snapshot are shared: never modify them.
//
// A record that cannot be decoded, or breaks its own law, is quarantined: named
// in Quarantined and in a metric. Its last good value, if this view ever had
// one, stays readable, and nothing else is touched (K43); what writes or sends
// reads etcd itself and stops there.
//
// Whether a stale view may be used is not decided here.
//
// # Neighbours
//
// store is the Source; api, planner, operation, link and report read snapshots.
package view
