// Package transport is how our processes call each other: one way to make a
// gRPC server and one way to dial it.
//
// Job: the visible chain of a server, outermost first:
//
//	trace      a span for each call, W3C context in and out (stats handler)
//	recovery   a panic becomes INTERNAL; its text goes to the log only
//	status     sentinels become statuses (internal/rpcstatus)
//	deadline   a unary call without a deadline is refused
//	in flight  more unary calls at once than agreed are refused
//	stopping   streams end when the shutdown begins
//	principal  who calls, and whether they may call this method
//	handler
//
// The status map stands above deadline and principal, so that their refusals
// cross the wire by the same table as a handler's.
//
// Promise: transport is mutual TLS. Plain text exists for development alone: it
// needs Dev, and each connection is refused unless it stays on this machine.
// Certificates are read again when their files change. Nobody is anonymous: a
// server without an Authenticator answers only health checks. Messages, headers,
// streams and calls in flight are bounded.
//
// A server that dies ends its calls at once. One that is frozen, or cut off, keeps
// its connections and says nothing; DialOptions.Pulse bounds how long its callers
// wait (pulse.go).
//
// Neighbours: component roots (wire.go) make servers; client packages dial;
// handlers ask PrincipalFrom. internal/lifecycle runs Serve and Drain.
package transport
