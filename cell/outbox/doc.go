// Package outbox brings what the shard committed to those who must know: effects to
// the mirror, events to the topic cellquota.events.
//
// # Promise
//
//   - At least once, in order per aggregate. Receivers absorb repeats: stock effects
//     by their id, states by the aggregate's version.
//   - Committed rows are claimed by state and lease, never by "id greater than the
//     last": a row that commits late is not passed over (K13).
//   - What one mirror cannot take now (it is being rebuilt) waits aside and keeps
//     nothing else from leaving. What can never be published is parked and logged as
//     an error, which is what the alert hangs on (K83).
//   - An effect for a mirror that no process of this fence version ever raised is done
//     at once: the first build's snapshot, which can only be taken later, has it.
//
// # Loops
//
// Publisher runs once per target in every process with the role outbox; several run
// side by side, each under its own owner name. A loop that finds nothing waits
// longer, up to five intervals; one that found a full batch goes on at once.
//
// # Neighbours
//
// shard has the rows; admission is the mirror; EventLog is Kafka.
package outbox
