package admission

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cellquota/cellquota/internal/ids"
	cellquotav1 "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// Bounds on unpaid orders are counted exactly where orders are made, in the shard. What is kept here is a
// hint, so that most of what the shard would refuse takes no unit and no place in the log: one sorted set
// per user and device, of reservations scored by when they cease to count. An admission is put in for
// holdAdmission, its order until it expires, and whatever ends it takes it out. Nothing depends on it: a
// lost set refuses nobody, and one that was never taken out fades by its score. Only campaigns with a
// bound have any.

// holdAdmission is how long an admission counts that became no order.
const holdAdmission = time.Minute

// holdKeep is how long a set outlives the newest score put in.
const holdKeep = time.Hour

// holdKeys are the sets that a reservation is in.
func holdKeys(campaign ids.CampaignID, user ids.UserID, device string) []string {
	keys := []string{userHolds(campaign, user)}
	if device != "" {
		keys = append(keys, deviceHolds(campaign, device))
	}
	return keys
}

// holdBack answers the calls that a bound refuses by now and returns the others. Replay comes first: a
// request that the mirror knows goes on, whatever is held. So does every call when Redis gave no answer.
func (c *Client) holdBack(ctx context.Context, calls []admitCall, at []int, results []Result) ([]admitCall, []int) {
	above := c.aboveBound(ctx, calls)
	if len(above) == 0 {
		return calls, at
	}
	lookups := make([]lookupCall, len(above))
	for j, n := range above {
		a := &calls[n]
		lookups[j] = lookupCall{LookupAsk{Scope: a.Scope, SKU: a.SKU, User: a.User, Request: a.Request}, a.build}
	}
	known, errs := lookupFunction.run(ctx, c, c.hot, lookups)
	refused := make(map[int]bool, len(above))
	for j, n := range above {
		if errs[j] == nil && known[j].Outcome == Clear {
			refused[n] = true
			results[at[n]] = Result{Outcome: TooManyUnpaid, Build: calls[n].build}
		}
	}
	restCalls, restAt := make([]admitCall, 0, len(calls)), make([]int, 0, len(calls))
	for n := range calls {
		if !refused[n] {
			restCalls, restAt = append(restCalls, calls[n]), append(restAt, at[n])
		}
	}
	return restCalls, restAt
}

// aboveBound names the calls whose user or device holds as many as the campaign allows, those before them
// in the same pipeline counted as if they were granted.
func (c *Client) aboveBound(ctx context.Context, calls []admitCall) []int {
	now := strconv.FormatInt(c.clock.Now().UnixMilli(), 10)
	pipe := c.hot.Pipeline()
	counts := map[string]*redis.IntCmd{}
	for n := range calls {
		if a := &calls[n]; a.Holds.Bounded() {
			for _, key := range holdKeys(a.Scope.Campaign, a.User, a.DeviceID) {
				if counts[key] == nil {
					counts[key] = pipe.ZCount(ctx, key, "("+now, "+inf")
				}
			}
		}
	}
	if len(counts) == 0 {
		return nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil // the shard counts
	}
	more := map[string]int32{}
	held := func(key string) int32 {
		if key == "" {
			return 0
		}
		return int32(min(counts[key].Val(), 1<<20)) + more[key]
	}
	var above []int
	for n := range calls {
		a := &calls[n]
		if !a.Holds.Bounded() {
			continue
		}
		user, device := userHolds(a.Scope.Campaign, a.User), ""
		if a.DeviceID != "" {
			device = deviceHolds(a.Scope.Campaign, a.DeviceID)
		}
		if !a.Holds.Allow(held(user), held(device)) {
			above = append(above, n)
			continue
		}
		more[user]++
		more[device]++
	}
	return above
}

// holdAdmitted counts what was just admitted.
func (c *Client) holdAdmitted(ctx context.Context, calls []admitCall, outs []Result) {
	var pipe redis.Pipeliner
	now := c.clock.Now()
	for n := range calls {
		a := &calls[n]
		if !a.Holds.Bounded() || outs[n].Outcome != Accepted {
			continue
		}
		if pipe == nil {
			pipe = c.hot.Pipeline()
		}
		for _, key := range holdKeys(a.Scope.Campaign, a.User, a.DeviceID) {
			hold(ctx, pipe, key, outs[n].Reservation, now, now.Add(holdAdmission))
		}
	}
	c.note(ctx, pipe)
}

// holdSettled follows what became of reservations. PENDING_PAYMENT counts until the order expires; any
// other word ends it here (one in review counts in the shard, which is where it is decided).
func (c *Client) holdSettled(ctx context.Context, effects []Effect, results []EffectResult) {
	var pipe redis.Pipeliner
	now := c.clock.Now()
	for i, e := range effects {
		m := e.Effect
		if !m.GetUnpaidHold() || !results[i].Change.Done() || m.GetReservationId() == "" {
			continue
		}
		if pipe == nil {
			pipe = c.maint.Pipeline()
		}
		until := time.UnixMilli(m.GetExpiresAtMs())
		for _, key := range holdKeys(e.Scope.Campaign, ids.UserID(m.GetUserId()), m.GetDeviceId()) {
			if m.GetState() == cellquotav1.RequestState_REQUEST_STATE_PENDING_PAYMENT && until.After(now) {
				hold(ctx, pipe, key, ids.ReservationID(m.GetReservationId()), now, until)
			} else {
				pipe.ZRem(ctx, key, m.GetReservationId())
			}
		}
	}
	c.note(ctx, pipe)
}

func hold(ctx context.Context, pipe redis.Pipeliner, key string, reservation ids.ReservationID, now, until time.Time) {
	pipe.ZAdd(ctx, key, redis.Z{Score: float64(until.UnixMilli()), Member: string(reservation)})
	pipe.ZRemRangeByScore(ctx, key, "-inf", strconv.FormatInt(now.UnixMilli(), 10))
	keep := until.Sub(now) + holdKeep
	pipe.ExpireNX(ctx, key, keep)
	pipe.ExpireGT(ctx, key, keep)
}

// note sends what was gathered. A failure costs a hint.
func (c *Client) note(ctx context.Context, pipe redis.Pipeliner) {
	if pipe == nil {
		return
	}
	if _, err := pipe.Exec(ctx); err != nil {
		c.log.DebugContext(ctx, "unpaid holds were not noted", "error", err)
	}
}
