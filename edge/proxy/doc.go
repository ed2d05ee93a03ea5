// Package proxy carries customers' asks to their home cells over a few long-lived streams.
//
//	Ask ─┐             lane (one Exchange stream)
//	Ask ─┼─▶ queue ─▶ sender: batch ─▶ cell ─▶ receiver ─▶ by correlation id ─▶ Ask returns
//	Ask ─┘
//
// # Promise
//
//   - An ask is sent at most once, on one stream, to the cell it names. It is never sent again by
//     this package and never to another cell.
//   - Every Ask ends with exactly one of: the cell's answer; ErrNotSent, ErrBusy or ErrNoCell
//     (nothing left this process); ErrUnknown (it may have been admitted: the stream broke, or the
//     time ran out). Which of them is decided by one compare-and-swap between sender and waiter.
//   - Batches hold what arrived together: at most BatchMax asks, and the first of them waits at
//     most BatchWait.
//   - Bounded: asks in flight per cell, streams per address, the queue of a lane (as large as the
//     bound on asks, so that putting into it never blocks).
//   - A broken stream is opened again with jittered back-off; the lanes of an address that left the
//     routes take no new asks and end when their last ask must have.
//
// # Neighbours
//
// edge/routes says which cells have which addresses (Sync); edge/api asks; the other end is the
// cell's AdmissionService and OrderService.
package proxy
