// Package client is the only door to the control plane for cellctl, edges and
// cells: the way to any replica, the typed services and credentials.
//
// # Several replicas
//
// Any replica serves. A call goes to the one that was good last and leaves it when
// it is gone, stopping, without etcd, or silent: one whose process is frozen keeps
// its connections, so while a call waits the replica is asked for its health each
// second and left when that stays unanswered for 3 s. A call that certainly did
// nothing goes to the next replica; one that may have happened only when a repeat is
// the same call, because it reads or names its operation_id or adjustment_id
// (repeat.go). Others end with the error, and rpcstatus.MayHaveHappened says so.
// Every replica is tried once.
//
// A replica that is not connected to within a quarter of a second is passed over.
// Streams end with their replica; who opens one again gets the next.
//
// Each answer says how far its replica's view of etcd was, and each call asks, for ten
// seconds, for a view that is as far as any answer was (revision.go): a read after a
// fail-over shows the write before it, or comes from a third replica.
//
// Errors are sentinels of rpcstatus; the control plane's own are told apart by
// rpcstatus.Reason (UNKNOWN_CELL, RESERVE_SHORT, NOT_LEADER, …) and carry their
// numbers as metadata. rpcstatus.MayHaveHappened says whether a failed mutation
// must be repeated with the same id.
//
// Neighbours: internal/transport dials; proto is the language. It knows nothing
// of how the control plane is built.
package client
