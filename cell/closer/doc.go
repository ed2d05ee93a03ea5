// Package closer ends orders that were not paid in time and gives their units back.
//
// # Promise
//
// An order is closed only by the database's clock, never before expires_at, never before the shard
// has been writable for payment.grace (its callbacks come first after an outage), never within the
// restore's grace, and never while a payment attempt is open: at the attempt's deadline the channel is
// asked, and if it stays silent the order waits for a person (MANUAL_REVIEW). Several closers at once
// share the work by SKIP LOCKED; each unit is given back once (K77). This process's clock paces the
// loop and decides nothing (K32).
//
// A round is: 1. heartbeat, 2. close what is due, 3. ask about open attempts, 4. apply the answers; and
// 2 to 4 again for the unpaid orders of cancelled campaigns, whatever their time: the deadline of an
// attempt nobody answers for stays that of expires_at. There the first batch with a question ends the
// round, so that a silent channel holds up nobody else's due orders: orders without an open attempt come
// first, the others in turn.
//
// Run asks beside its rounds (asker.go): up to 16 orders at a time, up to four attempts of each, the longest
// unasked first; 16 such chunks wait, and what finds no place is named again by the shard. An order that was
// named is not due again for five seconds. So a silent channel delays no closing of an order without an
// attempt. Of an order's answers those that decide are applied first, and silence is for a person only once
// each open attempt was asked about beyond the grace. Round, for tests, waits for the answers.
//
// # Neighbours
//
// cell/shard locks, decides with cell/reservation's table and writes; cell/payment/provider answers;
// cell/outbox takes the units to the mirror afterwards.
package closer
