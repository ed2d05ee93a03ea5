// Package handover gives buckets of a campaign to another cell, with everybody who
// bought in them: the control plane's half of architecture 5.
//
// Orders (any replica, intent.HandOver) accept what an operator asks for and store
// the operation. Driver (the leader, called by the planner) carries it on, one stored
// step after the other:
//
//	order   both shards answer under the fencer's role, the taker's processes serve the
//	        campaign; then, in one transaction, the route says MOVING
//	close   the giver's shard closes the buckets, under the exclusive lock
//	carry   places and answered requests are exported and imported, page by page
//	open    the taker's shard opens the buckets
//	turn    the route says MOVED: the map names the taker, its version has grown
//
// The diagram of states and events is the table in table.go, and nothing else:
//
//	ASKED ──Ordered──▶ MOVING ──Closed──▶ CLOSED ──Carried──▶ CARRIED ──Opened──▶ OPENED ──Turned──▶ TURNED
//	  └─Abort, GiverLost─▶ ENDED ◀─GiverLost─┘  (from MOVING and CLOSED)
//
// # Promise
//
// Where an operation stands is read from its record, how far its pages are from the
// taker's shard; nothing in memory decides. A driver that dies on any line, or whose
// answer is lost, is followed by another that does the same again: the shard's
// functions know a handover by its range, route version and id, a page by its end, and
// the transactions find their own trace. Two drivers at once do no harm.
//
// A user who bought at the giver buys nothing at the taker (I4): nobody is added to
// closed buckets, and they are opened when every place has arrived. What moves is
// what the giver's shard closed; where that is not what the route says, or a user has
// two places, the operation stops and says so.
//
// Until MOVING is written nothing has happened, and the operation waits, visibly, for
// whatever is missing; it may be aborted. From then on it goes forward only. A giver
// that does not answer is waited for: no export, no handover. A giver whose shard is
// gone for good (RETIRED by a write-off) before its pages were carried ends the
// operation FAILED, with the buckets MOVING for ever: their users have no home.
//
// # Neighbours
//
// core (Route's verbs, Handover), fencing/fencer (the shards), store, view, the hub's
// word on who serves a campaign; planner calls Step. Edges read the moves in the
// route. Units follow by the planner, which asks the map who owns a bucket.
package handover
