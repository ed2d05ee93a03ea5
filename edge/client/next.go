package client

import (
	"math/rand/v2"
	"time"
)

// Step is what to do after a call.
type Step struct {
	// Again: make the same call, with the same ids, after After. False: the answer stands.
	Again bool
	After time.Duration
	// RetryAttempt is what the next call carries; 0: nothing.
	RetryAttempt int
	// NewPermit: claim another permit first.
	NewPermit bool
}

// Pauses after a call without an answer: doubled by attempt, spread over half of it again.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Next is the rule of contract §3 for an attempt to buy that carried Retry-Attempt attempt (0:
// none) and ended in a, or in err. It also holds for the other calls, whose ids make a repeat safe.
func Next(a Answer, err error, attempt int) Step {
	if err != nil {
		return Step{Again: true, After: pause(attempt), RetryAttempt: attempt + 1}
	}
	switch a.Code {
	case "NOT_READY", "INTERNAL":
		// The edge could not find out: as good as no answer.
		return Step{Again: true, After: a.RetryAfter, RetryAttempt: attempt + 1}
	case "PAUSED", "HOME_CELL_UNAVAILABLE", "MOVED_PENDING",
		"RATE_LIMITED", "QUEUE_FULL", "THROTTLED",
		"TEMP_SOLD_OUT", "NOT_STARTED", "TOO_MANY_UNPAID", "PAYMENT_IN_PROGRESS":
		// Answered, and nothing happened; what was in doubt before stays in doubt.
		return Step{Again: true, After: a.RetryAfter, RetryAttempt: attempt}
	case "PERMIT_INVALID":
		return Step{Again: true, NewPermit: true, RetryAttempt: attempt}
	default:
		return Step{}
	}
}

func pause(attempt int) time.Duration {
	d := min(firstPause<<min(attempt, 10), lastPause)
	return d + rand.N(d/2)
}
