package client

import (
	"context"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
)

// shortestPoll is how soon a state is asked for again where the answer gives no hint.
const shortestPoll = 200 * time.Millisecond

// Follow asks for a request's state, as its answers say, until it no longer is on its way to an
// order, or ctx ends (the error is then ctx's, and the newest state comes with it). A call without
// an answer is made again: asking changes nothing. An answer that refuses ends it.
func (c *Client) Follow(ctx context.Context, clk clock.Clock, token, campaign, sku string, from Request, wait time.Duration) (Request, Answer, error) {
	now, attempt, waited := from, 0, wait > 0
	for {
		hint := max(time.Duration(now.PollAfterMS)*time.Millisecond, shortestPoll)
		if waited {
			hint = 0 // the edge does the waiting
		}
		if attempt > 0 {
			hint = pause(attempt)
		}
		if err := clk.Sleep(ctx, hint); err != nil {
			return now, Answer{}, err
		}
		began := clk.Now()
		next, a, err := c.Status(ctx, token, campaign, sku, from.RequestID, from.Receipt, wait)
		switch {
		case err != nil:
			attempt++
			continue
		case !a.OK() && !Next(a, nil, 0).Again:
			return now, a, nil
		case !a.OK():
			if serr := clk.Sleep(ctx, a.RetryAfter); serr != nil {
				return now, a, serr
			}
			continue
		}
		now, attempt = next, 0
		waited = wait > 0 && clk.Now().Sub(began) >= wait/2 // an edge that is full answers at once
		if !now.OnItsWay() {
			return now, a, nil
		}
	}
}
