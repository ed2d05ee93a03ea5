// Package api is a cell's door: AdmissionService, OrderService and CellFactsService.
//
// # Promise of Exchange
//
//   - Every ask gets exactly one answer, in any order, unless the stream ends first; then its outcome
//     is unknown and its repeat tells (K58: whoever hung up, what was begun is carried through).
//   - Replay comes first: what stands against a first attempt (a pause, a closed campaign, an expired
//     permit) does not keep a repeat from its answer. Only a permit that was not made for this user,
//     campaign and SKU does. A process that may not sell (draining, fenced, its lease in doubt) answers
//     repeats all the same; a mirror's state that is not final it checks against the shard.
//   - ACCEPTED is answered when the log has the admission (ack_mode KAFKA), or as ADMITTED when the
//     log is late: the mirror's stream has it. With ack_mode REDIS it is answered at once.
//   - No answer says "sold out" but the mirror's own.
//
// # The way of an ask
//
//	check.go   fields, campaign, SKU, quantity, permit        → INVALID_ARGUMENT, UNKNOWN_CAMPAIGN, PERMIT_INVALID
//	decide.go  may this process sell, does the campaign?      → repeats: looked up; FENCED, PAUSED, …
//	           mirror, or the shard alone (lane)              → the door's outcome
//	           one pipeline for all admits of a batch
//	           producer, at once, for what was granted
//	await.go   the log's acknowledgements, bounded by wait_ms → QUEUED or ADMITTED
//	answer.go  outcome and view
//
// # Bounds
//
// At most 1,000 asks in a message, StreamBatches messages of a stream and Batches messages of the
// process being decided at once; beyond that the stream's flow control holds the edge back.
//
// # Neighbours
//
// edges call; cell/admission decides, cell/relay takes to the log, cell/status and cell/payment answer
// the rest. status.go is the table of errors.
package api
