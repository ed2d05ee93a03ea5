package core

import "time"

// Audit is one mutation as it is remembered, or a minute's refusals of one actor
// and method.
type Audit struct {
	At          time.Time // of refusals: their minute
	Actor       string
	Method      string // gRPC method, or the loop's name ("planner")
	OperationID string // operation or adjustment id
	Subject     string // what it was about
	Reason      string
	// Refusals counts those of the minute; 0: this is a mutation that was done.
	Refusals int64
	// Refusal is the reason of the last of them, such as PERMISSION_DENIED.
	Refusal string
}

// Trail is one record of the audit with its place: names sort by time, those of
// mutations and of refusals together.
type Trail struct {
	Name  string
	Audit Audit
}

// trailTime is how an instant begins a trail's name; its length never differs.
const trailTime = "2006-01-02T15:04:05.000000000Z"

// TrailName gives the name of a record of at, told apart from others by id.
func TrailName(at time.Time, id string) string { return TrailFrom(at) + "-" + id }

// TrailFrom gives a text that sorts before the names of every record from at on,
// and behind all older ones.
func TrailFrom(at time.Time) string { return at.UTC().Format(trailTime) }

// TrailTime reads the instant of a name; false when it is none.
func TrailTime(name string) (time.Time, bool) {
	if len(name) <= len(trailTime)+1 || name[len(trailTime)] != '-' {
		return time.Time{}, false
	}
	at, err := time.Parse(trailTime, name[:len(trailTime)])
	return at, err == nil
}

// ArchiveIndex is an object of the archive that no campaign names: older audit.
type ArchiveIndex struct {
	Object ArchiveObject
	// From and To are the first and last instant of what it holds.
	From, To time.Time
}
