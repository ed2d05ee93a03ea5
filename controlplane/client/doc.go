// Package client is the only door to the control plane for cellctl, edges and
// cells: one connection to any replica, the typed services and credentials.
//
// Errors are sentinels of rpcstatus; the control plane's own are told apart by
// rpcstatus.Reason (UNKNOWN_CELL, RESERVE_SHORT, NOT_LEADER, …) and carry their
// numbers as metadata. rpcstatus.MayHaveHappened says whether a failed mutation
// must be repeated with the same id.
//
// Neighbours: internal/transport dials; proto is the language. It knows nothing
// of how the control plane is built.
package client
