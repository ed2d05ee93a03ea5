// Package orders turns what the log holds into orders: partition → batches → the shard.
//
// # Promise
//
//   - A consumer group only hands out partitions. Where a partition goes on is the shard's word: the
//     position that was committed with the orders. Offsets are committed to Kafka after that, for lag
//     tools alone (K74).
//   - A process with a name (Config.Member) keeps its place in the group while it is away and has its
//     partitions at once when it is back from a crash; one that is stopped gives them up, name or not.
//   - A batch that another consumer applied is dropped and the stored position sought (ErrPositionLost),
//     so two consumers of one partition, or one that wakes up late, do no harm.
//   - Only errors of the data itself (what cannot be decoded, SQLSTATE classes 22 and 23) lead to
//     parking, and halving finds the one message that is to blame. Everything else is tried again with
//     back-off, for as long as this process owns the partition; nothing is skipped for being late.
//   - A stored position that does not belong to the log (another topic id, an offset outside it, an
//     epoch that ended before it) is reported, and the partition is consumed from its start: the inbox
//     knows every message that had its outcome.
//
// # Order of work
//
// poll → decode (decode.go) → cut into runs (cut.go: a batch ends before a user's second message, a
// barrier stands alone) → apply each run (apply.go) → commit offsets.
//
// # Neighbours
//
// cell/events decodes, cell/shard applies, cell/outbox takes the outcomes to the mirror. kgo is the
// client of the log.
package orders
