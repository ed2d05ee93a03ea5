// Package shards reads the cells' PostgreSQL directly, as cellquota_reader.
//
// Job: what verify, trace, sales tables and histories need of every shard, so that they work while a
// cell's processes are dead. Views only; no statement here writes.
//
// Promise: everything of one Snapshot is read in one REPEATABLE READ, READ ONLY transaction, so a
// shard's numbers belong together. Orders are streamed in the order of their keys, so that shards
// can be merged in constant memory. A shard that does not answer in time is an error that says so,
// never an empty answer.
//
// Neighbours: controlplane/report/verify decides, controlplane/api serves.
package shards
