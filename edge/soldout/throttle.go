package soldout

import (
	"sync/atomic"
	"time"
)

// allowance is how many more first attempts this edge lets through to a cell whose gate is THROTTLED.
type allowance struct {
	left  atomic.Int64
	until time.Time
}

// SawThrottled records that the gate of the cell is THROTTLED while it has stockLeft units; 0: unknown.
// For the TTL this edge then lets through one first attempt for each of them and the campaign's
// gate.margin more, in tenths of a percent: some permits are never used, and some requests fail. A
// second sight within the TTL adds nothing.
func (c *Cache) SawThrottled(k Key, stockLeft, marginPermille int32) {
	c.SawFull(k)
	if stockLeft <= 0 {
		return
	}
	now := c.clock.Now()
	if a, ok := c.left.GetIfPresent(k); ok && now.Before(a.until) {
		return
	}
	a := &allowance{until: now.Add(c.ttl)}
	a.left.Store((int64(stockLeft)*int64(1000+marginPermille) + 999) / 1000)
	c.left.Set(k, a)
}

// Pass takes one first attempt's place; false: none is left for so much longer.
func (c *Cache) Pass(k Key) (wait time.Duration, ok bool) {
	a, found := c.left.GetIfPresent(k)
	if !found {
		return 0, true
	}
	if wait = a.until.Sub(c.clock.Now()); wait <= 0 {
		return 0, true
	}
	return wait, a.left.Add(-1) >= 0
}
