// Package reservation is what a cell decides about one reservation and its order: a pure core of
// tables and functions over values. It knows no database, no proto and no clock; now is a value.
//
// Two decisions live here:
//
//   - Judge (judge.go): what becomes of an admission that came out of the log, from the facts that
//     the shard read under its locks. Every message ends as an order or with a named reason.
//   - Step (life.go): what an event (payment, failure, cancel, expiry, a person's word, …) does to an order's life.
//     The table is the state machine; its diagram, generated from it, is below.
//
// Neighbours: cell/shard asks inside its transactions and carries the effects out in the same one;
// cell/payment and cell/closer bring the events.
//
// # The life of an order
//
// Rows are lives, columns are events. "→ X" goes to the life X, "=" changes nothing and is answered
// like the first time, "✗" is refused by name, "·" cannot happen.
//
//	        Start               Doubt               Fail                Pay                 Cancel              Expire              Silence             End
//	Open    → Open Postpone     → Open Postpone     → Open Recall       → Paid Confirm      → Closed Release    → Closed Release    → Review Park       ✗
//	Review  ✗                   =                   → Open Recall       → Paid Confirm      ✗                   ·                   =                   → Closed Release
//	Paid    ✗                   =                   =                   → Paid Refund       ✗                   ✗                   ✗                   ✗
//	Closed  ✗                   =                   =                   → Closed Refund     =                   =                   ✗                   ✗
package reservation
