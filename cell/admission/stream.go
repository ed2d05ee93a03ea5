package admission

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/cell/events"
	"github.com/cellquota/cellquota/internal/ids"
)

// maxAcked is how many admissions one call of cq2_acked takes: the server does nothing
// else meanwhile.
const maxAcked = 64

// ackedCall is some admissions of one build of one mirror.
type ackedCall []Granted

var ackedFunction = function[ackedCall, EffectResult]{
	name: "cq2_acked",
	render: func(a ackedCall) ([]string, []any) {
		k := a[0].Scope.at(a[0].Build)
		keys, args := append(make([]string, 0, 1+len(a)), k.stream()), make([]any, 0, 2*len(a))
		for _, g := range a {
			keys, args = append(keys, k.record(g.SKU, g.Request, g.User)), append(args, g.StreamID, string(g.Reservation))
		}
		return keys, args
	},
	decode: effectFunction.decode,
}

// Acked records that the log has these admissions: their stream entries go, and
// requests that read ADMITTED read QUEUED. A repeat changes nothing.
func (c *Client) Acked(ctx context.Context, list []Granted) error {
	_, errs := ackedFunction.run(ctx, c, c.maint, ackedCalls(list))
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ackedCalls puts together what is of one build of one mirror.
func ackedCalls(list []Granted) []ackedCall {
	type place struct {
		scope Scope
		build ids.Build
	}
	var calls []ackedCall
	open := map[place]int{} // the call that still has room
	for _, g := range list {
		if g.StreamID == "" {
			continue
		}
		at := place{g.Scope, g.Build}
		i, ok := open[at]
		if !ok || len(calls[i]) == maxAcked {
			i = len(calls)
			open[at], calls = i, append(calls, nil)
		}
		calls[i] = append(calls[i], g)
	}
	return calls
}

// Page is one page of stream entries, oldest first.
type Page struct {
	Entries []Granted
	Broken  []string // ids of entries that cannot be read; they stay where they are
	Next    string   // where the next page begins; "" when this was the last
}

// Unpublished reads a page of stream entries of the present build that were
// admitted at least age ago by Redis TIME: admissions that the log has not
// acknowledged. after is the Next of the page before, or "".
func (c *Client) Unpublished(ctx context.Context, scope Scope, age time.Duration, after string, limit int64) (Page, error) {
	build, err := c.metaBuild(ctx, scope)
	if err != nil || build.IsZero() {
		return Page{}, err
	}
	now, err := c.nowOf(ctx, scope)
	if err != nil {
		return Page{}, err
	}
	start, end := "-", strconv.FormatInt(now.Add(-age).UnixMilli(), 10)
	if after != "" {
		start = "(" + after
	}
	entries, err := c.maint.XRangeN(ctx, scope.at(build).stream(), start, end, limit).Result()
	if err != nil && !isNil(err) {
		return Page{}, translate(err)
	}
	var page Page
	for _, e := range entries {
		message, _ := e.Values["m"].(string)
		g, err := grantedFrom(scope, []byte(message))
		if err != nil {
			page.Broken = append(page.Broken, e.ID)
			continue
		}
		g.StreamID = e.ID
		g.Traceparent, _ = e.Values["t"].(string)
		page.Entries = append(page.Entries, g)
	}
	if int64(len(entries)) == limit {
		page.Next = entries[len(entries)-1].ID
	}
	return page, nil
}

// StreamLength is the number of entries in the present build's stream.
func (c *Client) StreamLength(ctx context.Context, scope Scope) (int64, error) {
	build, err := c.metaBuild(ctx, scope)
	if err != nil || build.IsZero() {
		return 0, err
	}
	n, err := c.maint.XLen(ctx, scope.at(build).stream()).Result()
	return n, translate(err)
}

// Waiting is an admission without an outcome, for the scanner.
type Waiting struct {
	Granted
	InStream bool // not acknowledged by the log: the sweeper's
}

// Outstanding reads up to limit admissions of a SKU that wait for an outcome since
// at least age by Redis TIME, oldest first. One whose message is gone from the
// mirror has no Message and only its reservation id.
func (c *Client) Outstanding(ctx context.Context, scope Scope, sku ids.SKUID, age time.Duration, limit int64) ([]Waiting, error) {
	build, err := c.metaBuild(ctx, scope)
	if err != nil || build.IsZero() {
		return nil, err
	}
	now, err := c.nowOf(ctx, scope)
	if err != nil {
		return nil, err
	}
	k := scope.at(build)
	members, err := c.maint.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: k.outstanding(sku), ByScore: true, Start: "-inf", Stop: now.Add(-age).UnixMilli(), Count: limit,
	}).Result()
	if err != nil || len(members) == 0 {
		return nil, translate(err)
	}
	messages, err := c.maint.HMGet(ctx, k.pending(sku), members...).Result()
	if err != nil {
		return nil, translate(err)
	}
	out := make([]Waiting, len(members))
	for i, reservation := range members {
		out[i].Granted = Granted{Scope: scope, Build: build, SKU: sku, Reservation: ids.ReservationID(reservation)}
		text, _ := messages[i].(string)
		if _, message, ok := strings.Cut(text, "|"); ok {
			if g, err := grantedFrom(scope, []byte(message)); err == nil {
				out[i].Granted = g
			}
		}
	}
	return out, c.findInStream(ctx, k, out)
}

// findInStream fills StreamID and InStream from the requests' records.
func (c *Client) findInStream(ctx context.Context, k buildKeys, list []Waiting) error {
	pipe := c.maint.Pipeline()
	records := make([]*redis.StringCmd, len(list))
	for i, w := range list {
		records[i] = pipe.HGet(ctx, k.record(w.SKU, w.Request, w.User), "stream_id")
	}
	if _, err := pipe.Exec(ctx); err != nil && !isNil(err) {
		return translate(err)
	}
	pipe = c.maint.Pipeline()
	entries := make([]*redis.XMessageSliceCmd, len(list))
	for i := range list {
		if id := records[i].Val(); id != "" {
			list[i].StreamID = id
			entries[i] = pipe.XRangeN(ctx, k.stream(), id, id, 1)
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	if _, err := pipe.Exec(ctx); err != nil && !isNil(err) {
		return translate(err)
	}
	for i := range list {
		list[i].InStream = entries[i] != nil && len(entries[i].Val()) == 1
	}
	return nil
}

// grantedFrom reads an admission's message back.
func grantedFrom(scope Scope, message []byte) (Granted, error) {
	m, err := events.DecodeAdmission(message)
	if err != nil {
		return Granted{}, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return Granted{
		Scope: scope, Build: ids.Build{Fence: m.GetBuild().GetFenceVersion(), Count: m.GetBuild().GetCount()},
		SKU: ids.SKUID(m.GetSkuId()), User: ids.UserID(m.GetUserId()), Request: ids.RequestID(m.GetRequestId()),
		Reservation: ids.ReservationID(m.GetReservationId()), Message: message, AdmittedAtMS: m.GetAdmittedAtMs(),
	}, nil
}
