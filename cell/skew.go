package cell

import (
	"context"
	"fmt"
	"time"

	"github.com/cellquota/cellquota/internal/clock"
)

// skewOf asks a store for its time and tells by how much it certainly differs from ours: the time that
// the answer was on its way is not counted against it.
func skewOf(ctx context.Context, c clock.Clock, ask func(context.Context) (time.Time, error)) (time.Duration, error) {
	before := c.Now()
	theirs, err := ask(ctx)
	if err != nil {
		return 0, err
	}
	after := c.Now()
	switch {
	case theirs.Before(before):
		return theirs.Sub(before), nil
	case theirs.After(after):
		return theirs.Sub(after), nil
	default:
		return 0, nil
	}
}

// skewFault is what is wrong with the clocks of this process and its two stores, in words; "":
// nothing. Redis decides who is in time and PostgreSQL when an order ends, so they must not differ
// from each other either.
func skewFault(most, redis, shard time.Duration) string {
	between := redis - shard
	for _, d := range []struct {
		what string
		by   time.Duration
	}{{"Redis and this process", redis}, {"PostgreSQL and this process", shard}, {"Redis and PostgreSQL", between}} {
		if d.by.Abs() > most {
			return fmt.Sprintf("the clocks of %s differ by %s, max_clock_skew is %s", d.what, d.by.Abs().Round(time.Millisecond), most)
		}
	}
	return ""
}
