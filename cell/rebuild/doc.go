// Package rebuild keeps every mirror of a cell fit: it builds the first one, and a
// new one whenever Redis, the shard or the fence is no longer what the mirror was
// made from.
//
// # Obligations, in order
//
//  1. Look: the Redis processes that answer, the meta, the shard's raised build, the
//     fence version this process writes under. judge (pure) says fit, or why not.
//  2. A fit mirror is expected, so that this process admits into it. Any other is
//     forgotten at once: NOT_READY, never sold out.
//  3. Mint a build in the shard. One process at a time has the right to build, by the
//     shard's clock; the others wait. Then look again: whoever had the right before
//     may have cured it.
//  4. Pause: raise the fence version in the meta and stop admissions into what is there.
//  5. Older entries get a bounded time to reach the log. What does not is rejected as
//     LOST_ADMISSION afterwards, and its receipt says so.
//  6. Barrier into every partition, and wait until the orders loop has consumed the
//     last one: then the shard's raised build is ours, and no message of an older
//     build becomes an order any more. No build was raised before, or only under a
//     fenced version: the build is raised without one.
//  7. Snapshot: stock with its versions as base, marks, answered requests, in one view.
//  8. Stage, compare, switch. Only the newest build is switched in.
//  9. Expect; release the claim; sweep away what older builds left. The gate ramps up.
//
// A failure anywhere leaves the mirror paused; the next round starts over with a new
// build id. Nothing is ever read back from the old mirror.
//
// # Failure of the builder
//
// It dies: the claim ends by the shard's clock and another process mints. It stalls:
// its build is no longer the newest, so the shard does not raise it and the mirror
// does not take it.
//
// # Neighbours
//
// shard mints and raises and gives the snapshot; relay sweeps and sends barriers;
// orders consumes them; admission is the mirror; campaigns says which mirrors there
// are.
package rebuild
