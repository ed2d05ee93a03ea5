package limit

import (
	"fmt"
	"slices"
	"time"

	"github.com/cellquota/cellquota/edge/route"
	"github.com/cellquota/cellquota/internal/clock"
)

// Class tells calls apart that do not use up each other's tokens.
type Class uint8

// The classes.
const (
	// First is a first attempt to buy.
	First Class = iota
	// Repeat carries Retry-Attempt.
	Repeat
	// Claim asks for a permit.
	Claim
	// Other is everything else a customer may ask: status, orders, payments.
	Other
)

// Ceilings are the edge's own bounds, whatever a campaign says.
type Ceilings struct {
	User    route.Rate // per user and class
	Repeat  route.Rate // per user, for Repeat, instead of User: repeats pass the edge's shortcuts
	Network route.Rate // per network address and class; the zero Rate is none
	Buckets int        // buckets kept in memory; at least 1
}

// Caller is who asks: what the token says and where the call came from.
type Caller struct {
	User    string
	Device  string // "" if not said
	Network string // of Networks.Of
	// Claims returns all values of a named claim of the token.
	Claims func(name string) []string
}

// Limiter decides. It is safe for concurrent use.
type Limiter struct {
	ceilings Ceilings
	buckets  *buckets
	clock    clock.Clock
}

// New returns a limiter.
func New(c Ceilings, clk clock.Clock) (*Limiter, error) {
	b, err := newBuckets(max(c.Buckets, 1))
	if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	return &Limiter{ceilings: c, buckets: b, clock: clk}, nil
}

// Ceiling judges a call that belongs to no campaign by the edge's own bounds. When it may not go on,
// wait is how long until it may.
func (l *Limiter) Ceiling(class Class, who Caller) (wait time.Duration, ok bool) {
	now := l.clock.Now()
	user := l.ceilings.User
	if class == Repeat {
		user = l.ceilings.Repeat
	}
	if wait, ok = l.buckets.take(key{class: class, dimension: "user", value: who.User}, user, now); !ok {
		return wait, false
	}
	return l.buckets.take(key{class: class, dimension: "network", value: who.Network}, l.ceilings.Network, now)
}

// Allow judges a call by the ceilings and a campaign's rules: user, device, network, claims, in this
// order, ending at the first that refuses.
func (l *Limiter) Allow(class Class, campaign string, rules *route.Rules, who Caller) (wait time.Duration, ok bool) {
	if wait, ok = l.Ceiling(class, who); !ok {
		return wait, false
	}
	now := l.clock.Now()
	for _, d := range [...]struct {
		dimension, value string
		rule             route.Rate
	}{
		{"user", who.User, rules.User},
		{"device", who.Device, rules.Device},
		{"network", who.Network, rules.Network},
	} {
		if d.value == "" || !d.rule.Limited() {
			continue
		}
		if wait, ok = l.buckets.take(key{class, d.dimension, campaign, d.value}, d.rule, now); !ok {
			return wait, false
		}
	}
	return l.claims(class, campaign, rules, who, now)
}

func (l *Limiter) claims(class Class, campaign string, rules *route.Rules, who Caller, now time.Time) (time.Duration, bool) {
	if len(rules.PerName) == 0 || who.Claims == nil {
		return 0, true
	}
	names := make([]string, 0, len(rules.PerName))
	for name := range rules.PerName {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range who.Claims(name) {
			if len(value) > maxValue {
				value = value[:maxValue] // a bucket's key is bounded; the rest is the same bucket
			}
			if wait, ok := l.buckets.take(key{class, "claim:" + name, campaign, value}, rules.PerName[name], now); !ok {
				return wait, false
			}
		}
	}
	return 0, true
}

// maxValue bounds the text of a claim in a bucket's key, in bytes.
const maxValue = 256
