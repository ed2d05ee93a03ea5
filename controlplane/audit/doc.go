// Package audit keeps and shows who did what, and what was refused to whom.
//
//	mutation   its record is created in its own transaction (store.Tx.Audit): what
//	           was not remembered did not happen                       /audit/
//	refusal    counted in memory per actor, method and minute, written once a
//	           minute and at shutdown (Refusals): a lost flush is tolerable, and
//	           counted in refusals_lost_total                          /refusals/
//	older      the leader (Keeper) moves what is older than audit.keep into the
//	           archive where one is configured, and out of etcd; then the same for
//	           tokens that nobody can use any more, which are only removed
//
// # Order of archiving
//
// Put the object (immutable, the same bytes again are the same object), then in
// one transaction of the leader: the object's index and the removal of exactly
// the records that it holds. An object's name is its first and last record. A
// crash in between leaves an object without an index: the next round puts the same
// one again, or a longer one under another name, and the first is never read. No
// record is ever missing, and none is shown twice. Without an archive old records
// are removed.
//
// # Reading
//
// Reader merges both folders, newest first: etcd, then the archive's objects. A
// page's token is the name of its last record. A filter may find little: a call
// looks at a bounded number of records and then answers what it has, with a token
// to go on.
//
// Neighbours: store carries the keys; internal/transport tells Refusals about
// refused calls; wire.go runs Refusals in every replica and Keeper in the leader;
// api's ListAuditEvents reads.
package audit
