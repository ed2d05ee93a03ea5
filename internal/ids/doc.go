// Package ids holds the one grammar of every identifier that leaves a room of
// Cellquota: what a campaign, SKU, cell, user, request, reservation, order,
// build and event id may look like, how the derived ones are computed, and how
// a user finds his bucket and an admission its partition.
//
// # Promise
//
// A value of an id type that came out of a Parse function obeys its grammar:
// no NUL, no line break, no escape sequence, no separator of the stores' key
// grammars (K82). The Parse functions are total: they never panic, never
// normalise and never repair. What is not exactly the grammar is an *Error that
// names the field and the rule and never echoes the value, so that an error can
// be logged and shown as it is.
//
// The derived ids are part of the contract: ids that were handed out route
// themselves for the life of a campaign, so the digests here never change. The
// golden values in the tests are there to make a change impossible to overlook.
//
//	reservation_id = CELL ".r" + 26 base32 digits of SHA-256(parts)
//	order_id       = CELL ".o" + the same 26 digits
//	parts          = for each of campaign, sku, user, request, cell, build:
//	                 length as 4 bytes big endian, then the bytes
//	build          = FENCE "." COUNT
//	event id       = "reserve-" + reservation_id
//	bucket         = xxh64(user_id, seed 0) mod 4096
//	partition      = xxh64(campaign "/" sku, seed 0) mod n
//
// # Neighbours
//
// Every component imports ids, their pure cores included; ids imports no other
// package of ours, no driver and no transport. The edge parses what comes from
// clients, the control plane what comes from operators, the cell what comes over
// gRPC and from Kafka. Borders turn *Error into their field violations.
package ids
