package core

import "strings"

// Reversal is what a reverse-entry is about. The operation's subject holds it as FINDING/INCIDENT.
type Reversal struct {
	Finding  string // as its shard names it
	Incident string // without a slash
}

// Subject is the operation's.
func (r Reversal) Subject() string { return r.Finding + "/" + r.Incident }

// Reversal gives what a reverse-entry is about; false for any other operation.
func (o Operation) Reversal() (Reversal, bool) {
	at := strings.LastIndex(o.Subject, "/")
	if o.Kind != OperationReverse || at < 1 || at == len(o.Subject)-1 {
		return Reversal{}, false
	}
	return Reversal{Finding: o.Subject[:at], Incident: o.Subject[at+1:]}, true
}
