// Package route decides, from values alone, where a customer's call goes and what the calendar says
// about it. It is the edge's pure core: no clock, no network, no store; now is an argument.
//
// # Promise
//
//   - Home is a function of (campaign, domain, user) and nothing else: never of load, of where the
//     packet came in or of which cell answers. A user whose home cannot serve is told so; no other
//     cell is ever tried, since one order per user (I4) rests on it.
//   - Window is half open, [open_at, close_at), to the nanosecond.
//   - What a first attempt may not pass, a repeat may: the rows say which (Calendar.Final).
//   - A Campaign, a Cell and what hangs on them are never changed once published; whoever holds one
//     may read it without a lock for as long as it likes.
//
// # Neighbours
//
// edge/routes builds these values from what the control plane sends; edge/api asks and answers
// HTTP; edge/limit reads the Rules.
package route
