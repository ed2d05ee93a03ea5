// Package api is the control plane's gRPC face: thin handlers over intent, view
// and operation.
//
// A handler is five lines in one order: parse the request (every fault at once,
// with its path) → ask what depends on the request (a region) → one verb → return
// its error unchanged → render. The interceptors of internal/transport have set
// the principal and asked the table of roles before; they map errors after.
// Nothing here builds a status, logs an error that it returns, or touches etcd.
//
// routing.go is the exception in shape: WatchRoutes is a stream, fed from the
// view, whose acknowledgements a publish waits for.
//
// Neighbours: link, report and the fence handlers register their own services
// beside these; status.go registers the control plane's sentinels for all.
package api
