package admission

import (
	"context"

	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// LookupAsk names a request by its key.
type LookupAsk struct {
	Scope   Scope
	SKU     ids.SKUID
	User    ids.UserID
	Request ids.RequestID
}

type lookupCall struct {
	LookupAsk
	build ids.Build
}

var lookupFunction = function[lookupCall, Result]{
	name: "cq2_record",
	render: func(a lookupCall) ([]string, []any) {
		k := a.Scope.at(a.build)
		return []string{a.Scope.metaKey(), k.record(a.SKU, a.Request, a.User), k.marks()},
			[]any{a.build.String(), a.build.Fence, string(a.SKU), string(a.User), string(a.Request)}
	},
	decode: decodeResult,
}

// Lookup tells what the mirrors hold of requests, in one pipeline: Replayed with
// the present state, Clear when there is no such request, NotReady, Fenced or
// Paused when nobody knows. A state that is not final must still be checked
// against the shard's fence and build.
func (c *Client) Lookup(ctx context.Context, asks []LookupAsk) []Result {
	c.calls.RLock()
	defer c.calls.RUnlock()
	return eachExpected(ctx, c, lookupFunction, asks,
		func(a LookupAsk) Scope { return a.Scope },
		func(a LookupAsk, b ids.Build) lookupCall { return lookupCall{a, b} })
}

// Ready is the state of a mirror that admits; any other does not.
const Ready = "READY"

// Building is the state of a mirror that is paused until it is rebuilt.
const Building = "BUILDING"

// Facts is one consistent read of one SKU of a mirror, whatever build it is of.
type Facts struct {
	Present bool      // there is a meta
	State   string    // Ready or Building; "" when not Present
	Build   ids.Build // zero when not Present
	Fence   int64     // fence version in the meta; may be above the build's
	Server  string    // Redis processes it was built on
	Shard   string    // shard identity it was built from
	Whole   bool      // every key that never is empty is there

	Stock            int64 // may be negative for a moment
	Outstanding      int64 // admissions without an outcome
	OutstandingUnits int64
	OldestMS         int64 // admitted_at_ms of the oldest outstanding one; 0: none
	StreamLength     int64 // admissions the log has not acknowledged
	Admitted         int64 // since the build
	RefusedForStock  int64 // since the build
	NowMS            int64 // Redis TIME
	Gate             cellquotav1.GateState
	Bound            int64
	BaseVersion      int64 // version of the stock row that the build started from
	LastNumber       int64 // of the last return debited, or of the base
}

// OldestAgeMS is the age of the oldest outstanding admission by Redis TIME.
func (f Facts) OldestAgeMS() int64 {
	if f.OldestMS == 0 {
		return 0
	}
	return max(f.NowMS-f.OldestMS, 0)
}

type factsCall struct {
	scope Scope
	build ids.Build
	sku   ids.SKUID
}

var factsFunction = function[factsCall, Facts]{
	name: "cq2_facts",
	render: func(f factsCall) ([]string, []any) {
		k := f.scope.at(f.build)
		return []string{f.scope.metaKey(), k.stock(f.sku), k.marks(), k.applied(), k.outstanding(f.sku), k.stream(), k.stats(f.sku)},
			[]any{string(f.sku)}
	},
	decode: func(r reply) (Facts, error) {
		r.arity(18)
		f := Facts{
			State: r.text(0), Fence: r.int(2), Server: r.text(3), Shard: r.text(4), Whole: r.int(5) == 0, Stock: r.int(6),
			Outstanding: r.int(7), OutstandingUnits: r.int(8), OldestMS: r.int(9), StreamLength: r.int(10), Admitted: r.int(11),
			RefusedForStock: r.int(12), NowMS: r.int(13), Gate: cellquotav1.GateState(r.int(14)), Bound: r.int(15),
			BaseVersion: r.int(16), LastNumber: r.int(17),
		}
		text := r.text(1)
		if f.Present = text != ""; !f.Present {
			return f, nil
		}
		var err error
		f.Build, err = ids.ParseBuild(text)
		return f, err
	},
}

// Facts reads one SKU of a mirror as it is now. It reads the keys of the build
// that the meta names, so it asks twice when it first has to learn that.
func (c *Client) Facts(ctx context.Context, scope Scope, sku ids.SKUID) (Facts, error) {
	build, ok := c.Expected(scope)
	if !ok {
		var err error
		if build, err = c.metaBuild(ctx, scope); err != nil {
			return Facts{}, err
		}
	}
	f, err := factsFunction.one(ctx, c, c.maint, factsCall{scope, build, sku})
	if err != nil || !f.Present || f.Build == build {
		return f, err
	}
	return factsFunction.one(ctx, c, c.maint, factsCall{scope, f.Build, sku})
}

// metaBuild is the build that the meta names; zero when there is none.
func (c *Client) metaBuild(ctx context.Context, scope Scope) (ids.Build, error) {
	text, err := c.maint.HGet(ctx, scope.metaKey(), "build").Result()
	switch {
	case isNil(err):
		return ids.Build{}, nil
	case err != nil:
		return ids.Build{}, translate(err)
	}
	return ids.ParseBuild(text)
}
