// Package settle ends what is sold out, cancelled, or over.
//
// Job: three things that the leader does with a campaign on its way out.
//
// # Final (final.go)
//
// A SKU of which every unit is confirmed, whatever comes, is FINAL_SOLD_OUT (R-066,
// G-09): core.Book.WhyNotFinal decides, from what cells reported under this leader
// or what a fence proved. The decision and the book's version that it stood on go
// into one transaction with the campaign's record: a grant, a return or a refund
// that came between finds another version and nothing is declared. Cells and edges
// hear of it with the campaign's next version.
//
// # Settled (blockers.go, settling.go, journal.go)
//
// A campaign that is closed settles when, by the shards' own facts, nothing of it
// can change any more: Blockers lists with numbers what still can. Then:
//
//	report   the accounts of all SKUs (report/undersell), immutable in the archive;
//	         the campaign's record names it
//	books    per SKU one transaction: the limit leaves the physical stock, what the
//	         report says was sold or written off leaves its units, and the book begins
//	         no step any more
//	journal  every record of the campaign, in the archive
//	settled  one transaction: SETTLED, the objects' digests, when
//	prune    archived records leave etcd, a bounded number per transaction
//
// Where a campaign stands is read from its record and its books: a leader that dies
// on any line leaves what the next one goes on from. The numbers of the books come
// from the archived report and are never counted again, so a step that is repeated
// is the same step. An archived object's name holds its digest: a leader that died
// before its transaction leaves an object that nobody names, and nothing else.
//
// # Cancelled (cancel.go)
//
// The operation cancel-campaign, once a second person has approved it: the campaign
// is closed and marked in one transaction, cells hear of it with their rules, close
// what is unpaid and refund what is paid; the operation ends when the shards say
// that nothing is left.
//
// # What is looked at, and what is not
//
// Unconsumed messages: every live process serves the CLOSED version, and then each
// cell's mirror counts no admission without an outcome and holds no entry of its
// stream. A cell without a live process blocks, unless it is fenced and reclaimed
// (its messages are refused by version) or written off. Kafka itself is not asked.
//
// # Neighbours
//
// report/shards and report/undersell read; archive keeps; store writes; planner
// calls Step for operations; wire runs Lead under the leadership.
package settle
