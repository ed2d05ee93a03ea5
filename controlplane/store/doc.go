// Package store keeps the control plane's records in etcd. It is the only
// package that knows etcd's keys, values and errors.
//
// # One transaction function
//
// Every change runs inside Update: the middle reads through Tx, decides with
// core, and puts; Update commits everything at once, on condition that nothing
// that was read has changed. So there is no read-then-write without a compare, a
// key that was not read cannot be written, and a loop's write also compares the
// leader's key (Tx.Lead). A lost compare runs the middle again on fresh reads, a
// bounded number of times with jitter.
//
// # An answer that was lost
//
// A commit whose answer is lost may have happened. Update then runs the middle
// again: its linearizable reads find the attempt's own trace (journal record,
// operation, new state), and the middle answers from it; or they do not, and
// since both attempts compare the same keys at most one can ever win. Only when
// etcd cannot be read in time either does the caller get ErrUnknownOutcome; an etcd
// that is silent for a time-out and a third of one is not waited for. The
// duty of every middle is therefore to look for its own trace first.
//
// # An etcd that lost its past
//
// A backup that is restored under living processes brings the leader's key back,
// keeps watches silent and soon has revisions that look contiguous. So every
// process remembers (past.go) the cluster's id, the highest revision and the newest
// change of each book, and a book's transaction compares them. What contradicts
// is core.ErrRestored, and is latched: this process changes no book any more
// (Lost). MarkRestored writes it down for everybody; while the mark stands every
// book's transaction and every read for sending fails with core.ErrRestored, and
// only a transaction that said Tx.Recover goes on.
//
// # Values
//
// One byte of schema version, then a message of cellquota.store.v1. What cannot
// be decoded, or breaks its type's Check, is an error of Decode; the view
// quarantines it, a transaction refuses to build on it.
//
// # Errors
//
// Driver errors end here. ErrStoreUnavailable: nothing was done, etcd did not
// answer. ErrUnknownOutcome: see above. ErrRace: other writers won every try.
// core.ErrRestored: see above; not retried. ErrTooLarge: etcd's limits, with numbers. Errors of the middle pass unchanged.
//
// # Log
//
// Whoever asks for it, a change of a cell's, campaign's or operation's state is one
// line once it stands (changes.go): event, old_state ("" for a new record), new_state,
// and of cell_id, fence_version, campaign_id, sku_id, operation, operation_id and step
// what there is. SUSPECT is derived and never stored, so it is no line of this room.
//
// # Neighbours
//
// view lists and watches through Source; planner, reclaim, link and intent
// write through Update, Move, Settle and the lease verbs.
package store
