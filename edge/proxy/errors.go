package proxy

import "errors"

// What can become of an ask beside an answer.
var (
	// ErrNoCell: the cell has no process to ask, or no stream to one is open. Nothing was sent.
	ErrNoCell = errors.New("no process of the cell can be reached")
	// ErrBusy: too many asks wait for the cell. Nothing was sent.
	ErrBusy = errors.New("too many asks in flight")
	// ErrNotSent: the time ran out, or the stream broke, before the ask was sent.
	ErrNotSent = errors.New("the ask was not sent")
	// ErrUnknown: the ask was sent and no answer came. It may have been admitted; only a repeat
	// under the same request id can tell.
	ErrUnknown = errors.New("the outcome is unknown")
)
