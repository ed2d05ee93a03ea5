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
// etcd cannot be read in time either does the caller get ErrUnknownOutcome. The
// duty of every middle is therefore to look for its own trace first.
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
// ErrTooLarge: etcd's limits, with numbers. Errors of the middle pass unchanged.
//
// # Neighbours
//
// view lists and watches through Source; planner, reclaim, link and intent
// write through Update, Move, Settle and the lease verbs.
package store
