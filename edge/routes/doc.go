// Package routes keeps the edge's copy of what the control plane says: campaigns, cells and keys.
//
// # Promise
//
//   - Readers get an immutable Snapshot with its revision; nothing in it changes under them, and
//     reading takes no lock.
//   - One goroutine, one loop, three named steps: connect to one control-plane replica → apply what
//     it sends, a whole message per transaction → acknowledge the revision, once readers can see
//     it. Any error ends the cycle: back off with jitter and a cap, take the next replica, and be
//     sent everything anew. Preflight and publish rest on the acknowledgement.
//   - The last snapshot is served for as long as the control plane is gone; the sale goes on. How
//     old it is, is a metric and a reason of readiness, never a reason to refuse a customer.
//   - A cell that may sell keeps the addresses it had while none of its processes holds a lease: a
//     lease is no evidence, and a sale does not stop because the control plane lost sight of it.
//   - A campaign that cannot be read (a hole in its buckets, an id that is none) is quarantined: it
//     alone disappears, with a log line and a metric that name it, and stops nothing else.
//
// # Neighbours
//
// The control plane's RoutingService feeds it; edge/route holds the types and the decisions; the
// proxy is told the cells of each new snapshot before the snapshot is acknowledged.
package routes
