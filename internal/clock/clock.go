package clock

import (
	"context"
	"time"
)

// Clock tells the time and makes things wait for it. All methods are safe for
// concurrent use.
type Clock interface {
	// Now returns the present instant.
	Now() time.Time
	// NewTimer returns a timer that fires once after d; at once if d <= 0.
	NewTimer(d time.Duration) Timer
	// NewTicker returns a ticker that fires every d, which must be positive
	// (it panics otherwise, as time.NewTicker does). A slow reader loses ticks.
	NewTicker(d time.Duration) Ticker
	// Sleep waits for d or for the end of ctx, whichever is first, and returns
	// nil or ctx.Err(). A context that has already ended wins over d <= 0.
	Sleep(ctx context.Context, d time.Duration) error
}

// Timer fires once. After Stop or Reset has returned, no instant of the earlier
// setting can be received from C.
type Timer interface {
	// C receives the instant at which the timer fired.
	C() <-chan time.Time
	// Stop ends the timer and reports whether it was still going to fire.
	Stop() bool
	// Reset starts the timer anew and reports whether it was still going to fire.
	Reset(d time.Duration) bool
}

// Ticker fires again and again until it is stopped.
type Ticker interface {
	// C receives the instant of each tick; it is never closed.
	C() <-chan time.Time
	// Stop ends the ticker.
	Stop()
}
