// Package verify checks the invariants I1 to I10 over etcd, every shard and every mirror.
//
// Job: take a stable cut, judge it, name what breaks and what could not be checked. Two ways in:
// Verifier for one thorough answer, Sampler for a check every 100 ms beside a running sale, which
// reads only what was added since its last sample.
//
// What a stable cut is: books are read before and after the shards, each shard in one snapshot. A
// shard's granted never exceeds the book's allocation (a grant moves the book first, a return the
// shard first), so for a book that did not change in between, Σ(reserved + confirmed) over the shards
// is at most the limit although no two shards were read at the same instant. A book that moved is
// read again; one that keeps moving is unchecked, not broken.
//
// Promise: nothing is written; memory of the Verifier is constant in the number of orders (shards
// are merged as streams), that of the Sampler grows with the orders it has seen.
//
// Neighbours: controlplane/report/shards reads PostgreSQL, controlplane/store etcd,
// controlplane/api serves ReportService.
package verify
