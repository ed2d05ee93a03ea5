// Package rpcstatus is the one table between Go's sentinel errors and gRPC.
//
// Job: a sentinel raised in a core ("the fence version is old") crosses the
// wire as a status code with a reason, numbers and field violations, and is the
// same sentinel again on the other side: errors.Is holds in both processes.
//
// Promise:
//   - a component registers its sentinels once, in its status.go, when it is
//     wired; nobody else builds or reads a gRPC status;
//   - an error the table does not know reaches the caller as INTERNAL with a
//     fixed text; its own text is logged once, on the server, and never sent;
//   - UNAVAILABLE with a reason means that nothing was done. A write whose
//     outcome is not known is ErrUnknownOutcome. MayHaveHappened asks the error;
//   - numbers and violations travel in fields (ErrorInfo of domain "cellquota",
//     BadRequest, RetryInfo), bounded in count and length.
//
// Neighbours: internal/transport installs the interceptors; cores know only
// their own sentinels and, where an error needs numbers, With.
package rpcstatus
