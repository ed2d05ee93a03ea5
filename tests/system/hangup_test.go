//go:build system || chaos

package system

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cellquota/cellquota/edge/client"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
)

// hangUp is K58: customers close their connection 1 to 5 ms after they asked, and then ask again with the same
// id until they are accepted. Each has one reservation, whatever became of the first try. What the first tries
// may have left behind is looked for by verify: units of the mirror (I9), requests without an outcome (I6).
func (c *choir) hangUp(customers int) {
	var all sync.WaitGroup
	places := make(chan struct{}, 50)
	for i := range customers {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if err := c.hungUp(ids.UserID(fmt.Sprintf("hasty-%d", i)), time.Duration(1+i%5)*time.Millisecond); err != nil {
				c.t.Error(err)
			}
		})
	}
	all.Wait()
}

// hungUp is one of them.
func (c *choir) hungUp(user ids.UserID, patience time.Duration) error {
	ctx, token := c.t.Context(), c.token(user)
	permit, a, err := c.client.Permit(ctx, token, c.campaign, "phone-x")
	for range 40 {
		if err == nil && a.OK() {
			break
		}
		_ = clock.System().Sleep(ctx, max(a.RetryAfter, 100*time.Millisecond))
		permit, a, err = c.client.Permit(ctx, token, c.campaign, "phone-x")
	}
	if err != nil || !a.OK() {
		return fmt.Errorf("%s got no permit: %d %s, %w", user, a.Status, a.Code, err)
	}
	short, hangUp := context.WithTimeout(ctx, patience)
	_, _, _ = c.buy(short, user, token, permit.Permit, 0)
	hangUp()
	var first client.Request
	for attempt := 1; ; attempt++ {
		if first, a, err = c.buy(ctx, user, token, permit.Permit, attempt); err == nil && a.OK() {
			break
		}
		if attempt == 40 {
			return fmt.Errorf("%s was not accepted: %d %s, %w", user, a.Status, a.Code, err)
		}
		_ = clock.System().Sleep(ctx, max(a.RetryAfter, 100*time.Millisecond))
	}
	again, a, err := c.buy(ctx, user, token, permit.Permit, 1)
	if err != nil || a.OK() && again.ReservationID != first.ReservationID {
		return fmt.Errorf("%s has reservations %s and %s (%d %s, %w)", user, first.ReservationID, again.ReservationID, a.Status, a.Code, err)
	}
	return nil
}
