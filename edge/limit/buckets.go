package limit

import (
	"sync"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/time/rate"

	"github.com/cellquota/cellquota/edge/route"
)

// key names one bucket. Its parts are compared as they are; no two dimensions share a bucket.
type key struct {
	class     Class
	dimension string // "user", "device", "network" or "claim:NAME"
	campaign  string // "" for a ceiling of the edge
	value     string
}

// bucket is a token bucket that follows its rule when the campaign's rules change.
type bucket struct {
	mu   sync.Mutex
	rule route.Rate
	rate *rate.Limiter
}

// buckets are many, of which the least used are forgotten.
type buckets struct {
	cache *otter.Cache[key, *bucket]
}

// idle is after what time an untouched bucket is forgotten; by then any sensible one is full.
const idle = 10 * time.Minute

func newBuckets(room int) (*buckets, error) {
	cache, err := otter.New(&otter.Options[key, *bucket]{
		MaximumSize:      room,
		ExpiryCalculator: otter.ExpiryAccessing[key, *bucket](idle),
	})
	if err != nil {
		return nil, err
	}
	return &buckets{cache}, nil
}

// take takes one token at now. When there is none it returns how long until there is one.
func (b *buckets) take(k key, rule route.Rate, now time.Time) (wait time.Duration, ok bool) {
	if !rule.Limited() {
		return 0, true
	}
	one, found := b.cache.GetIfPresent(k)
	if !found {
		one, _ = b.cache.ComputeIfAbsent(k, func() (*bucket, bool) {
			return &bucket{rule: rule, rate: rate.NewLimiter(rate.Limit(rule.PerSecond), rule.Burst)}, false
		})
	}
	return one.take(rule, now)
}

func (b *bucket) take(rule route.Rate, now time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rule != rule {
		b.rule = rule
		b.rate.SetLimitAt(now, rate.Limit(rule.PerSecond))
		b.rate.SetBurstAt(now, rule.Burst)
	}
	if b.rate.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - b.rate.TokensAt(now)
	return time.Duration(missing / rule.PerSecond * float64(time.Second)), false
}
