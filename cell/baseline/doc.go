// Package baseline lets the shard alone sell a little of what a mirror sold, while Redis is away
// (gate.baseline_rps; R-084: a very low local rate, never everything past the mirror).
//
// # Obligations, in order
//
//  1. Look: does Redis answer? It must have been silent for some time; a hiccup is PAUSED, as ever.
//  2. Mint a build in the shard, as a rebuild does: one process at a time has the right.
//  3. Barrier into every partition, and wait until the orders loop has consumed the last one: then no
//     admission of the mirror that was lost can become an order any more. Without the log there is no
//     barrier, and without the barrier there is no baseline.
//  4. Open: the shard's row says that the newest build is the shard's own. Every process sees it there,
//     and the order transaction reads it under its locks (cell/shard, baseline.go).
//  5. Redis answers again: cell/rebuild finds a mirror that is not of the raised build and mints the
//     next one. That closes the baseline in the same row, and the barrier that follows locks the stock
//     rows, so the snapshot of the new mirror has every order that was made here.
//
// # What a failure does
//
// A process dies between two steps: its claim ends by the shard's clock and another one mints; a build
// that was raised and not opened sells nothing and harms nobody. A process that alone has lost Redis
// closes the others' mirror once and is overtaken by their rebuild; by the newer build it knows that they
// have Redis, and tries again after a minute, then two, up to half an hour (they may die meanwhile).
//
// # Neighbours
//
// shard mints, raises and opens; relay sends the barrier; api asks Open before it goes to the mirror.
package baseline
