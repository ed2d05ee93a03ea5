package gate

import (
	"fmt"
	"time"
)

// Steps is the number of steps in which the bound rises after a pause or a cut: it
// doubles with each calm look, from a sixteenth.
const Steps = 4

// slowFloor is the step below which slowness alone does not cut.
const slowFloor = 1

// Rules bound one SKU's gate.
type Rules struct {
	MaxWait       time.Duration // longest wait from admission to outcome that is accepted; at least 1 ms
	MinRate       float64       // outcomes per second assumed at least
	Capacity      int64         // outstanding admissions that can be settled with a failure domain down
	PauseAfter    time.Duration // age of the oldest admission at which nothing more is admitted
	MaxFailure    float64       // share of failed or retried batches that is still calm
	PaymentWindow time.Duration // what a customer has to pay; 0: unknown
}

// slowAge is the age at which the gate throttles: half of what may be waited, and
// never more than an eighth of the payment window.
func (r Rules) slowAge() time.Duration {
	age := r.MaxWait / 2
	if r.PaymentWindow > 0 {
		age = min(age, r.PaymentWindow/8)
	}
	return max(age, time.Millisecond)
}

// Inputs are what one look saw.
type Inputs struct {
	Final       bool          // declared by the control plane
	Halt        string        // why nothing may be admitted now; "" when nothing stands against it
	Stock       int64         // of the mirror
	Outstanding int64         // admissions without an outcome
	OldestAge   time.Duration // of the oldest of them
	Rate        float64       // outcomes per second, measured under backlog
	FailureRate float64       // share of batches that failed or were retried lately, 0 to 1
	LockWait    time.Duration // longest wait for a lock lately
}

// Gate is the gate of one SKU. The zero Gate is not valid: New.
type Gate struct {
	State State
	Step  int // of the ramp, 0 to Steps; Steps: the bound is whole
	Bound int64
	Cause string // why it is in State, for people
}

// New is a gate that starts low and ramps up, as after any (re)build.
func New(r Rules) Gate {
	return Gate{State: Throttled, Bound: bound(r, 0, 0), Cause: "starting"}
}

// Advance takes one look and returns the gate after it. Pure. The error is
// ErrTransition: g was made by hand.
func Advance(g Gate, r Rules, in Inputs) (Gate, error) {
	event, cause := classify(g, r, in)
	state, err := next(g.State, event)
	if err != nil {
		return g, err
	}
	out := Gate{State: state, Step: ramp(g.Step, event, slowness(r, in) != ""), Cause: cause}
	out.Bound = bound(r, in.Rate, out.Step)
	return out, out.check()
}

// classify names what a look amounts to; the gravest counts.
func classify(g Gate, r Rules, in Inputs) (Event, string) {
	slow := slowness(r, in)
	switch {
	case in.Final:
		return Final, "declared final by the control plane"
	case in.Halt != "":
		return Halt, in.Halt
	case r.PauseAfter > 0 && in.OldestAge >= r.PauseAfter:
		return Halt, fmt.Sprintf("an admission waits for %s", in.OldestAge.Round(time.Millisecond))
	case in.Stock <= 0:
		return Empty, "the mirror has no stock"
	case in.Outstanding >= refill(g):
		return Full, fmt.Sprintf("%d admissions are outstanding", in.Outstanding)
	case slow != "":
		return Slow, slow
	case g.Step < Steps:
		return Calm, "ramping up"
	default:
		return Ramped, ""
	}
}

// refill is the count at which the gate is full: the bound, and once it was full a
// tenth less, so that it does not flutter.
func refill(g Gate) int64 {
	if g.State == QueueFull {
		return max(g.Bound-g.Bound/10, 1)
	}
	return g.Bound
}

// slowness says what is slower than it should be; "" when nothing is.
func slowness(r Rules, in Inputs) string {
	switch {
	case in.OldestAge >= r.slowAge():
		return fmt.Sprintf("the oldest admission waits for %s", in.OldestAge.Round(time.Millisecond))
	case in.FailureRate > r.MaxFailure:
		return fmt.Sprintf("%.0f%% of batches fail or are retried", 100*in.FailureRate)
	case in.LockWait >= r.slowAge():
		return fmt.Sprintf("locks are waited for %s", in.LockWait.Round(time.Millisecond))
	default:
		return ""
	}
}

// ramp moves the step: a halt starts over, slowness cuts, everything else raises. A
// full gate that is not slow rises too: its bound is what keeps it full.
func ramp(step int, e Event, slow bool) int {
	switch {
	case e == Halt:
		return 0
	case slow:
		return max(step-1, min(step, slowFloor))
	default:
		return min(step+1, Steps)
	}
}

// bound is min(rate × max wait, capacity under failure), the rate never below its
// floor, cut by the ramp; at least 1.
func bound(r Rules, rate float64, step int) int64 {
	whole := int64(max(rate, r.MinRate) * r.MaxWait.Seconds())
	if r.Capacity > 0 {
		whole = min(whole, r.Capacity)
	}
	return max(whole>>(Steps-step), 1)
}

// check says whether the gate is one that Advance can make.
func (g Gate) check() error {
	switch {
	case g.State == Open && g.Step != Steps:
		return fmt.Errorf("%w: OPEN at step %d", ErrTransition, g.Step)
	case g.State == Paused && g.Step != 0:
		return fmt.Errorf("%w: PAUSED at step %d", ErrTransition, g.Step)
	case g.Bound < 1 || g.Step < 0 || g.Step > Steps:
		return fmt.Errorf("%w: bound %d at step %d", ErrTransition, g.Bound, g.Step)
	}
	return nil
}
