// Package load drives a platform as its customers would: an open-loop generator over HTTP.
//
// Job: start customers at the times a plan says, whatever the platform answers (a slow platform does
// not slow its customers down); each claims a permit, tries, follows its request, pays, cancels or
// walks away, repeats itself, presses on after "sold out"; every operation and answer goes to a
// history that package history can judge.
//
// Promise: latencies of a customer's first request are measured from the moment at which the plan
// wanted it to start, so that waiting for a free slot counts (no coordinated omission). An operation
// without an answer is recorded as unknown. Memory is bounded by MaxActive customers; the plan is
// decided by the seed alone, and the seed is part of the result.
//
// Neighbours: edge/client makes the calls, edge/load/history keeps and judges them,
// controlplane/ctl offers it as `cellctl dev load` and `cellctl dev demo`.
package load
