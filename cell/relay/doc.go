// Package relay brings admissions from the mirror into the cell's Kafka topic and
// finds the ones that got stuck on the way.
//
// # Promise
//
//   - Producer: what it reports as acknowledged was acknowledged by all in-sync
//     replicas. Only then does the stream entry go. It never blocks its caller and
//     never holds the only copy of anything: the stream does, until the entry goes.
//   - Sweeper: every stream entry older than sweep_after is produced again under
//     its own event id, by every process that runs it. Duplicates are the inbox's to
//     absorb; nothing is trimmed by length and no consumer group holds anything back.
//   - Scanner: an admission that waits too long for its outcome is told apart: not
//     published (the sweeper's), published but without an outcome in the shard
//     (produced again), decided but not written back (its effects are applied again,
//     by id). Age alone never returns a unit.
//
// # Failure
//
// Kafka down: Produce reports an error or none in time, the entry stays, the sweeper
// goes on. Redis down after an acknowledgement: the entry stays and is produced
// twice. The process dies anywhere: another one's sweeper finds the entry.
//
// # Neighbours
//
// admission grants and keeps the stream; orders consumes the topic; rebuild sends
// barriers through the Producer; shard tells the scanner what was decided.
package relay
