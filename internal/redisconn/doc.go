// Package redisconn makes clients of a Redis: one server, one behind sentinels, or a cluster. It is
// the only place that knows how each is dialled.
//
// # Promise
//
//   - Target.Check names each rule that a configuration breaks, by its key. A target that passed it
//     opens the kind of client that its mode says: the driver would make a cluster's client of two
//     addresses without a word.
//   - Behind sentinels every connection goes to the server that the sentinels which answer name as
//     the master; of different answers the one with the highest configuration epoch counts, as among
//     sentinels themselves. Follow asks again, and ends every connection to another server: a
//     primary that was replaced and never noticed (K50) serves no client of ours any longer than
//     until the next Follow.
//   - In a cluster Follow reads the slots anew, so that a promoted replica is found by the next call.
//   - Nothing here retries, waits or keeps a goroutine; time-outs are the caller's.
//
// # Why not the driver's own failover client
//
// It learns of a new master by a subscription at one sentinel. While that sentinel is dead, cut off or
// behind, the client stays with the old primary for as long as its connections live. A cell must
// know at every look which server is right, and its processes must agree.
//
// # Neighbours
//
// cell/admission admits through it and refuses servers that it did not acknowledge; controlplane/check
// looks at a cell's Redis through it before the cell is provisioned.
package redisconn
