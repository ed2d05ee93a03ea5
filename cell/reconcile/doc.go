// Package reconcile compares the three ledgers of a cell by id: what the mirror admitted (its request
// records, marks and stream), what became of the messages (the inbox), and what the database holds
// (reservations, orders, ledger, stock, places, tokens, payments, outbox). Equal totals prove nothing:
// one unit too many and one too few cancel, so every difference names its request, event,
// reservation, order or entry.
//
// # One cycle, in order
//
//  1. Claim: one process of the cell compares at a time, by the database's clock. The claim is a row with
//     an end; nothing is held over a call.
//  2. Walk the database: messages, reservations and ledger entries come in pages, sorted by reservation,
//     perhaps from a standby, and are joined as they come (merge): memory is a few pages whatever the
//     sale. judge (pure) says what does not fit.
//  3. Walk the places, the adjustments, and each SKU's ledger in the order in which its stock moved: an
//     entry begins where the one before ended, and the last one ends at the stock row.
//  4. Walk the mirrors: records and marks of the present build, against the shard.
//  5. Look again: what seemed to differ is read anew by id, the database in one snapshot of the primary.
//     Only what differs twice is a finding; it is written under an id made from what it is about.
//  6. Look after open findings: those that are gone are closed; those that the cell may repair by itself
//     (republish, return) are tried until the budget is used up, then wait for a person.
//
// A cycle runs for ever at a bounded rate; a run that somebody asked for (RunReconcile) goes first and is
// not paced.
//
// # What is no finding
//
// Something in flight: an admission younger than Config.InFlight, an effect that waits in the outbox, an
// outcome younger than Config.Settle, an order that the closer may still be about to close. A message or
// record that was pruned: the inbox stands for the record, the ledger for the inbox.
//
// # Freeze first
//
// A finding of a quantity (shard.FindingKind.Freezes) freezes its SKU in this cell: nothing moves its units
// by itself, and the scene is kept with the finding, before anybody repairs. Sales go on.
//
// # Repair
//
// By added rows only, each idempotent by the ids of what it is about (repair.go). No statement sets a
// stock number; REVERSAL names the entry, the finding, the actor and a second person's approval.
//
// # Neighbours
//
// shard has the rows and the verbs, admission the mirror, relay sends messages again; api gives the cell's
// door for repairs; the control plane asks for runs and repairs and reads findings by itself.
package reconcile
