package check

import (
	"context"
	"fmt"
	"time"
)

// reading is by how much a store's clock certainly differs from ours.
type reading struct {
	who  string
	skew time.Duration
}

// readClock asks a store for its time. What the answer took on its way is not
// counted against it, as in the cell's own judgement.
func (c Checker) readClock(ctx context.Context, p *part, who string, ask func(context.Context) (time.Time, error)) {
	before := c.clock.Now()
	theirs, err := ask(ctx)
	if err != nil {
		p.silent(who+" clock", err)
		return
	}
	after := c.clock.Now()
	r := reading{who: who}
	switch {
	case theirs.Before(before):
		r.skew = theirs.Sub(before)
	case theirs.After(after):
		r.skew = theirs.Sub(after)
	}
	p.clocks = append(p.clocks, r)
}

// compare judges each clock against ours, and the stores' against each other: Redis
// decides who is in time, PostgreSQL when an order ends.
func (c Checker) compare(all []reading, p *part) {
	for i, r := range all {
		c.judge(p, r.who+" and the control plane", r.skew)
		for _, other := range all[i+1:] {
			c.judge(p, r.who+" and "+other.who, r.skew-other.skew)
		}
	}
}

func (c Checker) judge(p *part, subject string, skew time.Duration) {
	p.saw(subject, fmt.Sprintf("differ by at least %s", skew.Abs().Round(time.Millisecond)), skew.Abs() <= c.cfg.MaxClockSkew,
		fmt.Sprintf("clocks must not differ by more than %s (check.max_clock_skew): synchronise them", c.cfg.MaxClockSkew))
}
