// Package supply says which cells run low on a SKU, which have too much, and which
// must be left alone. It is pure: no etcd, stream, clock or log. The planner's AUTO
// steps and the calls PlanRebalance and PreviewSplit ask it the same questions.
//
// # What it is given
//
// A Position per cell: its record's state as people read it, whether it owns a
// bucket of the campaign, its allocation in the book, and its newest Report.
// Reports are advice: what a cell has available decides whom to ask and whom to
// give, never what may be sold. The book's verbs, the transaction and the shard
// decide that.
//
// # Who takes part (Position.Standing)
//
//	cell is not ACTIVE, or SUSPECT, or paused     left alone
//	its report is missing, or older than stale    left alone
//	its report is of another fence version        left alone
//	its last adjustment is not in the report      left alone: the next report decides
//	it owns no bucket of the campaign             Leaving: granted nothing, gives all it has
//	its demand was not measured long enough       left alone by a rebalance
//	anything else                                 Selling
//
// # Top-ups (TopUps)
//
// The low ones of the Selling cells share a round of allocator.PlanRound.
//
// # Rebalances (Moves)
//
// A cell needs its rate of demand (admitted + refused for stock, over the last
// window) × the horizon, which ends with the campaign. allocator.PlanRebalance
// says who gives and who takes; returns and grants are paired into moves from cell
// to cell in the order of ids; what nobody lacks goes to the reserve.
//
// Neighbours: link measures and keeps the reports; planner and api ask; core and
// allocator are what it is written in.
package supply
