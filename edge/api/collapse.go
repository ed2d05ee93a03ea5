package api

import (
	"strconv"

	"golang.org/x/sync/singleflight"

	"github.com/cellquota/cellquota/internal/ids"
	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// collapse lets concurrent repeats of one request share one ask (K62). It is cut into shards by
// user, so that different customers do not wait for one lock.
type collapse struct {
	shards [32]singleflight.Group
}

func newCollapse() *collapse { return &collapse{} }

// decision is what came of an ask.
type decision struct {
	answer  *cq.Answer
	problem *problem
}

// do runs ask, unless the same request is being asked already, in which case it waits for that
// one's decision; joined tells which.
func (g *collapse) do(user ids.UserID, key string, ask func() decision) (d decision, joined bool) {
	joined = true
	shard := &g.shards[int(ids.Bucket(user))%len(g.shards)]
	v, _, _ := shard.Do(key, func() (any, error) {
		joined = false
		return ask(), nil
	})
	return v.(decision), joined //nolint:forcetypeassert // do's own
}

// collapseKey says which calls are the same: everything that the decision depends on. A repeat and a
// first attempt differ, since only one of them may be answered by a shortcut; so do two quantities
// under one id, which are a conflict (K63). The permit is not part: it says that one may try, not
// what for.
func collapseKey(campaign ids.CampaignID, sku ids.SKUID, user ids.UserID, in *ask) string {
	b := make([]byte, 0, 256)
	b = append(append(b, campaign...), '/')
	b = append(append(b, sku...), '/')
	b = append(append(b, in.request...), '/')
	b = strconv.AppendInt(b, int64(in.quantity), 10)
	if in.attempt > 0 {
		b = append(b, '+')
	}
	b = append(b, '/')
	return string(append(b, user...))
}
