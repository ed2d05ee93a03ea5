// Package history records what customers asked and were told, and judges it afterwards.
//
// Job: the file that `cellctl dev load --history` writes, one JSON object a line for every HTTP
// operation, and the oracle that `cellctl verify --history` runs over it. The clients' log is the
// truth about what was promised; the shards are the truth about what was done; the oracle demands
// that the two can be told as one story:
//
//   - I6: a request answered 202 has, after quiet, an order, a rejection with a reason, a release or
//     MANUAL_REVIEW; and its status with its receipt was never "not found".
//   - I4: over all shards a user has at most one order per campaign and purchase scope.
//   - A request that was only ever refused has no order; a request has one reservation and one
//     order, of the user and quantity that asked; what was once final stays as it was.
//
// An operation without an answer is unknown: it may have happened or not, and both are accepted.
//
// Promise: memory is bounded by the number of distinct requests, not of operations. Nothing here
// talks to a network; the shards' word comes through the Resolver.
//
// Neighbours: edge/load writes, controlplane/ctl reads.
package history
