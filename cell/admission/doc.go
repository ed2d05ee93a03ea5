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
// # One server, sentinels, a cluster
//
// internal/redisconn dials all three. Behind sentinels each look (Acknowledge) asks them first and
// leaves a primary that they replaced, also one that never noticed and still answers. In a cluster
// every master is one of the servers: a failover, a restart, a node more or less changes their
// identity, and every mirror of the cell is built anew, those on other nodes too; a slot that moves
// between masters changes nothing, its mirror moves with it. A node that does not call the cluster's
// state ok is unavailable. Times are those of the master that holds the mirror's slot.
//
// A server that evicted keys is another one too (server.go): what went can be seen in no key that is
// left. At maxmemory with noeviction whatever takes more is refused whole, and what drains or stops a
// mirror goes on (library.lua).
//
// # Without a mirror
//
// Direct (direct.go) is the second door: for campaigns with admission DATABASE, and for a mirror's
// campaign with a baseline while Redis is away. It answers in the same words from the shard alone, in
// the same order transaction: replay, window, permit, bucket, buyer, stock. Nonces are the mirror's and
// are forgotten with it; the buyer row decides.
//
// # Neighbours
//
// api asks, relay produces what was granted, outbox applies effects, rebuild
// installs, gate sets bounds. The library is lua/, its twin for tests twin_test.go.
package admission
