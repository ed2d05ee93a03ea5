package admission

import (
	"context"

	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// metaCall changes fields of the meta of one build.
type metaCall struct {
	scope Scope
	build ids.Build
	pairs []any
}

var setFunction = function[metaCall, EffectResult]{
	name: "cq2_set",
	render: func(m metaCall) ([]string, []any) {
		return []string{m.scope.metaKey()}, append([]any{m.build.String()}, m.pairs...)
	},
	decode: effectFunction.decode,
}

func (c *Client) set(ctx context.Context, scope Scope, build ids.Build, pairs ...any) (Change, error) {
	r, err := setFunction.one(ctx, c, c.maint, metaCall{scope, build, pairs})
	return r.Change, err
}

// Gate is what the gate allows for one SKU.
type Gate struct {
	SKU   ids.SKUID
	State cellquotav1.GateState
	Bound int64 // outstanding admissions allowed
}

func gatePairs(g Gate) []any {
	return []any{"gate:" + string(g.SKU), int32(g.State), "bound:" + string(g.SKU), g.Bound}
}

// SetGate writes state and bound of a SKU. The script itself refuses by PAUSED and
// FINAL_SOLD_OUT and by the bound; the other states only name why.
func (c *Client) SetGate(ctx context.Context, scope Scope, build ids.Build, g Gate) (Change, error) {
	return c.set(ctx, scope, build, gatePairs(g)...)
}

// Window is when a campaign sells, in Unix milliseconds: [OpenAtMS, CloseAtMS).
type Window struct {
	OpenAtMS    int64
	CloseAtMS   int64
	KeepUntilMS int64 // when request records expire; 0: never
}

func windowPairs(w Window) []any {
	return []any{"open_at_ms", w.OpenAtMS, "close_at_ms", w.CloseAtMS, "keep_until_ms", w.KeepUntilMS}
}

// SetWindow replaces the window of a mirror.
func (c *Client) SetWindow(ctx context.Context, scope Scope, build ids.Build, w Window) (Change, error) {
	return c.set(ctx, scope, build, windowPairs(w)...)
}

// Pause stops every admission into a build until another one is installed.
func (c *Client) Pause(ctx context.Context, scope Scope, build ids.Build) (Change, error) {
	return c.set(ctx, scope, build, "state", Building)
}

type fenceCall struct {
	scope Scope
	fence int64
}

var fenceFunction = function[fenceCall, EffectResult]{
	name:   "cq2_fence",
	render: func(f fenceCall) ([]string, []any) { return []string{f.scope.metaKey()}, []any{f.fence} },
	decode: effectFunction.decode,
}

// RaiseFence raises the fence version of a mirror's meta, never lowers it: every
// process that admits under a lower one is told FENCED at its next ask.
func (c *Client) RaiseFence(ctx context.Context, scope Scope, fence int64) (Change, error) {
	r, err := fenceFunction.one(ctx, c, c.maint, fenceCall{scope, fence})
	return r.Change, err
}

// BucketSet is a bitmap of owned buckets, one bit per bucket as Redis counts bits.
type BucketSet [ids.Buckets / 8]byte

// Add takes the buckets from to to, both included and below ids.Buckets, in.
func (s *BucketSet) Add(from, to int) {
	for b := max(from, 0); b <= min(to, ids.Buckets-1); b++ {
		s[b/8] |= 0x80 >> (b % 8)
	}
}

// Has reports whether a bucket is in.
func (s *BucketSet) Has(bucket int) bool {
	return bucket >= 0 && bucket < ids.Buckets && s[bucket/8]&(0x80>>(bucket%8)) != 0
}

type bucketsCall struct {
	scope  Scope
	build  ids.Build
	domain string
	set    BucketSet
}

var bucketsFunction = function[bucketsCall, EffectResult]{
	name: "cq2_buckets",
	render: func(b bucketsCall) ([]string, []any) {
		return []string{b.scope.metaKey(), b.scope.at(b.build).buckets(b.domain)}, []any{b.build.String(), b.domain, b.set[:]}
	},
	decode: effectFunction.decode,
}

// SetBuckets replaces the buckets of one domain that this cell owns.
func (c *Client) SetBuckets(ctx context.Context, scope Scope, build ids.Build, domain string, set BucketSet) (Change, error) {
	r, err := bucketsFunction.one(ctx, c, c.maint, bucketsCall{scope, build, domain, set})
	return r.Change, err
}

// Writable is nil when the server of a scope takes writes now. It changes nothing: it asks for a change
// of a build that never is. A server at maxmemory, without the replicas that it must have, or cut off
// from its cluster refuses, and what it refuses now it would refuse to an install: whoever minted a
// build first would have given up the old one for nothing. ErrUnavailable.
func (c *Client) Writable(ctx context.Context, scope Scope) error {
	_, err := bucketsFunction.one(ctx, c, c.maint, bucketsCall{scope: scope})
	return err
}
