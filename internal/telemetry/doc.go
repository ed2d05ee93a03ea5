// Package telemetry is how a process tells what it is doing.
//
// Job: the JSON logger, the process's own Prometheus registry, bounded label
// sets, the metrics port (metrics, health, readiness, profiles, log level) and
// tracing with W3C context, batches of many traces included.
//
// Promise: log fields and metric buckets carry the names and bounds of the
// outside contract, section 7; a log line is one JSON object and no string in
// it exceeds 1 KiB by more than the mark of the cut; no label takes more values
// than it was given room for; nothing goes to a global registry; the metrics
// port answers with credentials only, unless it listens on loopback.
//
// Neighbours: every component's wire.go; internal/lifecycle runs the server.
package telemetry
