// Package oracle judges what clients were told by what the shards have.
//
// Job: stand between a recorded history (edge/load/history, which knows the rules) and the control
// plane's ReportService, which reads the shards: resolve requests in bounded batches, wait until what
// was promised has an outcome, and fold the verdict into the answer of Verify.
//
// Promise: read only; at most 1,000 requests in one call; waiting ends at its bound whatever the
// platform does, and what is undecided then is for the rules to judge.
//
// Neighbours: cellctl's `verify --history` and the demo use it.
package oracle
