package admission

import (
	"context"
	"time"
)

// Now is Redis TIME, by which campaigns open and close. In a cluster it is one master's.
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	at, err := c.maint.Time(ctx).Result()
	return at, translate(err)
}
