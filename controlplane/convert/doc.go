// Package convert carries the control plane's types over to cellquota.v1 and
// back: the one place where a field of core meets a field of the wire. The
// stores, the handlers, the link and the planner all use it, so a campaign in
// etcd, in a directive and in an answer is the same campaign.
//
// Promise: to proto and back is the same value (a property test); from proto
// never trusts: a number outside its type's bounds, an unknown enum or a missing
// part gives an error or a value that the type's Check refuses, never a panic
// and never a silently changed number. Text is not interpreted here.
//
// Neighbours: core below; proto beside; store, api, planner, link above.
package convert
