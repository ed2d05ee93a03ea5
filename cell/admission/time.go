package admission

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Now is Redis TIME, by which campaigns open and close. In a cluster it is that of the master whose
// clock is furthest from this process's: every one of them judges some campaign.
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	var mu sync.Mutex
	var worst time.Time
	var most time.Duration
	err := c.eachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		at, err := node.Time(ctx).Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if off := at.Sub(c.clock.Now()).Abs(); worst.IsZero() || off > most {
			worst, most = at, off
		}
		return nil
	})
	return worst, err
}

// nowOf is the time by which the scripts of one mirror judge.
func (c *Client) nowOf(ctx context.Context, scope Scope) (time.Time, error) {
	node, err := c.maint.MasterOf(ctx, scope.metaKey())
	if err != nil {
		return time.Time{}, translate(err)
	}
	at, err := node.Time(ctx).Result()
	return at, translate(err)
}
