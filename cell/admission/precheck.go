package admission

import (
	"context"

	"github.com/cellquota/cellquota/internal/ids"
)

// PrecheckAsk asks whether anything but time and stock stands against a first
// attempt of a user.
type PrecheckAsk struct {
	Scope  Scope
	SKU    ids.SKUID
	User   ids.UserID
	Domain string
}

type precheckCall struct {
	PrecheckAsk
	build ids.Build
}

var precheckFunction = function[precheckCall, Result]{
	name: "cq2_precheck",
	render: func(a precheckCall) ([]string, []any) {
		k := a.Scope.at(a.build)
		return []string{a.Scope.metaKey(), k.stock(a.SKU), k.marks(), k.buckets(a.Domain)},
			[]any{a.build.String(), a.build.Fence, string(a.SKU), string(a.User), ids.Bucket(a.User), a.Domain}
	},
	decode: decodeResult,
}

// Precheck answers Clear, or what stands against each ask, in one pipeline.
func (c *Client) Precheck(ctx context.Context, asks []PrecheckAsk) []Result {
	c.calls.RLock()
	defer c.calls.RUnlock()
	return eachExpected(ctx, c, precheckFunction, asks,
		func(a PrecheckAsk) Scope { return a.Scope },
		func(a PrecheckAsk, b ids.Build) precheckCall { return precheckCall{a, b} })
}

// eachExpected calls f for the asks whose scope has an expected build; the others
// are NotReady.
func eachExpected[A, In any](ctx context.Context, c *Client, f function[In, Result], asks []A,
	scope func(A) Scope, call func(A, ids.Build) In,
) []Result {
	results := make([]Result, len(asks))
	ins, at, builds := make([]In, 0, len(asks)), make([]int, 0, len(asks)), make([]ids.Build, 0, len(asks))
	for i, a := range asks {
		build, ok := c.Expected(scope(a))
		if !ok {
			results[i].Outcome = NotReady
			continue
		}
		ins, at, builds = append(ins, call(a, build)), append(at, i), append(builds, build)
	}
	if len(ins) == 0 {
		return results
	}
	ctx, cancel := context.WithTimeout(ctx, c.budget)
	defer cancel()
	outs, errs := f.run(ctx, c, c.hot, ins)
	for n, i := range at {
		if errs[n] != nil {
			results[i] = failed(errs[n])
			continue
		}
		results[i] = outs[n]
		results[i].Build = builds[n]
	}
	return results
}
