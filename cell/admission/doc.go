// Package admission is a cell's mirror: the Redis copy of a scope's stock, marks
// and requests that decides, in one atomic step, who may try to get an order.
//
// # Promise
//
//   - Admit answers in the order of architecture §6: meta and build, fence, replay,
//     window, bucket, buyer mark, permit and nonce, stock, outstanding, take. A
//     mirror that is missing, damaged or of another build is NOT_READY, never sold
//     out (K04).
//   - The same request gets the same reservation, however often it is sent, by
//     whom or in parallel (K62), also when the driver retried the call (K59). The
//     same id with other parameters is CONFLICT (K63). A permit's nonce is burnt
//     by an acceptance only (K55).
//   - A stock effect counts once per effect id, whatever the order; effects of
//     another build wait, those at or below the base were counted by the rebuild.
//   - A mirror is evidence of nothing. Every acceptance is judged again by the
//     shard; whatever Redis loses, the shard still has.
//
// # One mirror, many builds
//
// Every key but the meta carries the build (keys.go). Install stages a whole build
// beside the running one and switches the meta in one step; nothing is renamed and
// no reader sees half a mirror. What the old build leaves behind is swept later.
//
// A process admits only into the build that it was told to expect (Expect); the
// rebuild loop tells it after comparing meta, shard and server. When Redis shows
// another run id (restarted, failed over) the connect hook refuses every
// connection of the admitting pool until Acknowledge, which first waits for calls
// under way and forgets all expectations: no call that was made for the old server
// can run on the new one (K07, K50).
//
// # Neighbours
//
// api asks, relay produces what was granted, outbox applies effects, rebuild
// installs, gate sets bounds. The library is lua/, its twin for tests twin_test.go.
package admission
