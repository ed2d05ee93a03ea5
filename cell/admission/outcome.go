package admission

// Outcome is what the mirror decided about an ask. The list is the script's
// (lua/library.lua); a test compares the two.
type Outcome int

const (
	// Undecided is the zero Outcome: Result.Err says why there is no decision.
	Undecided Outcome = iota
	// Accepted: units were taken and the permit's nonce is burnt.
	Accepted
	// Replayed: the same request as before, with its present state.
	Replayed
	// Conflict: the same request id with other parameters.
	Conflict
	// AlreadyReserved: another request of the user holds the place and can be paid.
	AlreadyReserved
	// AlreadyPurchased: the user's order is paid.
	AlreadyPurchased
	// OrderClosed: the user's only order was closed; permanent.
	OrderClosed
	// TempSoldOut: fewer units than asked for; Result.StockLeft tells how many.
	TempSoldOut
	// FinalSoldOut: declared by the control plane.
	FinalSoldOut
	// QueueFull: outstanding admissions reached the bound, or the stream its own.
	QueueFull
	// Throttled: the same while the gate is THROTTLED.
	Throttled
	// NotStarted: before open_at by Redis TIME.
	NotStarted
	// Ended: at or after close_at by Redis TIME.
	Ended
	// Paused: the gate says so, or Redis cannot be used (Result.Err tells).
	Paused
	// NotReady: the mirror is missing, damaged, of another build, or being rebuilt.
	NotReady
	// Fenced: the mirror's fence version is above this process's.
	Fenced
	// Moved: the user's bucket is not owned here.
	Moved
	// PermitInvalid: expired, or its nonce was burnt.
	PermitInvalid
	// Clear: nothing stands against a first attempt (Precheck); no such request
	// here (Lookup).
	Clear
	// TooManyUnpaid: the user or the device holds as many unpaid orders as the campaign allows.
	TooManyUnpaid
)

var outcomeNames = [...]string{
	"UNDECIDED", "ACCEPTED", "REPLAYED", "CONFLICT", "ALREADY_RESERVED", "ALREADY_PURCHASED", "ORDER_CLOSED",
	"TEMP_SOLD_OUT", "FINAL_SOLD_OUT", "QUEUE_FULL", "THROTTLED", "NOT_STARTED", "ENDED", "PAUSED",
	"NOT_READY", "FENCED", "MOVED", "PERMIT_INVALID", "CLEAR", "TOO_MANY_UNPAID",
}

// String is the script's name of o, which is also the label of the metric.
func (o Outcome) String() string { return nameIn(outcomeNames[:], int(o)) }

// Outcomes lists every decision, without Undecided.
func Outcomes() []Outcome {
	out := make([]Outcome, 0, TooManyUnpaid)
	for o := Accepted; o <= TooManyUnpaid; o++ {
		out = append(out, o)
	}
	return out
}

// Change is what became of a change to a mirror. The list is the script's.
type Change int

const (
	// Unchanged is the zero Change: the error beside it says why.
	Unchanged Change = iota
	// Applied: done now.
	Applied
	// Already: done before under the same id.
	Already
	// OtherBuild: the mirror is of another build; claim the row again.
	OtherBuild
	// BelowBase: the rebuild counted it; done.
	BelowBase
	// OtherAdmission: it gives back what another build took; done.
	OtherAdmission
	// Absent: the mirror is missing or damaged; try again after the rebuild.
	Absent
	// StaleNumber: a return at or below the mirror's last number; nothing taken.
	StaleNumber
	// NotHeld: nothing was debited under this id, so nothing is credited; done.
	NotHeld
	// OlderBuild: the mirror is newer than the build to install.
	OlderBuild
)

var changeNames = [...]string{
	"UNCHANGED", "APPLIED", "ALREADY", "OTHER_BUILD", "BELOW_BASE", "OTHER_ADMISSION", "NOT_READY",
	"STALE_NUMBER", "NOT_HELD", "OLDER_BUILD",
}

// String is the script's name of c.
func (c Change) String() string { return nameIn(changeNames[:], int(c)) }

// Done reports whether an effect with this outcome needs no further delivery.
func (c Change) Done() bool {
	switch c {
	case Applied, Already, BelowBase, OtherAdmission, NotHeld:
		return true
	default:
		return false
	}
}

func nameIn(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return "UNKNOWN"
	}
	return names[i]
}
