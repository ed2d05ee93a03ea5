// Package peers is the other replicas of the control plane as this one sees them:
// who is registered, who leads, and a connection to each.
//
// Job: keep this replica's own record /replicas/ADDRESS under a lease, so that the
// others find it, and hand out connections by address. What is asked over them is
// the caller's (package api: a read that only the leader can answer, the edges that
// follow another replica).
//
// # Promise
//
// Being registered says that a replica ran within one lease, never that it answers,
// leads, or may write. A replica whose etcd is gone keeps serving and is registered
// again when etcd is back. A frozen replica ends the calls to it within seconds
// (transport's pulse). Connections are few and kept; those to addresses that are not
// registered any more are closed.
//
// # Neighbours
//
// store keeps the record, view shows the others; api asks them.
package peers
