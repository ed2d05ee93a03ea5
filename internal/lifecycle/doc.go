// Package lifecycle owns a process's goroutines, from the first to the last.
//
// Job: start named members, learn when one of them fails or the process is told
// to stop, and then take everything down in a known order within a known time.
//
// Promise: every goroutine of a server belongs to a Group, which waits for it.
// The order of a shutdown is always:
//
//  1. the parent context ends (SIGTERM) or a member fails; Stopping is closed;
//  2. stop hooks run one after the other, last registered first, while the
//     members still run: a server that drains its calls can still use the
//     batchers and leases behind it;
//  3. the members' context ends, and Wait waits for every member;
//  4. when the grace is used up, Wait names whoever still runs and returns.
//
// The hooks share three quarters of the grace, so that members always have a
// quarter to finish.
//
// Neighbours: each component's wire.go builds one Group; it imports the
// standard library only.
package lifecycle
