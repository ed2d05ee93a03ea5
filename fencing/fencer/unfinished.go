package fencer

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
)

//go:embed sql/unfinished.sql
var unfinishedSQL string

// Unfinished counts what a shard still has to do, or to keep for somebody. The zero
// value is a shard that nobody waits for.
type Unfinished struct {
	Available int64 // units that could be sold
	Reserved  int64 // units of reservations that are neither sold nor released
	Unpaid    int64 // orders that can be paid
	Refunds   int64 // payments that are to be given back and are not yet
	Leaving   int64 // outbox rows that have not left: a matter of seconds
	Stuck     int64 // outbox rows that a person has to look at
	Parked    int64 // messages that a person has to look at
}

// Unfinished reads what is not over in the shard; units are counted in the campaigns
// named only. Read it after RaiseTerm: then no directive of a former leader adds to it.
func (f *Fencer) Unfinished(ctx context.Context, campaigns []string) (Unfinished, error) {
	var u Unfinished
	err := f.conn.QueryRow(ctx, unfinishedSQL, campaigns).Scan(&u.Available, &u.Reserved, &u.Unpaid, &u.Refunds, &u.Leaving, &u.Stuck, &u.Parked)
	return u, translate("read what is unfinished", err, false)
}

// Words lists what there is, with numbers; empty: nothing, but for rows that are about
// to leave.
func (u Unfinished) Words() string {
	var out []string
	for _, w := range []struct {
		n    int64
		what string
	}{
		{u.Available, "%d units available"},
		{u.Reserved, "%d units reserved"},
		{u.Unpaid, "%d unpaid orders"},
		{u.Refunds, "%d refunds under way"},
		{u.Stuck, "%d parked outbox rows"},
		{u.Parked, "%d parked messages"},
	} {
		if w.n > 0 {
			out = append(out, fmt.Sprintf(w.what, w.n))
		}
	}
	return strings.Join(out, ", ")
}
