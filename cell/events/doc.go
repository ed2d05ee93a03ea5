// Package events is the vocabulary of what a cell writes into Kafka and its
// outbox: topics, event types, record headers, and the codecs of the messages of
// cellquota.events.v1.
//
// # Promise
//
//   - The bytes of an admission are the same in the mirror's stream and in Kafka:
//     PrepareAdmission makes all but field 15, the mirror's script (or
//     AppendAdmittedAt, byte for byte the same) adds the instant by Redis TIME.
//     Nothing re-encodes them on the way.
//   - What Decode… returns was checked field by field, up to the reservation id
//     being derived from the other fields; anything else is ErrMalformed, which is
//     a fault of the message and never of the reader.
//   - A header that is missing or unknown is ErrMalformed too; a higher schema
//     version than ours is ErrSchema, because only a newer program may judge it.
//
// # Neighbours
//
// admission prepares admissions, relay produces them and the barriers, orders
// consumes both, outbox produces the order events. The package does no I/O.
package events
