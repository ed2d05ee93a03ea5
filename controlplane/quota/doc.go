// Package quota carries out the moves of units that take more than one
// transaction: transfers, limit changes, rebalances.
//
// Orders (any replica, package intent for the single-step ones) accept what an
// operator asks for: one transaction writes the operation and the first move.
// Drivers (the leader, called by the planner through planner.ByKind, one type per
// kind) carry it on:
//
//	transfer-units   Transfers   giver's return → book → taker's grant
//	set-sale-limit   Limits      reserve at once → returns, by what cells have
//	                             available → target, or the floor with its name
//	rebalance        Rebalances  a plan of returns and grants, in rounds:
//	                             one transaction per SKU and tick
//
// # Promise
//
// Each driver is a pure step over facts (operation, book, journal, cells, reports)
// and a thin part that reads those facts, carries the step out in one transaction
// and stores the operation with it. Nothing in memory decides: a driver that dies
// between two transactions is followed by another that reads the same facts and
// does what was left. Every adjustment's id is derived from the operation's
// (ids.go), so that a repeat finds its own record.
//
// No driver sends anything to a cell or hears from one. It writes intents into the
// journal; the planner sends them in the order of their numbers and books the
// answers (store.Settle), and the driver finds the outcome there. Until a return's
// answer is booked its units count as the giver's (I1).
//
// # Which driver is next to which room
//
// core (verbs of the book, operations), store (Move, Update, Settle), view, report
// of the link's hub (what a cell says it has available: advice where to ask, never
// evidence), allocator (who is asked for how much).
package quota
